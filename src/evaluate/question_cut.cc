#include "evaluate/question_cut.h"

#include <fmt/format.h>

#include <algorithm>

#include "kvscale/error.h"
#include "text/tokenizer.h"

namespace kv {

QuestionCut::QuestionCut(const Tokenizer& tokenizer, const std::string& name, const Task& task)
    : tokenizer_(tokenizer), tail_(task.tail()) {
  const std::vector<Task::Sample> samples = task.samples();
  for (const bool space : {false, true}) {
    for (const bool newline : {false, true}) {
      space_in_question_ = space;
      newline_in_question_ = newline;
      if (std::ranges::all_of(samples, [&](const Task::Sample& sample) {
            return is_right(context(sample.line), sample.asked);
          })) {
        return;
      }
    }
  }
  throw UnsupportedError(fmt::format(
      "generator {}: this tokenizer joins tokens across context, question and answer wherever they "
      "are cut",
      name));
}

std::string QuestionCut::context(const std::string& body) const {
  return body + (newline_in_question_ ? tail_.substr(0, tail_.size() - 1) : tail_);
}

std::string QuestionCut::question(const std::string& text) const {
  return (newline_in_question_ ? "\n" : "") + text + (space_in_question_ ? " " : "");
}

std::string QuestionCut::answer(const std::string& text) const {
  return text.substr(space_in_question_ ? 1 : 0);
}

std::vector<int32_t> QuestionCut::encode(const std::string& text) const {
  return tokenizer_.encode(text, false);
}

bool QuestionCut::is_right(const std::string& context, const AskedText& asked) const {
  const std::string question_text = question(asked.question), answer_text = answer(asked.answer);
  std::vector<int32_t> parts = encode(context);
  for (const std::string& text : {question_text, answer_text}) {
    const std::vector<int32_t> ids = encode(text);
    parts.insert(parts.end(), ids.begin(), ids.end());
  }
  return parts == encode(context + question_text + answer_text);
}

}  // namespace kv
