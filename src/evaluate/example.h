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
enum class Check : uint8_t { kExact, kPrefix, kContains, kRegex, kNumber, kJsonEqual };

/// One question. `context` is the part that several questions of a document share and that is
/// prefilled once; the prompt is context + question. Answers in tokens when the check works on
/// tokens, in text otherwise.
struct Question {
  std::string id;
  std::vector<int32_t> tokens;                // after the context, ends where the answer starts
  std::vector<int32_t> answer_tokens;         // kExact, kPrefix
  std::vector<std::string> accepted_answers;  // the other checks
  Check check = Check::kExact;
  double chance = 0;  // score of a blind guess
  double depth = -1;  // where in the context the answer stands, [0, 1]; -1 = not known
};

/// A document with its questions: the unit that statistics cluster by.
struct Document {
  std::string id;
  std::string task;    // "niah_single", "kv_recall", "copy_span", "user"
  std::string bucket;  // label: the target length in tokens
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
  bool has_answer() const { return !accepted_answers.empty(); }
};

}  // namespace kv
