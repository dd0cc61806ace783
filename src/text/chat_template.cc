#include "text/chat_template.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "kvscale/error.h"
#include "text/jinja_json.h"
#include "text/jinja_parser.h"
#include "text/jinja_render.h"
#include "text/sha256.h"

namespace kv {

using Json = nlohmann::ordered_json;

struct ChatTemplate::Parsed {
  std::string sha256;
  SpecialTokens special_tokens;
  jinja::Body body;
};

namespace {

/// The messages as the template sees them: without members that are null.
std::vector<jinja::Value> messages_of(jinja::Runtime& runtime, const Json& messages) {
  if (!messages.is_array() || messages.empty()) {
    throw ValueError("chat template: messages: expected at least one");
  }
  std::vector<jinja::Value> out;
  for (const Json& message : messages) {
    if (!message.is_object()) {
      throw ValueError(fmt::format("chat template: messages[{}]: expected an object, found {}",
                                   out.size(), message.type_name()));
    }
    jinja::Members members;
    for (const auto& [key, value] : message.items()) {
      if (!value.is_null()) members.emplace_back(key, jinja::from_json(runtime, value));
    }
    out.push_back(jinja::make_dict(runtime, std::move(members)));
  }
  return out;
}

/// A message whose content nobody looked at is not in the text: another role than the template
/// knows, for example. Calls of tools may stand in for a content.
void expect_all_read(const std::vector<jinja::Value>& messages) {
  for (size_t i = 0; i < messages.size(); ++i) {
    const jinja::Dict& message = *messages[i].dict();
    if (message.content_is_read) continue;
    const jinja::Value *role = nullptr, *content = nullptr;
    for (const auto& [key, value] : message.members) {
      if (*key.string() == "role") role = &value;
      if (*key.string() == "content") content = &value;
      if (*key.string() == "tool_calls") content = nullptr;
    }
    if (content == nullptr || !jinja::is_true(*content)) continue;
    throw ValueError(fmt::format(
        "chat template: messages[{}]: the template leaves out the content of role \"{}\"", i,
        role && role->string() ? *role->string() : ""));
  }
}

}  // namespace

ChatTemplate::ChatTemplate(std::shared_ptr<const Parsed> parsed) : parsed_(std::move(parsed)) {}

ChatTemplate ChatTemplate::parse(std::string_view jinja, SpecialTokens special_tokens) {
  auto parsed = std::make_shared<Parsed>();
  parsed->sha256 = sha256_hex(jinja);
  parsed->special_tokens = std::move(special_tokens);
  parsed->body = jinja::parse_template(jinja);
  return ChatTemplate(std::move(parsed));
}

const std::string& ChatTemplate::sha256() const { return parsed_->sha256; }

std::string ChatTemplate::render(const Json& messages, const Json& tools,
                                 bool add_generation_prompt) const {
  jinja::Runtime runtime{jinja::Limits{}};
  const std::vector<jinja::Value> values = messages_of(runtime, messages);
  jinja::Variables variables;
  for (const auto& [name, content] : parsed_->special_tokens) variables.emplace_back(name, content);
  variables.emplace_back("messages", jinja::make_list(runtime, values));
  variables.emplace_back("tools", jinja::from_json(runtime, tools));
  variables.emplace_back("documents", jinja::Value());
  variables.emplace_back("add_generation_prompt", add_generation_prompt);
  std::string out = jinja::Renderer(runtime, std::move(variables)).run(parsed_->body);
  expect_all_read(values);
  return out;
}

}  // namespace kv
