#include "decide/set_option.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "decide/verdict_json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

/// A value that no default has.
std::string odd_value(const std::string& name) {
  if (name == "looks") return "0.4,1";
  if (name == "traffic") return "512:0.75,1024:0.25";
  if (name == "strict" || name == "exhaustive" || name == "bf16_sides") return "true";
  if (name == "capacity_needed") return "false";
  const bool is_count =
      name.find("documents") != std::string::npos || name.find("questions") != std::string::npos;
  return is_count ? "77" : "0.375";
}

Json echo_of(const DecideOptions& options) {
  Verdict verdict;
  verdict.options = options;
  return Json::parse(verdict_json(verdict));
}

TEST(SetOption, EveryNameChangesWhatTheVerdictEchoesUnderThatName) {
  const Json plain = echo_of({});
  for (const std::string& name : option_names()) {
    DecideOptions options;
    set_option(options, name + "=" + odd_value(name));
    const Json echo = echo_of(options);
    const bool is_margin = name.starts_with("margin.");
    const std::string key = is_margin ? name.substr(7) : name;
    const std::string part = is_margin ? "margin" : "thresholds";
    ASSERT_TRUE(echo.at(part).contains(key)) << name;
    EXPECT_NE(echo[part][key], plain.at(part).at(key)) << name;
    Json rest = echo;
    rest[part][key] = plain[part][key];
    EXPECT_EQ(rest, plain) << name << " must change nothing else";
  }
}

TEST(SetOption, WhatIsNotUnderstoodIsNamed) {
  const auto message = [](const std::string& assignment) -> std::string {
    DecideOptions options;
    try {
      set_option(options, assignment);
    } catch (const ValueError& error) {
      return error.what();
    }
    return "accepted";
  };
  EXPECT_NE(message("alpha.accept").find("expected NAME=VALUE"), std::string::npos);
  EXPECT_NE(message("alfa=1").find("found \"alfa\""), std::string::npos);
  EXPECT_NE(message("alpha.accept=0.01x").find("alpha.accept"), std::string::npos);
  EXPECT_NE(message("alpha.accept=").find("a number"), std::string::npos);
  EXPECT_NE(message("documents=1.5").find("a whole number"), std::string::npos);
  EXPECT_NE(message("strict=yes").find("true or false"), std::string::npos);
  EXPECT_NE(message("traffic=512").find("BUCKET:SHARE"), std::string::npos);
  EXPECT_NE(message("looks=0.5,,1").find("looks"), std::string::npos);
}

TEST(SetOption, WhatIsWrittenIsReadBackBitForBit) {
  DecideOptions options = DecideOptions::quick();
  options.alpha_accept = 0.1 + 0.2 - 0.27;  // has no short spelling
  options.margin.overall = 1.0 / 3;
  options.looks = {1.0 / 7, 0.5, 1};
  options.traffic = {{"512", 0.7}, {"over 2048", 2.0 / 3}};
  options.strict = true;
  options.documents = 123;
  DecideOptions back;
  for (const std::string& one : option_assignments(options)) set_option(back, one);
  EXPECT_EQ(option_assignments(back), option_assignments(options));
  EXPECT_EQ(back.alpha_accept, options.alpha_accept);
  EXPECT_EQ(back.margin.overall, options.margin.overall);
  EXPECT_EQ(back.looks, options.looks);
  EXPECT_EQ(back.traffic, options.traffic);
  EXPECT_TRUE(back.strict);
  EXPECT_EQ(back.documents, 123);
  // A name without a value among the assignments would be lost on the way.
  EXPECT_EQ(option_assignments(options).size(), option_names().size());
}

}  // namespace
}  // namespace kv
