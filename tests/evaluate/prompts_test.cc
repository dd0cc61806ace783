#include "evaluate/prompts.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kvscale/error.h"
#include "tests/evaluate/tokenizers.h"
#include "text/chat_template.h"

namespace kv {
namespace {

namespace fs = std::filesystem;

const Tokenizer& tokenizer() {
  static const Tokenizer loaded = tiny_tokenizer();
  return loaded;
}

const ChatTemplate& chat_template() {
  static const ChatTemplate loaded = ChatTemplate::parse(
      "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\\n' + "
      "message['content'] + '<|im_end|>' + '\\n'}}{% endfor %}{% if add_generation_prompt %}"
      "{{ '<|im_start|>assistant\\n' }}{% endif %}");
  return loaded;
}

PromptEncoder encoder() { return {&tokenizer(), &chat_template(), ""}; }

std::vector<Prompt> parse(const std::string& text) {
  return parse_prompts(text, "p.jsonl", encoder());
}

std::string message_of(const std::string& text, const PromptEncoder& with = encoder()) {
  try {
    parse_prompts(text, "p.jsonl", with);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(Prompts, EverySourceGivesItsTokens) {
  const auto prompts = parse(
      "{\"id\": \"a\", \"language\": \"en\", \"prompt\": \"Hello there\"}\n"
      "\n"
      "{\"id\": 7, \"ids\": [5, 0, 1023], \"answer\": \"x\"}\r\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}], \"answers\": [\"1\", \"2\"], "
      "\"check\": \"number\"}");
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].id, "a");
  EXPECT_EQ(prompts[0].tokens, tokenizer().encode("Hello there", false));
  EXPECT_FALSE(prompts[0].has_answer());
  EXPECT_EQ(prompts[0].language, "en");
  EXPECT_EQ(prompts[1].language, "");
  EXPECT_EQ(prompts[1].id, "7");
  EXPECT_EQ(prompts[1].tokens, (std::vector<int32_t>{5, 0, 1023}));
  EXPECT_EQ(prompts[1].accepted_answers, std::vector<std::string>{"x"});
  EXPECT_EQ(prompts[1].check, Check::kContains);
  EXPECT_EQ(prompts[2].id, "line-4");
  EXPECT_EQ(prompts[2].tokens,
            tokenizer().encode("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n", false));
  EXPECT_EQ(prompts[2].accepted_answers, (std::vector<std::string>{"1", "2"}));
  EXPECT_EQ(prompts[2].check, Check::kNumber);
}

TEST(Prompts, AConversationThatEndsWithItsAnswerIsTakenWhole) {
  const auto prompts = parse(
      R"({"messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Ho"}]})");
  EXPECT_EQ(prompts[0].tokens, tokenizer().encode("<|im_start|>user\nHi<|im_end|>\n"
                                                  "<|im_start|>assistant\nHo<|im_end|>\n",
                                                  false));
}

TEST(Prompts, AnswersMayBeJsonWhereTheCheckTakesIt) {
  const auto prompts = parse(
      "{\"prompt\": \"p\", \"answer\": 42, \"check\": \"number\"}\n"
      "{\"prompt\": \"p\", \"answer\": {\"b\": [1], \"a\": null}, \"check\": \"json_equal\"}\n"
      "{\"prompt\": \"p\", \"answer\": \"[1, 2]\", \"check\": \"json_equal\"}\n"
      "{\"prompt\": \"p\", \"answers\": [\"a+\", \"b\"], \"check\": \"regex\"}\n"
      "{\"prompt\": \"p\", \"answer\": \" x \", \"check\": \"exact\"}\n");
  EXPECT_EQ(prompts[0].accepted_answers[0], "42");
  EXPECT_EQ(nlohmann::json::parse(prompts[1].accepted_answers[0]),
            nlohmann::json::parse(R"({"a": null, "b": [1]})"));
  EXPECT_EQ(prompts[2].accepted_answers[0], "[1, 2]");
  EXPECT_EQ(prompts[3].accepted_answers.size(), 2u);
  EXPECT_EQ(prompts[4].check, Check::kExact);
}

TEST(Prompts, ACommandStandsInThePlaceOfAnAnswer) {
  const auto prompts = parse(
      "{\"prompt\": \"p\", \"check\": \"command\", \"command\": \"python3 test_sum.py\"}\n"
      "{\"prompt\": \"p\", \"answers\": [\"a\", \"b\"], \"check\": \"share\"}\n"
      "{\"prompt\": \"p\", \"answer\": \"a\", \"check\": \"similarity\", \"tag\": \"k3j\"}\n");
  EXPECT_EQ(prompts[0].check, Check::kCommand);
  EXPECT_TRUE(prompts[0].has_answer());
  EXPECT_EQ(prompts[0].accepted_answers, std::vector<std::string>{"python3 test_sum.py"});
  EXPECT_EQ(prompts[1].check, Check::kShare);
  EXPECT_EQ(prompts[2].tag, "k3j");
}

// Commands of prompts are for judging: to read a file runs nothing.
TEST(Prompts, ReadingACommandDoesNotRunIt) {
  const fs::path mark = fs::temp_directory_path() / ("kvscale-mark-" + std::to_string(::getpid()));
  parse("{\"prompt\": \"p\", \"check\": \"command\", \"command\": \"touch " + mark.string() +
        "\"}\n");
  EXPECT_FALSE(fs::exists(mark));
}

TEST(Prompts, MessagesSayWhereAndWhat) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "p.jsonl: expected prompts, found none"},
      {" \n\n", "p.jsonl: expected prompts, found none"},
      {"[1]", "p.jsonl: line 1: expected an object, found [1]"},
      {R"({"id": "a"})",
       "p.jsonl: line 1: expected one of \"prompt\", \"messages\", \"ids\", found none"},
      {R"({"promt": "x"})", "p.jsonl: line 1: \"promt\": unknown key; did you mean \"prompt\"?"},
      {R"({"prompt": "x", "answr": "y"})",
       "p.jsonl: line 1: \"answr\": unknown key; did you mean \"answer\"?"},
      {R"({"prompt": "x", "temperature": 1})", "p.jsonl: line 1: \"temperature\": unknown key"},
      {R"({"prompt": "x", "ids": [1]})", "p.jsonl: line 1: \"prompt\" and \"ids\": expected one"},
      {R"({"prompt": "x", "prompt": "y"})", "p.jsonl: line 1: key \"prompt\" occurs twice"},
      {R"({"prompt": 5})", "p.jsonl: line 1: \"prompt\": expected a string, found 5"},
      {R"({"prompt": ""})", "p.jsonl: line 1: \"prompt\": expected at least one token, found \"\""},
      {R"({"ids": []})", "p.jsonl: line 1: \"ids\": expected at least one token, found []"},
      {R"({"ids": [1, 1024]})",
       "p.jsonl: line 1: \"ids[1]\": expected an integer in [0, 1024), found 1024"},
      {R"({"ids": [-1]})",
       "p.jsonl: line 1: \"ids[0]\": expected an integer in [0, 1024), found -1"},
      {R"({"ids": [4294967297]})",
       "p.jsonl: line 1: \"ids[0]\": expected an integer in [0, 1024), found 4294967297"},
      {R"({"ids": [18446744073709551615]})",
       "p.jsonl: line 1: \"ids[0]\": expected an integer in [0, 1024), found 18446744073709551615"},
      {R"({"ids": [1.0]})",
       "p.jsonl: line 1: \"ids[0]\": expected an integer in [0, 1024), found 1.0"},
      {R"({"id": [], "prompt": "x"})",
       "p.jsonl: line 1: \"id\": expected a string or an integer, found []"},
      {"{\"id\": \"a\", \"prompt\": \"x\"}\n{\"id\": \"a\", \"prompt\": \"y\"}",
       "p.jsonl: line 2: \"id\": \"a\" occurs twice"},
      {R"({"prompt": "x", "check": "exact"})",
       "p.jsonl: line 1: \"check\": expected an \"answer\" to check against, found none"},
      {R"({"prompt": "x", "answer": "1", "check": "numbr"})",
       "p.jsonl: line 1: \"check\": expected exact, contains, regex, number, json_equal, share, "
       "similarity or command, found \"numbr\"; did you mean \"number\"?"},
      {R"({"prompt": "x", "answer": "1", "check": "prefix"})",
       "p.jsonl: line 1: \"check\": expected exact, contains, regex, number, json_equal, share, "
       "similarity or command, found \"prefix\""},
      {R"({"prompt": "x", "answer": "1", "check": "command", "command": "true"})",
       "p.jsonl: line 1: \"check\": command: expected no \"answer\" beside the \"command\""},
      {R"({"prompt": "x", "check": "command"})",
       "p.jsonl: line 1: \"check\": command: expected a \"command\", found none"},
      {R"({"prompt": "x", "command": "true"})",
       "p.jsonl: line 1: \"command\": expected check command beside it"},
      {R"({"prompt": "x", "answer": "1", "command": "true"})",
       "p.jsonl: line 1: \"command\": expected check command beside it"},
      {R"({"prompt": "x", "check": "command", "command": ["true"]})",
       "p.jsonl: line 1: \"command\": expected a string, found [\"true\"]"},
      {R"({"prompt": "x", "check": "command", "command": " \u0000"})",
       "p.jsonl: line 1: \"command\": expected a line for /bin/sh, found \" \\u0000\""},
      {R"({"prompt": "x", "check": "command", "command": " "})",
       "p.jsonl: line 1: \"command\": expected a line for /bin/sh, found \" \""},
      {R"({"prompt": "x", "answer": "1", "tag": "t"})",
       "p.jsonl: line 1: \"tag\": expected check similarity beside it"},
      {R"({"prompt": "x", "answer": "1", "check": "similarity", "tag": ""})",
       "p.jsonl: line 1: \"tag\": expected a word without blanks at its ends, found \"\""},
      {R"({"prompt": "x", "answer": "1", "answers": ["1"]})",
       "p.jsonl: line 1: \"answer\" and \"answers\": expected one of them"},
      {R"({"prompt": "x", "answers": []})",
       "p.jsonl: line 1: \"answers\": expected a list of answers, found []"},
      {R"({"prompt": "x", "answer": 5})",
       "p.jsonl: line 1: \"answer\": expected a string, found 5"},
      {R"({"prompt": "x", "answers": ["1", "z"], "check": "number"})",
       "p.jsonl: line 1: \"answers[1]\": expected a number, found \"z\""},
      {R"({"prompt": "x", "answer": "(", "check": "regex"})",
       "p.jsonl: line 1: \"answer\": expected a PCRE2 pattern, found \"(\": missing closing "
       "parenthesis at offset 1"},
      {R"({"messages": []})",
       "p.jsonl: line 1: \"messages\": expected a list of messages, found []"},
      {R"({"messages": [{"role": "user"}]})",
       "p.jsonl: line 1: \"messages[0]\": expected role and content, found {\"role\":\"user\"}"},
      {R"({"messages": [{"role": "user", "contnt": "x"}]})",
       "p.jsonl: line 1: \"messages[0].contnt\": unknown key; did you mean \"content\"?"},
      {R"({"messages": [{"role": "user", "content": "x", "tool_calls": {}}]})",
       "p.jsonl: line 1: \"messages[0].tool_calls\": expected a list, found {}"},
      {R"({"messages": [{"role": "user", "content": "x"}], "tools": 1})",
       "p.jsonl: line 1: \"tools\": expected a list, found 1"},
      {R"({"prompt": "x", "tools": []})",
       "p.jsonl: line 1: \"tools\": expected \"messages\" beside them"},
      {R"({"messages": [{"role": "user", "content": ["x"]}]})",
       "p.jsonl: line 1: \"messages[0].content\": expected a string, found [\"x\"]"},
      {R"({"messages": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}], "answer": "x"})",
       "p.jsonl: line 1: \"messages\": the last one is the assistant's: nothing is left to answer"},
  };
  for (const auto& [text, message] : cases) EXPECT_EQ(message_of(text), message) << text;
  EXPECT_EQ(message_of(R"({"messages": [{"role": "user", "content": "x"}]})",
                       {&tokenizer(), nullptr, ""}),
            "p.jsonl: line 1: \"messages\": this model has no chat template; use \"prompt\" or "
            "\"ids\"");
  EXPECT_EQ(message_of(R"({"messages": [{"role": "user", "content": "x"}]})",
                       {&tokenizer(), nullptr, "chat template: line 3: filter x is not served"}),
            "p.jsonl: line 1: \"messages\": chat template: line 3: filter x is not served; use "
            "\"prompt\" or \"ids\"");
  EXPECT_TRUE(message_of("{\"prompt\": \"x\"}\n{oops").starts_with("p.jsonl: line 2: not JSON: "));
  const std::string deep = std::string(200000, '[') + std::string(200000, ']');
  EXPECT_EQ(message_of("{\"prompt\": \"x\", \"answer\": " + deep + ", \"check\": \"json_equal\"}"),
            "p.jsonl: line 1: nested deeper than 100");
}

