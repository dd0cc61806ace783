// Renderings of jinja2 in transformers' settings, recorded by chat_golden.py.
#include "text/chat_template.h"

#include <gtest/gtest.h>

#include <fstream>

#include "kvscale/error.h"
#include "tests/text/golden.h"

namespace kv {
namespace {

using Json = nlohmann::ordered_json;

Json load_ordered(const std::string& name) { return Json::parse(read_golden(name)); }

std::string read_template(const std::string& name) {
  std::ifstream in(std::string(KV_SOURCE_DIR) + "/tests/text/templates/" + name + ".jinja");
  return {std::istreambuf_iterator<char>(in), {}};
}

Json user(const std::string& text) { return Json::array({{{"role", "user"}, {"content", text}}}); }

std::string error_of(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

std::string render(const std::string& jinja, const Json& messages = user("Hi")) {
  return ChatTemplate::parse(jinja).render(messages, nullptr, true);
}

std::string error_in(const std::string& jinja) {
  return error_of([&] { render("{{ messages[0].content }}" + jinja); });
}

/// A rendering that the peer gives, or an error where it gives one. Contents that the template
/// never looks at are refused here, where the peer leaves them out.
void expect_same(const Json& expected, const ChatTemplate& chat, const Json& messages,
                 const Json& tools, bool prompt, const std::string& what) {
  try {
    const std::string text = chat.render(messages, tools, prompt);
    ASSERT_TRUE(expected.contains("text")) << what << ": expected an error, found " << text;
    EXPECT_EQ(text, expected["text"].get<std::string>()) << what;
  } catch (const Error& error) {
    const bool is_dropped = std::string(error.what()).find("leaves out") != std::string::npos;
    EXPECT_TRUE(expected.contains("error") || is_dropped) << what << ": " << error.what();
  }
}

TEST(ChatTemplate, FamiliesRenderAsJinja2Does) {
  const Json golden = load_ordered("jinja.json");
  SpecialTokens tokens;
  for (const auto& [name, text] : golden["tokens"].items()) tokens[name] = text;
  int families = 0;
  for (const auto& [name, renderings] : golden["templates"].items()) {
    const ChatTemplate chat = ChatTemplate::parse(read_template(name), tokens);
    size_t i = 0;
    for (const Json& conversation : golden["conversations"]) {
      for (const bool prompt : {false, true}) {
        expect_same(renderings.at(i), chat, conversation["messages"], conversation["tools"], prompt,
                    name + " " + std::to_string(i));
        ++i;
      }
    }
    ++families;
  }
  EXPECT_GE(families, 10);
}

TEST(ChatTemplate, ThePiecesOfTheLanguageAreJinja2s) {
  const Json golden = load_ordered("jinja.json");
  Json messages = user("Hi");
  messages[0]["x"] = golden["x"];
  const std::string prefix = golden["prefix"].get<std::string>();
  SpecialTokens tokens;
  for (const auto& [name, text] : golden["tokens"].items()) tokens[name] = text;
  for (const Json& piece : golden["pieces"]) {
    const std::string jinja = prefix + piece["template"].get<std::string>();
    try {
      const ChatTemplate chat = ChatTemplate::parse(jinja, tokens);
      expect_same(piece, chat, messages, nullptr, true, jinja);
    } catch (const Error& error) {
      EXPECT_TRUE(piece.contains("error")) << jinja << ": " << error.what();
    }
  }
  EXPECT_GE(golden["pieces"].size(), 100u);
}

// What transformers recorded for the templates of real GGUF files, and variants of them.
TEST(ChatTemplate, RealTemplatesRenderAsBefore) {
  const Json golden = load_ordered("chat.json");
  for (const Json& entry : golden["templates"]) {
    const ChatTemplate chat = ChatTemplate::parse(entry["template"].get<std::string>());
    EXPECT_EQ(chat.sha256(), entry["sha256"].get<std::string>());
    for (size_t i = 0; i < golden["conversations"].size(); ++i) {
      for (const bool prompt : {false, true}) {
        EXPECT_EQ(chat.render(golden["conversations"][i], nullptr, prompt),
                  entry["rendered"][i][prompt ? 1 : 0].get<std::string>())
            << "conversation " << i;
      }
    }
  }
}

TEST(ChatTemplate, ErrorsGiveTheLine) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"\n\n{{ a b }}", "line 3: expected }}, found b"},
      {"\n{% include 'x' %}", "line 2: statement include is not served"},
      {"{{ 1|batch(2) }}", "line 1: filter batch is not served"},
      {"{{ 1 is escaped }}", "line 1: test escaped is not served"},
      {"{% for a in b recursive %}{% endfor %}", "line 1: recursive loops are not served"},
      {"\n{{ f(*a) }}", "line 2: arguments given as *list or **dict are not served"},
      {"{% nosuch %}", "line 1: unexpected statement nosuch"},
      {"\n{% if 1 %}\n", "line 2: expected endif before the end"},
      {"\n{{ 'a }}", "line 2: string without its end"},
      {"\n{# ", "line 2: comment without its end"},
      {"\n\n{{ x.y }}", "line 3: x is undefined"},
      {"{% set q = 1 %}\n{{ q + 'a' }}", "line 2: + between int and str"},
      {"\n{{ raise_exception('No tools!') }}",
       "line 2: the template refuses the conversation: No tools!"},
      {"{{ [].append(1) }}",
       "line 1: list.append is not allowed: templates change nothing but namespaces"},
      {"{{ 'a'.format(1) }}", "line 1: str.format is not served"},
      {"{{ '%d' % 1 }}", "line 1: formatting of strings with % is not served"},
      {"{{ 9223372036854775807 + 1 }}", "line 1: + is more than 64 bits hold"},
      {"{{ 9223372036854775808 }}", "line 1: 9223372036854775808: whole numbers have 63 bits"},
      {"{{ cycler(1) }}", "line 1: cycler is not served"},
      {"{{ tojson(1) }}", "line 1: tojson is undefined"},
      {"{{ 'a'|tojson(indent='x', deep=1) }}", "line 1: tojson: has no argument deep"},
  };
  for (const auto& [jinja, message] : cases) {
    EXPECT_EQ(error_in(jinja), "chat template: " + message) << jinja;
  }
}

