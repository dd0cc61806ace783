#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv {

/// How a generated answer is judged.
///   kExact      the answer's tokens, greedily reproduced from the first one on (0 or 1)
///   kPrefix     share of the answer's tokens reproduced before the first miss, [0, 1]
///   kContains   some accepted answer occurs in the generated text
///   kRegex      the generated text matches the accepted pattern (PCRE2, searched)
///   kNumber     the last number of the generated text equals the accepted one
///   kJsonEqual  the first JSON value of the generated text equals the accepted one
///   kShare      share of the accepted answers that occur in the generated text, [0, 1]
///   kSimilarity what the generated text behind the tag has in common with the accepted one, [0, 1]
///   kTokenAccuracy  share of the answer's tokens predicted, each after the right ones before it
///   kCommand    the user's own test, run with the generated text on its standard input (0 or 1);
///               the command stands in the place of the accepted answer
enum class Check : uint8_t {
  kExact,
  kPrefix,
  kContains,
  kRegex,
  kNumber,
  kJsonEqual,
  kShare,
  kSimilarity,
  kTokenAccuracy,
  kCommand
};

/// One question. `context` is the part that several questions of a document share and that is
/// prefilled once; the prompt is context + question. Answers in tokens when the check works on
/// tokens, in text otherwise.
struct Question {
  std::string id;
  std::vector<int32_t> tokens;                // after the context, ends where the answer starts
  std::vector<int32_t> answer_tokens;         // kExact, kPrefix, kTokenAccuracy
  std::vector<std::string> accepted_answers;  // the other checks
  std::string tag;                            // of kSimilarity; empty: none is asked for
  Check check = Check::kExact;
  double chance = 0;  // score of a blind guess
  double depth = -1;  // where in the context the answer stands, [0, 1]; -1 = not known
  // Tokens for an answer that is generated freely; 0: nobody said. One that ends with its line
  // stops at the first newline.
  int64_t answer_budget = 0;
  bool ends_with_line = false;
  std::vector<int64_t> needles;  // tokens of the context where what it rests on begins, ascending
};

/// A document with its questions: the unit that statistics cluster by.
struct Document {
  std::string id;
  std::string task;    // as generator_tasks() names them, or "user"
  std::string bucket;  // label: the target length in tokens
  std::string language;
  int64_t target_tokens = 0;
  int64_t look = 1, half = 1;  // of its block, once it has one; as in ExampleRecord
  uint64_t seed = 0;
  std::vector<int32_t> context;
  std::vector<Question> questions;
};

/// A prompt of the user's: for scan, calibration, logit metrics and the choice of lengths; judged
/// only when it carries answers.
struct Prompt {
  std::string id;
  std::string cluster;  // what it shares a source with; empty: nobody said
  std::vector<int32_t> tokens;
  std::vector<std::string> accepted_answers;
  Check check = Check::kContains;
  std::string tag = {};       // of kSimilarity
  std::string language = {};  // as its author says: "en"; empty: nobody said
  bool has_answer() const { return !accepted_answers.empty(); }
};

}  // namespace kv