TEST(Prompts, MutatedFilesLoadOrThrow) {
  const std::string seed =
      "{\"id\": \"a\", \"prompt\": \"H\\u00e9llo\", \"answer\": 42, \"check\": \"number\"}\n"
      "{\"ids\": [5, 0, 1023], \"answers\": [\"x+\", \"y\"], \"check\": \"regex\"}\n"
      "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi \xc3\xa9\"}], \"answer\": {\"a\": "
      "[1]}, "
      "\"check\": \"json_equal\"}\n";
  std::mt19937_64 random(13);
  int loaded = 0, refused = 0;
  for (int round = 0; round < 10000; ++round) {
    std::string text = seed;
    for (uint64_t edits = random() % 4; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 12);
          break;
        case 2:
          text.insert(at, text.substr(random() % text.size(), random() % 30));
          break;
        default:
          text[at] = "{}[]\",:\\0-9e.\n"[random() % 15];
          break;
      }
    }
    try {
      for (const Prompt& prompt : parse(text)) {
        EXPECT_FALSE(prompt.tokens.empty());
        for (const int32_t id : prompt.tokens) EXPECT_TRUE(id >= 0 && id < 1024);
      }
      ++loaded;
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(loaded, 1000);
  EXPECT_GT(refused, 1000);
}

