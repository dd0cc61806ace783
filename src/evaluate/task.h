#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/example.h"
#include "evaluate/filler.h"
#include "evaluate/generators.h"

namespace kv {

class QuestionCut;

/// A question in text, and what is right to answer. Nobody writes the answer into the prompt.
struct AskedText {
  std::string question;  // "quiet-harbor:", what the answer goes on from
  std::string answer;    // " 48213", with its leading space
  Check check = Check::kExact;
  std::vector<std::string> accepted;  // by checks on text; empty: the answer's tokens are forced
  std::string tag;                    // of kSimilarity
  double chance = 0;                  // score of a guess without the context
  std::vector<size_t> needles;        // lines of the draft that it rests on, ascending
  int64_t cost = 0;                   // tokens of the question and of room for an answer

  bool is_forced() const { return accepted.empty(); }
};

/// The text of a context before its tail, and what is asked about it.
struct Draft {
  std::vector<Line> lines;
  std::vector<AskedText> asked;

  std::string body() const;
};

/// Which document to write.
struct DraftRequest {
  const GeneratorOptions& options;
  const QuestionCut& cut;
  int64_t target = 0, index = 0;
  // What the lines and the longest question with its answer should cost together.
  int64_t tokens = 0;
  std::vector<double> depths;  // in [0, 1), ascending, one for each question

  uint64_t seed(uint64_t purpose) const;
  /// How much the questions of one document may differ in cost, to all sides of one of them: with
  /// any of them the prompt stays within 1 % of the target.
  int64_t half_spread() const { return target / 100 / 2; }
  /// Throws UnsupportedError saying which documents cannot be made, and why.
  [[noreturn]] void refuse(std::string_view why) const;
};

/// A kind of document: what its lines say and what is asked. One class or table row for each
/// generated task; everything that all of them share (exact length, cuts that no token crosses,
/// identity) is the generator's. Keeps no state: the same request gives the same draft.
class Task {
 public:
  virtual ~Task() = default;

  /// What stands between the lines and the questions; begins and ends with a newline.
  virtual std::string tail() const { return "\nFrom the text above:\n"; }

  /// A few lines each with a question that is asked below it: what a cut must be right for.
  struct Sample {
    std::string line;
    AskedText asked;
  };
  virtual std::vector<Sample> samples() const = 0;

  /// Throws UnsupportedError when the text does not fit.
  virtual Draft draft(const DraftRequest& request) const = 0;
};

/// The task that `options` name; keeps the filler. Null for a name that is none.
std::unique_ptr<Task> make_task(const GeneratorOptions& options, const FillerMaker& filler);

}  // namespace kv
