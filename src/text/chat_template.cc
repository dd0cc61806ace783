#include "text/chat_template.h"

#include <fmt/format.h>

#include <optional>

#include "kvscale/error.h"
#include "text/sha256.h"

namespace kv {
namespace {

constexpr char kHole = '\x01';

/// A template text that is known, with its own system prompt replaced by kHole.
struct KnownTemplate {
  std::string_view sha256;
  ChatTemplate::Family family;
};

// The text decides, to the byte: a template that differs in one sign may render otherwise. "\n" is
// spelled in two ways inside Jinja strings, as a line break and as an escape.
constexpr KnownTemplate kKnown[] = {
    // One loop over the messages, nothing else.
    {"153280e3ff55d19da1398bdb3914ee2a51b80429bfaedde11d7d216c39db80f3",
     ChatTemplate::Family::kPlain},
    {"fcf7a096fe99a48fd9ad2b250bf9237e96e8f48bffec1c7ea4d3f225176cd40e",
     ChatTemplate::Family::kPlain},
    // The same with a system prompt before a first message of another role: SmolLM2, Qwen2.
    {"bbd75fcaffbc7d4258be2c67bdc6da74e3c30b2ee81698d05b853b5103305b6b",
     ChatTemplate::Family::kFirst},
    {"6403337647b644d5448b046b3ac331227f2494ea627a695e2ed8441598107f0d",
     ChatTemplate::Family::kFirst},
    // Qwen2.5, which also renders tools.
    {"4995b0d9d71de4c517ae7473a4deab24c653066a97234fe7afe36564bd14ce7d",
     ChatTemplate::Family::kTools},
};

struct KnownPrompt {
  ChatTemplate::Family family;
  std::string_view prompt, name;
};

constexpr KnownPrompt kPrompts[] = {
    {ChatTemplate::Family::kFirst,
     "You are a helpful AI assistant named SmolLM, trained by Hugging Face", "chatml-smollm2"},
    {ChatTemplate::Family::kFirst, "You are a helpful assistant.", "chatml-qwen2"},
    {ChatTemplate::Family::kTools,
     "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "chatml-qwen2.5"},
};

/// The system prompt that a template spells out in one string, between the signs that open and
/// close a system turn.
std::optional<std::string_view> own_prompt(std::string_view jinja) {
  for (const std::string_view open : {"<|im_start|>system\n", "<|im_start|>system\\n"}) {
    for (size_t at = jinja.find(open); at != std::string_view::npos;
         at = jinja.find(open, at + 1)) {
      const size_t begin = at + open.size();
      const size_t end = jinja.find("<|im_end|>", begin);
      if (end == std::string_view::npos || end == begin) continue;
      const std::string_view prompt = jinja.substr(begin, end - begin);
      // A quote ends the string, a backslash begins an escape: no text to take as it stands.
      if (prompt.find_first_of("'\"\\") == std::string_view::npos) return prompt;
    }
  }
  return std::nullopt;
}

std::string with_hole(std::string_view jinja, std::string_view prompt) {
  std::string out;
  for (size_t at = 0; at < jinja.size();) {
    if (jinja.substr(at).starts_with(prompt)) {
      out += kHole;
      at += prompt.size();
    } else {
      out += jinja[at++];
    }
  }
  return out;
}

std::string name_of(ChatTemplate::Family family, std::string_view prompt) {
  for (const KnownPrompt& known : kPrompts) {
    if (known.family == family && known.prompt == prompt) return std::string(known.name);
  }
  switch (family) {
    case ChatTemplate::Family::kPlain:
      return "chatml";
    case ChatTemplate::Family::kFirst:
      return "chatml-first";
    default:
      return "chatml-tools";
  }
}

void append_turn(std::string& out, std::string_view role, std::string_view content) {
  out.append("<|im_start|>").append(role).append("\n").append(content).append("<|im_end|>\n");
}

}  // namespace

ChatTemplate ChatTemplate::recognise(std::string_view jinja) {
  ChatTemplate result;
  result.sha256_ = sha256_hex(jinja);
  // Jinja drops one line break at the end of a template.
  std::string_view text = jinja;
  if (text.ends_with('\n')) text.remove_suffix(1);
  const std::optional<std::string_view> prompt = own_prompt(text);
  const std::string skeleton = sha256_hex(prompt ? with_hole(text, *prompt) : text);
  for (const KnownTemplate& known : kKnown) {
    if (known.sha256 != skeleton) continue;
    result.family_ = known.family;
    result.default_system_ = prompt.value_or("");
    result.name_ = name_of(result.family_, result.default_system_);
    return result;
  }
  throw UnsupportedError(fmt::format(
      "chat template with SHA-256 {} is not served (it begins \"{}\"); supported: ChatML as "
      "SmolLM2, Qwen2 and Qwen2.5 have it",
      result.sha256_, jinja.substr(0, 60)));
}

void ChatTemplate::check_role(const Message& message) const {
  if (family_ != Family::kTools) return;  // any role is rendered
  for (const std::string_view role : {"system", "user", "assistant", "tool"}) {
    if (message.role == role) return;
  }
  throw ValueError(
      fmt::format("chat template {}: role: expected system, user, assistant or tool, found \"{}\" "
                  "(the template "
                  "would drop the message)",
                  name_, message.role));
}

/// Neighbouring answers of tools share one turn of the user.
void ChatTemplate::append_tool_answers(std::string& out, std::span<const Message> messages,
                                       size_t i) const {
  if (i == 0 || messages[i - 1].role != "tool") out += "<|im_start|>user";
  out.append("\n<tool_response>\n").append(messages[i].content).append("\n</tool_response>");
  if (i + 1 == messages.size() || messages[i + 1].role != "tool") out += "<|im_end|>\n";
}

std::string ChatTemplate::render(std::span<const Message> messages,
                                 bool add_generation_prompt) const {
  if (messages.empty()) {
    throw ValueError(fmt::format("chat template {}: messages: expected at least one", name_));
  }
  std::string out;
  if (family_ != Family::kPlain && messages[0].role != "system") {
    append_turn(out, "system", default_system_);
  }
  for (size_t i = 0; i < messages.size(); ++i) {
    check_role(messages[i]);
    if (family_ == Family::kTools && messages[i].role == "tool") {
      append_tool_answers(out, messages, i);
    } else {
      append_turn(out, messages[i].role, messages[i].content);
    }
  }
  if (add_generation_prompt) out += "<|im_start|>assistant\n";
  return out;
}

}  // namespace kv
