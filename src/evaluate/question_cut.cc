#include "evaluate/question_cut.h"

#include <fmt/format.h>

#include "kvscale/error.h"
#include "text/tokenizer.h"

namespace kv {

QuestionCut::QuestionCut(const Tokenizer& tokenizer, const std::string& task, Form form)
    : tokenizer_(tokenizer),
      tail_(task == "kv_recall" ? "\nFrom the list above:\n" : "\nFrom the text above:\n") {
  for (const bool space : {false, true}) {
    for (const bool newline : {false, true}) {
      space_in_question_ = space;
      newline_in_question_ = newline;
      if (is_right_for_samples(task, form)) return;
    }
  }
  throw UnsupportedError(fmt::format(
      "generator {}: this tokenizer joins tokens across context, question and answer wherever they "
      "are cut",
      task));
}

bool QuestionCut::is_right_for_samples(const std::string& task, Form form) const {
  constexpr int kSamples = 8;
  FactMaker maker(task, form, 0);
  for (int i = 0; i < kSamples; ++i) {
    const Fact fact = maker.next();
    if (!is_right(context(fact.line()), fact)) return false;
  }
  return true;
}

std::string QuestionCut::context(const std::string& body) const {
  return body + (newline_in_question_ ? tail_.substr(0, tail_.size() - 1) : tail_);
}

std::string QuestionCut::question(const Fact& fact) const {
  return (newline_in_question_ ? "\n" : "") + fact.question + (space_in_question_ ? " " : "");
}

std::string QuestionCut::answer(const Fact& fact) const {
  return fact.answer.substr(space_in_question_ ? 1 : 0);
}

std::vector<int32_t> QuestionCut::encode(const std::string& text) const {
  return tokenizer_.encode(text, false);
}

bool QuestionCut::is_right(const std::string& context, const Fact& fact) const {
  const std::string asked = question(fact), answered = answer(fact);
  std::vector<int32_t> parts = encode(context);
  for (const std::string& text : {asked, answered}) {
    const std::vector<int32_t> ids = encode(text);
    parts.insert(parts.end(), ids.begin(), ids.end());
  }
  return parts == encode(context + asked + answered);
}

}  // namespace kv
