#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "evaluate/facts.h"
#include "evaluate/generators.h"

namespace kv {

class Tokenizer;

/// Cuts a text into the context that a document's questions share, a question and its answer, so
/// that the tokens of the three are those of the whole: a context is then prefilled once.
class QuestionCut {
 public:
  /// Finds a cut that is right for sample facts of this task and form. It depends on how a
  /// tokenizer joins newlines and spaces with their neighbours. Throws UnsupportedError when none
  /// is.
  QuestionCut(const Tokenizer& tokenizer, const std::string& task, Form form);

  /// What stands before the questions of this task: "\nFrom the list above:\n".
  const std::string& tail() const { return tail_; }

  std::string context(const std::string& body) const;
  std::string question(const Fact& fact) const;
  std::string answer(const Fact& fact) const;

  /// Whether the parts of this context and fact have the tokens of the whole.
  bool is_right(const std::string& context, const Fact& fact) const;

  std::vector<int32_t> encode(const std::string& text) const;

 private:
  bool is_right_for_samples(const std::string& task, Form form) const;

  const Tokenizer& tokenizer_;
  std::string tail_;
  bool newline_in_question_ = false, space_in_question_ = false;
};

}  // namespace kv
