#include <gtest/gtest.h>

#include "kvscale/error.h"
#include "tests/text/golden.h"
#include "text/chat_template.h"

namespace kv {
namespace {

using nlohmann::json;

std::vector<Message> messages_of(const json& conversation) {
  std::vector<Message> out;
  for (const json& message : conversation) {
    out.push_back({message["role"].get<std::string>(), message["content"].get<std::string>()});
  }
  return out;
}

TEST(ChatTemplate, RendersWhatTheTemplateRenders) {
  const json golden = load_golden("chat.json");
  std::vector<std::string> names;
  for (const json& entry : golden["templates"]) {
    const ChatTemplate chat = ChatTemplate::recognise(entry["template"].get<std::string>());
    names.push_back(chat.name());
    EXPECT_EQ(chat.sha256(), entry["sha256"].get<std::string>());
    for (size_t i = 0; i < golden["conversations"].size(); ++i) {
      const std::vector<Message> messages = messages_of(golden["conversations"][i]);
      for (const bool prompt : {false, true}) {
        EXPECT_EQ(chat.render(messages, prompt), entry["rendered"][i][prompt].get<std::string>())
            << chat.name() << " conversation " << i;
      }
    }
  }
  EXPECT_EQ(names, (std::vector<std::string>{"chatml-smollm2", "chatml-qwen2.5", "chatml-first",
                                             "chatml-smollm2", "chatml", "chatml-tools"}));
}

std::string real_template(const std::string& name) {
  const json golden = load_golden("chat.json");
  for (const json& entry : golden["templates"]) {
    const std::string text = entry["template"].get<std::string>();
    if (ChatTemplate::recognise(text).name() == name) return text;
  }
  return "";
}

TEST(ChatTemplate, DefaultSystemPromptsAreTheModelsOwn) {
  EXPECT_EQ(ChatTemplate::recognise(real_template("chatml-smollm2")).default_system(),
            "You are a helpful AI assistant named SmolLM, trained by Hugging Face");
  EXPECT_EQ(ChatTemplate::recognise(real_template("chatml-qwen2.5")).default_system(),
            "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.");
  EXPECT_EQ(ChatTemplate::recognise(real_template("chatml")).default_system(), "");
}

TEST(ChatTemplate, ALineBreakAtTheEndOfTheFileDoesNotMatter) {
  EXPECT_EQ(ChatTemplate::recognise(real_template("chatml-smollm2") + "\n").name(),
            "chatml-smollm2");
}

TEST(ChatTemplate, OneSignMoreIsAnotherTemplate) {
  for (const std::string name : {"chatml", "chatml-smollm2", "chatml-qwen2.5"}) {
    const std::string text = real_template(name);
    ASSERT_FALSE(text.empty()) << name;
    for (size_t i = 0; i <= text.size(); ++i) {
      std::string changed = text;
      changed.insert(i, "'");
      EXPECT_THROW(ChatTemplate::recognise(changed), UnsupportedError) << name << " at " << i;
    }
  }
}

TEST(ChatTemplate, UnknownTemplatesAreRefusedByHashAndBeginning) {
  try {
    ChatTemplate::recognise("{{ bos_token }}{% for m in messages %}[INST] {{ m['content'] }}");
    FAIL();
  } catch (const UnsupportedError& error) {
    EXPECT_STREQ(error.what(),
                 "chat template with SHA-256 "
                 "70f4586e24b7c76bd167979c5204b156e50d3edf56b1fe042b31c07f3cfcc9b6"
                 " is not served (it begins \"{{ bos_token }}{% for m in messages %}[INST] {{ "
                 "m['content']\"); supported: ChatML as SmolLM2, Qwen2 and Qwen2.5 have it");
  }
  EXPECT_THROW(ChatTemplate::recognise(""), UnsupportedError);
}

TEST(ChatTemplate, WhatTheTemplateWouldDropIsRefused) {
  const ChatTemplate qwen = ChatTemplate::recognise(real_template("chatml-qwen2.5"));
  const std::vector<Message> developer = {{"developer", "x"}};
  EXPECT_THROW(qwen.render(developer, true), ValueError);
  EXPECT_THROW(qwen.render({}, true), ValueError);
  const ChatTemplate smol = ChatTemplate::recognise(real_template("chatml-smollm2"));
  EXPECT_NE(smol.render(developer, true).find("<|im_start|>developer\nx<|im_end|>"),
            std::string::npos);
}

}  // namespace
}  // namespace kv
