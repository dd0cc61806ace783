#pragma once

#include <string>

#include "evaluate/example.h"

namespace kv {

class Tokenizer;

/// A generated document's questions as JSON Lines, one object each:
///
///   id, task, params (block, look, half, answer_budget), seed
///   cluster             the document
///   bucket, target_len  its label; tokens with room for an answer
///   prompt_len          tokens of token_ids
///   token_ids           context and question
///   answers             what is accepted: texts, for induction a list of token ids
///   needle_positions    of what the answer rests on: {"token", "depth"}
///   scoring, chance     the check's name; the score of a guess. "tag": of a similarity
std::string example_lines(const Document& document, const std::string& block,
                          const Tokenizer& tokenizer);

}  // namespace kv
