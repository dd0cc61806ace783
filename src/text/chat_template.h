#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kv {

/// One turn of a conversation. Roles as the templates know them: system, user, assistant, tool.
struct Message {
  std::string role;
  std::string content;
};

/// Renders a conversation to the text that a model was trained on. Templates in files are Jinja
/// programs; kvscale runs none, it recognises the ones it has a renderer for.
class ChatTemplate {
 public:
  /// Chooses the renderer that gives what this Jinja text gives (from GGUF
  /// `tokenizer.chat_template`, tokenizer_config.json or chat_template.jinja). Throws
  /// UnsupportedError with the text's SHA-256 and beginning when none does.
  static ChatTemplate recognise(std::string_view jinja);

  /// The renderer's name: "chatml" (no system prompt of its own), "chatml-smollm2", "chatml-qwen2",
  /// "chatml-qwen2.5", or "chatml-first" / "chatml-tools" for such a template with another prompt.
  const std::string& name() const { return name_; }

  /// What the template puts in as system prompt when the conversation does not begin with one;
  /// empty for "chatml".
  const std::string& default_system() const { return default_system_; }

  /// SHA-256 of the Jinja text in hexadecimal, for provenance.
  const std::string& sha256() const { return sha256_; }

  /// The whole conversation as text; with `add_generation_prompt` it ends where the assistant's
  /// answer begins. Encode it with add_special = false. Throws ValueError for an empty conversation
  /// and for a role that the template would drop without a word.
  std::string render(std::span<const Message> messages, bool add_generation_prompt) const;

  /// How a family of templates treats system prompts and roles.
  enum class Family { kPlain, kFirst, kTools };

 private:
  ChatTemplate() = default;
  void check_role(const Message& message) const;
  void append_tool_answers(std::string& out, std::span<const Message> messages, size_t i) const;

  Family family_ = Family::kPlain;
  std::string name_, default_system_, sha256_;
};

}  // namespace kv
