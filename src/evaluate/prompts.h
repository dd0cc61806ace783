#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/example.h"

namespace kv {

class ChatTemplate;
class Tokenizer;

/// What turns a prompt into tokens. `chat_template` may be null: then `messages` are refused, with
/// the reason why the model's template cannot be used, if it has one.
struct PromptEncoder {
  const Tokenizer* tokenizer = nullptr;
  const ChatTemplate* chat_template = nullptr;
  std::string chat_template_refusal;
};

/// Reads the user's prompts: `path` ending in .txt is one raw prompt (id = the file's stem),
/// anything else JSON Lines, one object a line:
///
///   id        string or integer; "line-N" when absent; unique in the file
///   cluster   what the prompt was made from (a document, a conversation), for prompts that are not
///             independent of one another: they stay in one block and count as one document
///   language  of the text, as any tag ("en", "zh-Hant"): calibration must have the shares of the
///             languages that are evaluated
///   prompt    raw text, or
///   messages  [{"role", "content"}, ...] through the chat template; also "name", "tool_calls"
///   (then
///             without "content", too), "tool_call_id" and "reasoning_content", or
///   ids       token ids, taken as they are
///   tools     with messages: JSON schemas of functions, for the template to list
///   answer    one accepted answer, or
///   answers   several
///   check     exact | contains | regex | number | json_equal | share | similarity | command;
///             contains when absent
///   tag       with similarity: what an answer must begin with, or it is worth 0
///   command   with check command, in the place of an answer: a test of the user's own, a line for
///             /bin/sh that gets the generated text on its standard input and exits with 0 when it
///             is right. To judge such a file is to execute its commands.
///
/// Answers are strings; for `number` also JSON numbers, for `json_equal` any JSON value (a string
/// is then a JSON text). Throws IoError, FormatError and ValueError naming file, line, field,
/// expected and found: unknown or doubled keys, answers that their check cannot use, ids outside
/// the vocabulary, prompts without tokens, a file without prompts.
std::vector<Prompt> read_prompts(const std::filesystem::path& path, const PromptEncoder& encoder);

/// The same from JSON Lines in memory; `file_name` is used in messages.
std::vector<Prompt> parse_prompts(std::string_view json_lines, const std::string& file_name,
                                  const PromptEncoder& encoder);

}  // namespace kv