TEST(ChatTemplate, WhatTheTemplateWouldLeaveOutIsRefused) {
  const ChatTemplate chat = ChatTemplate::parse(
      "{% for m in messages %}{% if m.role == 'user' %}{{ m.content }}{% endif %}{% endfor %}");
  Json messages = user("Hi");
  EXPECT_EQ(chat.render(messages, nullptr, true), "Hi");
  messages.push_back({{"role", "developer"}, {"content", "x"}});
  EXPECT_EQ(error_of([&] { chat.render(messages, nullptr, true); }),
            "chat template: messages[1]: the template leaves out the content of role "
            "\"developer\"");
  messages[1]["content"] = "";  // nothing is lost
  EXPECT_EQ(chat.render(messages, nullptr, true), "Hi");
  EXPECT_THROW(chat.render(Json::array(), nullptr, true), ValueError);
  EXPECT_THROW(chat.render(Json::array({1}), nullptr, true), ValueError);
}

TEST(ChatTemplate, TheDateIsAlwaysTheSame) {
  EXPECT_EQ(render("{{ messages[0].content }} {{ strftime_now('%d %b %Y') }}"), "Hi 26 Jul 2024");
}

// Each of these would hang, fill the memory or overflow the stack without its limit.
TEST(ChatTemplate, LimitsEndWhatHasNoEnd) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
       "gives up after 5000000 steps"},
      {"{% set ns = namespace(s='ab') %}{% for a in range(60) %}{% set ns.s = ns.s ~ ns.s %}"
       "{% endfor %}",
       "gives up: strings of more than 134217728 bytes built"},
      {"{{ 'x' * 1000000000000 }}", "gives up: strings of more than"},
      {"{% set s = 'x' * 1000000 %}{% for a in range(100) %}{{ s }}{% endfor %}",
       "gives up: more than 33554432 bytes of text"},
      {"{{ 'a' * 10000000 }}{{ ('a' * 10000000).replace('a', 'b' * 100) }}",
       "gives up: strings of more than"},
      {"{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}", "gives up: nested deeper than 300"},
      {"{% set ns = namespace(s=[]) %}{% for a in range(1000) %}{% set ns.s = [ns.s] %}"
       "{% endfor %}",
       "gives up: values nested deeper than 100"},
      {"{% set ns = namespace(f=0) %}{% for a in range(100000) %}{% set ns.f = [ns.f].index %}"
       "{% endfor %}",
       "gives up: values nested deeper than 100"},
      {"{{ [1] * 100000000 }}", "gives up after 5000000 steps"},
      {"{{ 2 ** 100000 }}", "** is more than 64 bits hold"},
      {"{{ " + std::string(1000, '(') + "1" + std::string(1000, ')') + " }}",
       "nested deeper than 150"},
      {"{{ 1" +
           [] {
             std::string sum;
             for (int i = 0; i < 1000; ++i) sum += "+1";
             return sum;
           }() +
           " }}",
       "expression nested deeper than 150"},
      {std::string(2 << 20, ' '), "longer than 1 MiB"},
  };
  for (const auto& [jinja, message] : cases) {
    const std::string error = error_in(jinja);
    EXPECT_NE(error.find(message), std::string::npos)
        << jinja.substr(0, 200) << ": " << error.substr(0, 200);
  }
}