class PromptFiles : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kvscale_prompts_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
  }
  void TearDown() override { fs::remove_all(folder_); }
  fs::path write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ / name, std::ios::binary) << text;
    return folder_ / name;
  }
  fs::path folder_;
};

TEST_F(PromptFiles, TextIsOnePromptAndAnythingElseJsonLines) {
  const auto text = read_prompts(write("essay.txt", "One.\nTwo.\n"), encoder());
  ASSERT_EQ(text.size(), 1u);
  EXPECT_EQ(text[0].id, "essay");
  EXPECT_EQ(text[0].tokens, tokenizer().encode("One.\nTwo.\n", false));
  const auto lines =
      read_prompts(write("p.jsonl", "{\"prompt\": \"a\"}\n{\"prompt\": \"b\"}\n"), encoder());
  EXPECT_EQ(lines.size(), 2u);
}

TEST_F(PromptFiles, WhatCannotBeReadIsAnError) {
  EXPECT_THROW(read_prompts(folder_ / "missing.jsonl", encoder()), IoError);
  EXPECT_THROW(read_prompts(folder_, encoder()), IoError);
  EXPECT_THROW(read_prompts(write("empty.txt", ""), encoder()), FormatError);
  EXPECT_THROW(read_prompts(write("empty.jsonl", ""), encoder()), FormatError);
}

}  // namespace
}  // namespace kv
