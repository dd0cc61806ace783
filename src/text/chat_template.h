#pragma once

#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// The tokens that a chat template can name: bos_token, eos_token, ... -> how the file spells them.
using SpecialTokens = std::map<std::string, std::string>;

/// Renders a conversation to the text that a model was trained on, as `transformers` does it: the
/// template is a Jinja program with trim_blocks and lstrip_blocks, break and continue, and the
/// globals raise_exception, strftime_now, namespace, dict and range. docs/formats/chat-template.md
/// says what is served.
///
/// Cheap to copy; all const methods may be called from several threads at once.
class ChatTemplate {
 public:
  /// `jinja` as GGUF `tokenizer.chat_template`, tokenizer_config.json or chat_template.jinja have
  /// it. Throws FormatError for what is no Jinja and UnsupportedError for a statement, filter or
  /// test that is not served, each with the line.
  static ChatTemplate parse(std::string_view jinja, SpecialTokens special_tokens = {});

  /// SHA-256 of the Jinja text in hexadecimal, for provenance.
  const std::string& sha256() const;

  /// The whole conversation as text; with `add_generation_prompt` it ends where the assistant's
  /// answer begins. Encode it with add_special = false: it spells its own BOS.
  ///
  /// messages  a list of objects; role and content as a rule, what else the template reads.
  ///           Members that are null are left out.
  /// tools     a list of JSON schemas of functions, or null
  ///
  /// Throws ValueError with the line when the template refuses the conversation, fails, or takes
  /// more than its limits (5 million steps, 32 MiB of text); and when it never looks at the content
  /// of a message, which would be left out without a word.
  std::string render(const nlohmann::ordered_json& messages, const nlohmann::ordered_json& tools,
                     bool add_generation_prompt) const;

 private:
  struct Parsed;
  explicit ChatTemplate(std::shared_ptr<const Parsed> parsed);
  std::shared_ptr<const Parsed> parsed_;
};

}  // namespace kv
