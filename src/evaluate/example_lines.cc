#include "evaluate/example_lines.h"

#include <nlohmann/json.hpp>

#include "evaluate/scorers.h"
#include "text/tokenizer.h"

namespace kv {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson positions_of(const Question& question, int64_t context) {
  OrderedJson out = OrderedJson::array();
  for (const int64_t token : question.needles) {
    out.push_back(
        {{"token", token}, {"depth", static_cast<double>(token) / static_cast<double>(context)}});
  }
  return out;
}

OrderedJson answers_of(const Question& question, const Tokenizer& tokenizer) {
  if (question.answer_tokens.empty()) return question.accepted_answers;
  // Random ids are no text.
  if (question.check == Check::kTokenAccuracy) return OrderedJson::array({question.answer_tokens});
  return OrderedJson::array({tokenizer.decode(question.answer_tokens)});
}

OrderedJson example(const Document& document, const Question& question, const std::string& block,
                    const Tokenizer& tokenizer) {
  std::vector<int32_t> prompt = document.context;
  prompt.insert(prompt.end(), question.tokens.begin(), question.tokens.end());
  OrderedJson out = {{"id", question.id},
                     {"task", document.task},
                     {"params",
                      {{"block", block},
                       {"look", document.look},
                       {"half", document.half},
                       {"answer_budget", question.answer_budget}}},
                     {"seed", document.seed},
                     {"cluster", document.id},
                     {"bucket", document.bucket},
                     {"target_len", document.target_tokens},
                     {"prompt_len", prompt.size()},
                     {"token_ids", prompt},
                     {"answers", answers_of(question, tokenizer)},
                     {"needle_positions", positions_of(question, std::ssize(document.context))},
                     {"scoring", name(question.check)},
                     {"chance", question.chance}};
  if (!question.tag.empty()) out["tag"] = question.tag;
  return out;
}

}  // namespace

std::string example_lines(const Document& document, const std::string& block,
                          const Tokenizer& tokenizer) {
  std::string out;
  for (const Question& question : document.questions) {
    out += example(document, question, block, tokenizer).dump();
    out += '\n';
  }
  return out;
}

}  // namespace kv
