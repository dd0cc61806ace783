#include "evaluate/prompts.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <span>
#include <unordered_set>

#include "evaluate/answers.h"
#include "evaluate/scorers.h"
#include "kvscale/error.h"
#include "text/chat_template.h"
#include "text/edit_distance.h"
#include "text/tokenizer.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 12> kKeys = {
    "id",  "cluster", "language", "prompt", "messages", "tools",
    "ids", "answer",  "answers",  "check",  "tag",      "command"};
constexpr std::array<std::string_view, 6> kMessageKeys = {
    "role", "content", "name", "tool_calls", "tool_call_id", "reasoning_content"};
// Deeper than any prompt needs; comparing and printing JSON takes a stack as deep.
constexpr int kDeepest = 100;

/// "; did you mean "x"?" for a word that is at most two edits from a known one.
std::string suggestion(std::string_view word, std::span<const std::string_view> known) {
  const std::string_view best = nearest_word(word, known);
  return best.empty() ? "" : fmt::format("; did you mean \"{}\"?", best);
}

bool is_blank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

std::string shortened(const Json& value) {
  std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

/// One line of the file: what its messages begin with.
class PromptLine {
 public:
  PromptLine(const std::string& file, size_t number)
      : where_(fmt::format("{}: line {}", file, number)), number_(number) {}

  [[noreturn]] void fail(std::string_view what) const {
    throw FormatError(fmt::format("{}: {}", where_, what));
  }
  [[noreturn]] void refuse(std::string_view field, std::string_view expected,
                           const Json& found) const {
    fail(fmt::format("\"{}\": expected {}, found {}", field, expected, shortened(found)));
  }
  /// The same for errors that other rooms throw without knowing the line.
  template <class Work>
  auto in_field(std::string_view field, Work work) const {
    try {
      return work();
    } catch (const Error& error) {
      throw ValueError(fmt::format("{}: \"{}\": {}", where_, field, error.what()));
    }
  }
  std::string_view text_of(std::string_view field, const Json& value) const {
    if (!value.is_string()) refuse(field, "a string", value);
    return value.get_ref<const std::string&>();
  }
  template <class Keys>
  void refuse_unknown_keys(const Json& object, const Keys& known, std::string_view prefix) const {
    for (const auto& [key, value] : object.items()) {
      if (std::find(known.begin(), known.end(), key) != known.end()) continue;
      fail(fmt::format("\"{}{}\": unknown key{}", prefix, key, suggestion(key, known)));
    }
  }
  size_t number() const { return number_; }

 private:
  std::string where_;
  size_t number_;
};

/// The line's object. Doubled keys are refused: one of the two values would be lost.
Json parse_object(std::string_view text, const PromptLine& line) {
  std::set<std::string> keys;
  const auto watch = [&](int depth, Json::parse_event_t event, Json& value) {
    if (depth > kDeepest) line.fail(fmt::format("nested deeper than {}", kDeepest));
    if (event == Json::parse_event_t::key && depth == 1 && !keys.insert(value).second) {
      line.fail(fmt::format("key {} occurs twice", shortened(value)));
    }
    return true;
  };
  Json object;
  try {
    object = Json::parse(text, watch);
  } catch (const Json::exception& error) {
    line.fail(fmt::format("not JSON: {}", error.what()));
  }
  if (!object.is_object())
    line.fail(fmt::format("expected an object, found {}", shortened(object)));
  line.refuse_unknown_keys(object, kKeys, "");
  return object;
}

std::string id_of(const Json& object, const PromptLine& line) {
  const auto found = object.find("id");
  if (found == object.end()) return fmt::format("line-{}", line.number());
  if (found->is_number_integer()) return found->dump();
  if (!found->is_string() || found->get_ref<const std::string&>().empty()) {
    line.refuse("id", "a string or an integer", *found);
  }
  return *found;
}

/// Raw text: with the BOS that the tokenizer puts before texts, without an EOS, which would end
/// what is to be continued.
std::vector<int32_t> encode_raw(std::string_view text, const Tokenizer& tokenizer) {
  const auto prefix = tokenizer.prefix_ids();
  std::vector<int32_t> out(prefix.begin(), prefix.end());
  const std::vector<int32_t> ids = tokenizer.encode(text, false);
  out.insert(out.end(), ids.begin(), ids.end());
  return out;
}

/// One message: a role, and a content or calls of tools.
void check_message(const Json& message, const std::string& field, const PromptLine& line) {
  if (!message.is_object()) line.refuse(field, "an object with role and content", message);
  line.refuse_unknown_keys(message, kMessageKeys, field + ".");
  const bool has_calls = message.contains("tool_calls");
  if (!message.contains("role") || !(message.contains("content") || has_calls)) {
    line.refuse(field, "role and content", message);
  }
  for (const char* key : {"role", "content", "name", "tool_call_id", "reasoning_content"}) {
    if (message.contains(key)) line.text_of(fmt::format("{}.{}", field, key), message[key]);
  }
  if (has_calls && !message["tool_calls"].is_array()) {
    line.refuse(field + ".tool_calls", "a list", message["tool_calls"]);
  }
}

std::vector<int32_t> encode_messages(const Json& object, std::string_view text,
                                     const PromptEncoder& encoder, bool has_answer,
                                     const PromptLine& line) {
  if (encoder.chat_template == nullptr) {
    line.fail(encoder.chat_template_refusal.empty()
                  ? "\"messages\": this model has no chat template; use \"prompt\" or \"ids\""
                  : fmt::format("\"messages\": {}; use \"prompt\" or \"ids\"",
                                encoder.chat_template_refusal));
  }
  const Json& messages = object["messages"];
  if (!messages.is_array() || messages.empty())
    line.refuse("messages", "a list of messages", messages);
  for (size_t i = 0; i < messages.size(); ++i) {
    check_message(messages[i], fmt::format("messages[{}]", i), line);
  }
  const bool is_answered = messages.back()["role"] == "assistant";
  if (is_answered && has_answer) {
    line.fail("\"messages\": the last one is the assistant's: nothing is left to answer");
  }
  // Templates print objects of tools in the order in which the file has their members.
  const auto ordered = nlohmann::ordered_json::parse(text);
  const auto tools = object.contains("tools") ? ordered["tools"] : nlohmann::ordered_json();
  return line.in_field("messages", [&] {
    return encoder.tokenizer->encode(
        encoder.chat_template->render(ordered["messages"], tools, !is_answered), false);
  });
}

std::vector<int32_t> ids_of(const Json& value, const Tokenizer& tokenizer, const PromptLine& line) {
  if (!value.is_array()) line.refuse("ids", "a list of token ids", value);
  std::vector<int32_t> out;
  for (const Json& item : value) {
    // Compared as 64 bits: 2^32 + 1 must not pass for 1.
    const bool is_inside = item.is_number_integer() && item >= 0 && item < tokenizer.vocab_size();
    if (!is_inside) {
      line.refuse(fmt::format("ids[{}]", out.size()),
                  fmt::format("an integer in [0, {})", tokenizer.vocab_size()), item);
    }
    out.push_back(item.get<int32_t>());
  }
  return out;
}

std::vector<int32_t> tokens_of(const Json& object, std::string_view text,
                               const PromptEncoder& encoder, const PromptLine& line) {
  constexpr std::array<const char*, 3> kSources = {"prompt", "messages", "ids"};
  std::string_view source;
  for (const char* key : kSources) {
    if (!object.contains(key)) continue;
    if (!source.empty()) line.fail(fmt::format("\"{}\" and \"{}\": expected one", source, key));
    source = key;
  }
  if (source.empty()) line.fail("expected one of \"prompt\", \"messages\", \"ids\", found none");
  if (object.contains("tools")) {
    if (source != "messages") line.fail("\"tools\": expected \"messages\" beside them");
    if (!object["tools"].is_array()) line.refuse("tools", "a list", object["tools"]);
  }
  const Json& value = object[std::string(source)];
  const bool has_answer =
      object.contains("answer") || object.contains("answers") || object.contains("command");
  std::vector<int32_t> tokens;
  if (source == "prompt") {
    tokens = encode_raw(line.text_of("prompt", value), *encoder.tokenizer);
  } else if (source == "messages") {
    tokens = encode_messages(object, text, encoder, has_answer, line);
  } else {
    tokens = ids_of(value, *encoder.tokenizer, line);
  }
  if (tokens.empty()) line.refuse(source, "at least one token", value);
  return tokens;
}

Check check_of(const Json& object, bool has_answer, const PromptLine& line) {
  constexpr std::array<std::string_view, 8> kUsable = {
      "exact", "contains", "regex", "number", "json_equal", "share", "similarity", "command"};
  const auto found = object.find("check");
  if (found == object.end()) return Check::kContains;
  const std::string_view text = line.text_of("check", *found);
  if (std::find(kUsable.begin(), kUsable.end(), text) == kUsable.end()) {
    line.fail(fmt::format(
        "\"check\": expected exact, contains, regex, number, json_equal, share, similarity or "
        "command, found \"{}\"{}",
        text, suggestion(text, kUsable)));
  }
  if (text == "command" && has_answer) {
    line.fail("\"check\": command: expected no \"answer\" beside the \"command\"");
  }
  if (!has_answer && text != "command")
    line.fail("\"check\": expected an \"answer\" to check against, found none");
  return *check_from_name(text);
}

std::string answer_of(const Json& value, Check check, std::string_view field,
                      const PromptLine& line) {
  std::string answer;
  if (value.is_string()) {
    answer = value;
  } else if (check == Check::kJsonEqual || (check == Check::kNumber && value.is_number())) {
    answer = value.dump(-1, ' ', false, Json::error_handler_t::replace);
  } else {
    line.refuse(field, check == Check::kNumber ? "a string or a number" : "a string", value);
  }
  line.in_field(field, [&] { check_answer(check, answer); });
  return answer;
}

void set_tag(const Json& object, Prompt& prompt, const PromptLine& line) {
  const auto tag = object.find("tag");
  if (tag == object.end()) return;
  if (prompt.check != Check::kSimilarity) line.fail("\"tag\": expected check similarity beside it");
  prompt.tag = line.text_of("tag", *tag);
  if (prompt.tag.empty() || answers::trimmed(prompt.tag) != prompt.tag) {
    line.refuse("tag", "a word without blanks at its ends", *tag);
  }
}

/// Whether the prompt is judged by a command. Both keys must be there: nothing is executed for a
/// prompt that does not say so twice.
bool set_command(const Json& object, Prompt& prompt, const PromptLine& line) {
  const auto command = object.find("command");
  const bool is_there = command != object.end();
  if (is_there != (prompt.check == Check::kCommand)) {
    line.fail(is_there ? "\"command\": expected check command beside it"
                       : "\"check\": command: expected a \"command\", found none");
  }
  if (!is_there) return false;
  const std::string text(line.text_of("command", *command));
  if (is_blank(text) || text.find('\0') != std::string::npos) {
    line.refuse("command", "a line for /bin/sh", *command);
  }
  prompt.accepted_answers = {text};
  return true;
}

void set_answers(const Json& object, Prompt& prompt, const PromptLine& line) {
  const auto one = object.find("answer"), several = object.find("answers");
  const bool has_one = one != object.end(), has_several = several != object.end();
  if (has_one && has_several) line.fail("\"answer\" and \"answers\": expected one of them");
  prompt.check = check_of(object, has_one || has_several, line);
  set_tag(object, prompt, line);
  if (set_command(object, prompt, line)) return;
  if (has_one) prompt.accepted_answers = {answer_of(*one, prompt.check, "answer", line)};
  if (!has_several) return;
  if (!several->is_array() || several->empty()) {
    line.refuse("answers", "a list of answers", *several);
  }
  for (const Json& value : *several) {
    const std::string field = fmt::format("answers[{}]", prompt.accepted_answers.size());
    prompt.accepted_answers.push_back(answer_of(value, prompt.check, field, line));
  }
}

std::string read_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::error_code ignored;
  if (!file || std::filesystem::is_directory(path, ignored)) {
    throw IoError(fmt::format("{}: cannot open", path.string()));
  }
  std::string content{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) throw IoError(fmt::format("{}: cannot read", path.string()));
  return content;
}

}  // namespace

