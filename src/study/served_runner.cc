#include "study/served_runner.h"

#include <fmt/core.h>

#include <cmath>

#include "kvscale/error.h"

namespace kv {
namespace {

std::string ran(const ServedArm& server, const char* lane) {
  const std::string& version = server.facts.version;
  return fmt::format("{}{}{}, {} lane", server.facts.engine, version.empty() ? "" : " ", version,
                     lane);
}

}  // namespace

ServedRunner::ServedRunner(const Tokenizer& tokenizer, std::vector<int32_t> stop_ids,
                           std::vector<int32_t> line_end_ids, int64_t max_new_tokens)
    : tokenizer_(tokenizer),
      stop_ids_(std::move(stop_ids)),
      line_end_ids_(std::move(line_end_ids)),
      max_new_tokens_(max_new_tokens) {
  line_end_ids_.insert(line_end_ids_.end(), stop_ids_.begin(), stop_ids_.end());
}

void ServedRunner::use(const ArmSpec& arm, std::shared_ptr<ServedArm> server) {
  servers_[served_key(arm)] = std::move(server);
}

std::vector<std::vector<Answer>> ServedRunner::answer(const Document& document,
                                                      std::span<const RunnerArm> arms) {
  std::vector<std::vector<Answer>> out;
  for (const RunnerArm& arm : arms) {
    std::vector<Answer>& answers = out.emplace_back();
    for (const Question& question : document.questions) {
      answers.push_back(answer(document, question, arm));
    }
  }
  return out;
}

Answer ServedRunner::answer(const Document& document, const Question& question,
                            const RunnerArm& arm) {
  const auto found = servers_.find(served_key(arm.arm.spec));
  if (found == servers_.end()) {
    throw ValueError(fmt::format("server: expected one of {}, found none", arm.name));
  }
  return answer_one(*found->second, document, question);
}

Answer ServedRunner::answer_one(ServedArm& server, const Document& document,
                                const Question& question) const {
  std::vector<int32_t> prompt = document.context;
  prompt.insert(prompt.end(), question.tokens.begin(), question.tokens.end());
  Answer answer;
  answer.prompt_tokens = std::ssize(prompt);
  if (question.check == Check::kTokenAccuracy) {
    force(server, std::move(prompt), question, answer);
  } else {
    generate(server, prompt, question, answer);
  }
  return answer;
}

void ServedRunner::generate(ServedArm& server, const std::vector<int32_t>& prompt,
                            const Question& question, Answer& answer) const {
  const std::vector<int32_t>& expected = question.answer_tokens;
  GenerateRequest request;
  request.prompt = prompt;
  if (expected.empty()) {
    request.max_tokens = question.answer_budget > 0 ? question.answer_budget : max_new_tokens_;
    request.stop_ids = question.ends_with_line ? line_end_ids_ : stop_ids_;
  } else {
    request.max_tokens = std::ssize(expected);
    request.exact_length = true;
  }
  const Generated generated = server.client.generate(request);
  Attempt& attempt = answer.attempts.emplace_back();
  attempt.produced = generated.tokens;
  attempt.ended = generated.ended;
  answer.kernel = ran(server, "decode");
  if (generated.has_tokens) return;
  // Tokens are what is compared; an answer with the same text is the same answer.
  const bool is_right = !expected.empty() && generated.text == tokenizer_.decode(expected);
  attempt.produced = is_right ? expected : tokenizer_.encode(generated.text, false);
}

void ServedRunner::force(ServedArm& server, std::vector<int32_t> prompt, const Question& question,
                         Answer& answer) const {
  constexpr int32_t kOther = -1;  // which token the server preferred is not told
  const std::vector<int32_t>& expected = question.answer_tokens;
  const size_t first = prompt.size() - 1;  // scored are the tokens from the second on
  prompt.insert(prompt.end(), expected.begin(), expected.end());
  const std::vector<ScoredToken> scored = server.client.score(prompt);
  Attempt& attempt = answer.attempts.emplace_back();
  for (size_t i = 0; i < expected.size(); ++i) {
    const ScoredToken& one = scored[first + i];
    if (!one.is_top) {
      throw UnsupportedError(fmt::format(
          "{}: tells logprobs of the prompt without saying which token is the greedy choice, "
          "which {} needs",
          server.client.http().url(), question.id));
    }
    attempt.produced.push_back(*one.is_top ? expected[i] : kOther);
    answer.logprob += one.logprob / static_cast<double>(expected.size());
  }
  answer.kernel = ran(server, "prefill");
}

}  // namespace kv
