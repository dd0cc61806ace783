#include "report/verdict_junit.h"

#include <gtest/gtest.h>

#include <map>

#include "tests/report/html_check.h"
#include "tests/report/verdict_cases.h"

namespace kv {
namespace {

const std::string kHostileName =
    "a]]><x y=\"&\" 'q'>\x01\x1b\x7f\xff\xef\xbf\xbe\xef\xbf\xbf\xc0\xaf\n\u202e end";

size_t occurrences(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

/// Well-formed, and no character that XML 1.0 has no way to write.
void expect_xml(const std::string& xml) {
  const std::string declaration = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  ASSERT_TRUE(xml.starts_with(declaration));
  const auto problems = html_problems("<!DOCTYPE html>" + xml.substr(declaration.size()));
  EXPECT_TRUE(problems.empty()) << problems.front();
  for (const char c : xml) {
    const auto byte = static_cast<unsigned char>(c);
    EXPECT_TRUE(byte >= 0x20 || byte == '\n') << static_cast<int>(byte);
  }
  EXPECT_EQ(occurrences(xml, "\xef\xbf\xbe") + occurrences(xml, "\xef\xbf\xbf"), 0u);
}

/// Of the outermost element.
int64_t total(const std::string& xml, const std::string& attribute) {
  const size_t at = xml.find(" " + attribute + "=\"") + attribute.size() + 3;
  return std::stoll(xml.substr(at));
}

void expect_counts(const std::string& xml) {
  EXPECT_EQ(total(xml, "tests"), static_cast<int64_t>(occurrences(xml, "<testcase ")));
  EXPECT_EQ(total(xml, "failures"), static_cast<int64_t>(occurrences(xml, "<failure ")));
  EXPECT_EQ(total(xml, "errors"), static_cast<int64_t>(occurrences(xml, "<error ")));
  EXPECT_EQ(total(xml, "skipped"), static_cast<int64_t>(occurrences(xml, "<skipped ")));
}

TEST(Junit, AnAcceptedLayoutHasNoFailureEvenIfAnotherOneWasTriedBefore) {
  for (const VerdictCase& one : {keep_case(), selective_case()}) {
    const std::string xml = verdict_junit(report_of(one));
    expect_xml(xml);
    expect_counts(xml);
    EXPECT_EQ(total(xml, "failures"), 0) << xml;
    EXPECT_EQ(total(xml, "errors"), 0) << xml;
    EXPECT_NE(xml.find("name=\"2048\""), std::string::npos);
    EXPECT_NE(xml.find("name=\"overall\""), std::string::npos);
    EXPECT_NE(xml.find("name=\"validity\""), std::string::npos);
    EXPECT_NE(xml.find("name=\"persistent shift\""), std::string::npos);
    EXPECT_NE(xml.find("name=\"capacity fp8_scale1\""), std::string::npos);
  }
  const std::string xml = verdict_junit(report_of(selective_case()));
  EXPECT_NE(xml.find("not what was accepted (fp8_scale1/bf16=0): bucket 1024"), std::string::npos);
}

TEST(Junit, ALossIsAFailureWithRuleIntervalAndMargin) {
  VerdictCase one = selective_case();
  one.verdict.outcome = Outcome::kRejectFp8;
  one.verdict.layout.clear();
  one.verdict.sub_reason = "QUALITY";
  one.verdict.exit_code = 20;
  const std::string xml = verdict_junit(report_of(one));
  expect_xml(xml);
  expect_counts(xml);
  EXPECT_NE(xml.find("<failure type=\"REJECT_FP8: QUALITY\""), std::string::npos) << xml;
  const size_t at = xml.find("<failure type=\"MATERIAL_LOSS\"");
  ASSERT_NE(at, std::string::npos) << xml;
  const std::string failure = xml.substr(at, xml.find('\n', at) - at);
  for (const char* part : {"[-71.00, -58.00]", "margin of 5 points", "200 questions", "130 lost"}) {
    EXPECT_NE(failure.find(part), std::string::npos) << part << "\n" << failure;
  }
}

TEST(Junit, WhatIsNotShownIsAnErrorNeverAPass) {
  const VerdictCase one = inconclusive_case();
  const std::string xml = verdict_junit(report_of(one));
  expect_xml(xml);
  expect_counts(xml);
  EXPECT_NE(xml.find("<error type=\"INCONCLUSIVE"), std::string::npos) << xml;
  EXPECT_NE(xml.find("<error type=\"UNRESOLVED\""), std::string::npos) << xml;
  // An accepted layout whose directory was contradicted ends with another exit code.
  VerdictCase accepted = keep_case();
  accepted.verdict.exit_code = 10;
  EXPECT_EQ(total(verdict_junit(report_of(accepted)), "errors"), 1);
}

TEST(Junit, HostileNamesStayValidXml) {
  VerdictCase one = selective_case();
  Verdict& verdict = one.verdict;
  verdict.sub_reason = verdict.sentence = verdict.layout = kHostileName;
  verdict.notices = {kHostileName};
  for (ArmTable& table : verdict.tables) {
    table.arm = table.block = kHostileName;
    table.buckets[0].bucket = table.buckets[0].note = kHostileName;
  }
  verdict.control[0].bucket = kHostileName;
  one.records.capacities[0].arm = kHostileName;
  verdict.exit_code = 10;
  VerdictReport report = report_of(one);
  report.model.name = kHostileName;
  const std::string xml = verdict_junit(report);
  expect_xml(xml);
  expect_counts(xml);
}

}  // namespace
}  // namespace kv
