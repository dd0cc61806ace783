#pragma once

#include <span>
#include <string>
#include <string_view>

namespace kv {

/// One turn of a conversation. Roles as the templates know them: system, user, assistant.
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

  /// The renderer's name: "chatml-smollm2", "chatml-qwen2.5", "chatml".
  std::string_view name() const;

  /// SHA-256 of the Jinja text in hexadecimal, for provenance.
  const std::string& sha256() const { return sha256_; }

  /// The whole conversation as text; with `add_generation_prompt` it ends where the assistant's
  /// answer begins. Encode it with add_special = false. Throws ValueError for an empty
  /// conversation and for a role that the template does not handle.
  std::string render(std::span<const Message> messages, bool add_generation_prompt) const;

  struct Renderer;

 private:
  ChatTemplate(const Renderer* renderer, std::string sha256);
  const Renderer* renderer_;
  std::string sha256_;
};

}  // namespace kv
