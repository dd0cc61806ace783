#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "study/runner.h"
#include "study/served_arms.h"
#include "text/tokenizer.h"

namespace kv {

/// Servers as a runner: answer() may be called from several threads at once.
///
/// Decode lane: an answer is generated greedily, so that every token but the first is read through
/// the cache that decoding fills. A document's questions follow one another, so that the server's
/// prefix cache has their context; nothing of it is kept here.
/// Prefill lane, for questions whose check wants every token predicted after the right ones before
/// it (kTokenAccuracy): logprobs of the prompt with its answer.
class ServedRunner : public Runner {
 public:
  /// As EngineRunner's. `tokenizer` cuts the answers of servers that tell texts only.
  ServedRunner(const Tokenizer& tokenizer, std::vector<int32_t> stop_ids,
               std::vector<int32_t> line_end_ids, int64_t max_new_tokens);

  /// Who answers for an arm from now on. Not while answer() runs.
  void use(const ArmSpec& arm, std::shared_ptr<ServedArm> server);

  /// Throws ValueError for an arm that has no server, and the endpoint's errors.
  std::vector<std::vector<Answer>> answer(const Document& document,
                                          std::span<const RunnerArm> arms) override;

  /// One question alone.
  Answer answer(const Document& document, const Question& question, const RunnerArm& arm);

 private:
  Answer answer_one(ServedArm& server, const Document& document, const Question& question) const;
  void generate(ServedArm& server, const std::vector<int32_t>& prompt, const Question& question,
                Answer& answer) const;
  void force(ServedArm& server, std::vector<int32_t> prompt, const Question& question,
             Answer& answer) const;

  Tokenizer tokenizer_;
  std::vector<int32_t> stop_ids_, line_end_ids_;  // the second with the first among them
  int64_t max_new_tokens_;
  std::map<std::string, std::shared_ptr<ServedArm>> servers_;
};

}  // namespace kv