TEST(ChatTemplate, RingsAndChainsOfValuesAreFreed) {
  // Rings through namespaces and macros, and chains as long as the steps allow; the address
  // sanitizer looks on.
  for (const char* jinja :
       {"{% set ns = namespace() %}{% set ns.a = ns %}{% set ns.b = namespace(up=ns) %}",
        "{% set ns = namespace(p=0) %}{% for a in range(30000) %}{% set n = namespace(p=ns.p) %}"
        "{% set ns.p = n %}{% endfor %}",
        "{% set ns = namespace(l=0) %}{% for a in range(30000) %}{% for b in [ns.l] %}"
        "{% set ns.l = loop %}{% endfor %}{% endfor %}",
        "{% set ns = namespace() %}{% for a in [[1], [2], [3]] %}{% set ns.l = loop %}{% endfor %}"
        "{% if ns.l.previtem is defined or ns.l.nextitem is defined %}{{ 1 / 0 }}{% endif %}",
        "{% set ns = namespace(f=0) %}{% for a in range(30000) %}{% set g = ns.f %}"
        "{% macro m() %}{{ g }}{% endmacro %}{% set ns.f = m %}{% endfor %}"}) {
    EXPECT_EQ(render("{{ messages[0].content }}" + std::string(jinja)), "Hi") << jinja;
  }
}

struct Renderings {
  int rendered = 0, refused = 0;
};

void try_render(const std::string& jinja, const Json& conversation, Renderings& outcome) {
  try {
    ChatTemplate::parse(jinja).render(conversation["messages"], conversation["tools"], true);
    ++outcome.rendered;
  } catch (const Error&) {
    ++outcome.refused;
  }
}

TEST(ChatTemplate, DamagedTemplatesRenderOrThrow) {
  const Json golden = load_ordered("jinja.json");
  std::vector<std::string> seeds;
  for (const auto& [name, renderings] : golden["templates"].items()) {
    seeds.push_back(read_template(name));
  }
  for (const Json& piece : golden["pieces"]) {
    seeds.push_back("{{ messages[0].content }}" + piece["template"].get<std::string>());
  }
  std::mt19937 rng(11);
  Renderings outcome;
  for (int i = 0; i < 6000; ++i) {
    std::string text = seeds[rng() % seeds.size()];
    for (int n = 1 + static_cast<int>(rng() % 4); n > 0 && !text.empty(); --n) {
      const size_t at = rng() % text.size();
      const std::string& other = seeds[rng() % seeds.size()];
      switch (rng() % 5) {
        case 0:
          text[at] = "{}%#()[]|.,:=+-*/~'\"\\ \nabc019"[rng() % 29];
          break;
        case 1:
          text.erase(at, 1 + rng() % 12);
          break;
        case 2:
          text.insert(at, other.substr(rng() % (other.size() + 1), rng() % 30));
          break;
        case 3:
          text.insert(at, text.substr(at, 1 + rng() % 40));
          break;
        default:
          text[at] = static_cast<char>(rng());
      }
    }
    const Json& conversations = golden["conversations"];
    try_render(text, conversations[rng() % 2 ? 0 : rng() % conversations.size()], outcome);
  }
  EXPECT_GT(outcome.rendered, 200);
  EXPECT_GT(outcome.refused, 300);
}

}  // namespace
}  // namespace kv