std::vector<Prompt> parse_prompts(std::string_view json_lines, const std::string& file_name,
                                  const PromptEncoder& encoder) {
  std::vector<Prompt> out;
  std::unordered_set<std::string> ids;
  for (size_t number = 1; !json_lines.empty(); ++number) {
    const size_t end = std::min(json_lines.find('\n'), json_lines.size());
    const std::string_view text = json_lines.substr(0, end);
    json_lines.remove_prefix(std::min(end + 1, json_lines.size()));
    if (is_blank(text)) continue;
    const PromptLine line(file_name, number);
    const Json object = parse_object(text, line);
    Prompt prompt;
    prompt.id = id_of(object, line);
    if (!ids.insert(prompt.id).second) {
      line.fail(fmt::format("\"id\": \"{}\" occurs twice", prompt.id));
    }
    if (object.contains("cluster")) {
      prompt.cluster = line.text_of("cluster", object["cluster"]);
      if (prompt.cluster.empty()) line.refuse("cluster", "a name", object["cluster"]);
    }
    if (object.contains("language")) {
      prompt.language = line.text_of("language", object["language"]);
      if (prompt.language.empty()) line.refuse("language", "a tag", object["language"]);
    }
    prompt.tokens = tokens_of(object, text, encoder, line);
    set_answers(object, prompt, line);
    out.push_back(std::move(prompt));
  }
  if (out.empty()) throw FormatError(fmt::format("{}: expected prompts, found none", file_name));
  return out;
}

std::vector<Prompt> read_prompts(const std::filesystem::path& path, const PromptEncoder& encoder) {
  const std::string content = read_file(path);
  if (path.extension() != ".txt") return parse_prompts(content, path.string(), encoder);
  Prompt prompt;
  prompt.id = path.stem().string();
  prompt.tokens = encode_raw(content, *encoder.tokenizer);
  if (content.empty()) {
    throw FormatError(fmt::format("{}: expected text, found an empty file", path.string()));
  }
  return {std::move(prompt)};
}

}  // namespace kv
