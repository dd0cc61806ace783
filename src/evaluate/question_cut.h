#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluate/task.h"

namespace kv {

class Tokenizer;

/// Cuts a text into the context that a document's questions share, a question and its answer, so
/// that the tokens of the three are those of the whole: a context is then prefilled once.
class QuestionCut {
 public:
  /// Finds a cut that is right for the task's samples. It depends on how a tokenizer joins newlines
  /// and spaces with their neighbours. `name` is the task's. Throws UnsupportedError when none is.
  QuestionCut(const Tokenizer& tokenizer, const std::string& name, const Task& task);

  /// What stands before the questions of this task: "\nFrom the list above:\n".
  const std::string& tail() const { return tail_; }

  /// The three parts; a question's and an answer's text are those of AskedText.
  std::string context(const std::string& body) const;
  std::string question(const std::string& text) const;
  std::string answer(const std::string& text) const;

  /// Whether the parts of this context and question have the tokens of the whole.
  bool is_right(const std::string& context, const AskedText& asked) const;

  std::vector<int32_t> encode(const std::string& text) const;

 private:
  const Tokenizer& tokenizer_;
  std::string tail_;
  bool newline_in_question_ = false, space_in_question_ = false;
};

}  // namespace kv
