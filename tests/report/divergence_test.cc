// Divergence on the page, in Markdown, and in what eval prints.

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <sstream>

#include "kvscale/error.h"
#include "report/divergence_section.h"
#include "report/eval_report.h"
#include "report/plain_text.h"
#include "report/step_chart.h"
#include "report/verdict_report.h"
#include "tests/report/html_check.h"
#include "tests/report/verdict_cases.h"

namespace kv::divergence_test {
namespace {

DivergenceRow row(const std::string& block, const std::string& arm, const std::string& bucket) {
  DivergenceRow out;
  out.block = block;
  out.arm = arm;
  out.bucket = bucket;
  out.n = 1200;
  out.documents = 300;
  out.diverged = 36;
  out.near_ties = 12;
  out.exact_match_rate = 0.97;
  out.hazard = 36.0 / 9000;
  out.longest = 12;
  out.curve = {{3, 1200, 12, 0.99, {0.98, 0.996}}, {9, 600, 24, 0.9504, {0.93, 0.97}}};
  out.agreeing = 0.9504;
  out.agreeing_interval = {0.93, 0.97};
  out.undamaged = 0.97;
  out.undamaged_interval = {0.95, 0.99};
  return out;
}

std::vector<DivergenceRow> some_rows() {
  std::vector<DivergenceRow> out = {row("AA", "bf16#2", "512"), row("AA", "bf16#2", "2048"),
                                    row("E1", "fp8_scale1", "512"), row("E1", "fp8_scale1", "2048"),
                                    row("E1", "fp8_token_head", "512")};
  out[0].diverged = out[0].near_ties = 0;
  out[0].curve.clear();
  out[0].agreeing = 1;
  out[0].agreeing_interval = {0.99, 1};
  out[3].agreeing = 0.2;
  out[3].agreeing_interval = {0, 0.4};
  out[3].curve[1].survival = 0.2;
  out[3].median = 9;
  return out;
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::string page_with(const std::vector<DivergenceRow>& rows) {
  VerdictCase one = keep_case();
  one.verdict.divergence = rows;
  const std::string page = verdict_page(report_of(one));
  EXPECT_TRUE(html_problems(page).empty()) << html_problems(page).front();
  return page;
}

TEST(DivergencePage, HasAChartForEveryBlockAndBucketAndATableOfAll) {
  const std::string page = page_with(some_rows());
  EXPECT_EQ(count(page, "<svg id=\"divergence-"), 4u);
  EXPECT_EQ(count(page, "<polyline"), 2u * 5) << "a curve and its sample in the legend";
  EXPECT_NE(page.find("fp8_token_head: 95.0 % [93.0, 97.0] after 12 tokens"), std::string::npos);
  EXPECT_NE(page.find("Divergence of greedy answers"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"n\">97.0 % [95.0, 99.0]</td>"), std::string::npos);
  // Shares after 1, 2, 4 and 8 tokens: the first fall is at 3.
  EXPECT_NE(page.find(">after 8</th>"), std::string::npos);
  EXPECT_EQ(page.find(">after 16</th>"), std::string::npos);
  EXPECT_NE(page.find("<td class=\"n\">100.0 %</td>\n<td class=\"n\">100.0 %</td>\n"
                      "<td class=\"n\">99.0 %</td>\n<td class=\"n\">99.0 %</td>"),
            std::string::npos);
  std::vector<DivergenceRow> sampled = some_rows();
  for (DivergenceRow& one : sampled) one.is_sampled = true;
  EXPECT_NE(page_with(sampled).find("Divergence of sampled answers"), std::string::npos);
  EXPECT_EQ(page_with({}).find("id=\"divergence\""), std::string::npos);
}

TEST(DivergencePage, ManyArmsAndPlacesKeepTheTableAndLoseTheCharts) {
  std::vector<DivergenceRow> arms, places;
  for (int i = 0; i < 20; ++i) {
    arms.push_back(row("E3", "fp8_scale1/bf16=" + std::to_string(i), "512"));
    places.push_back(row("E3", "fp8_scale1", std::to_string(512 * (i + 1))));
  }
  EXPECT_EQ(count(page_with(arms), "<polyline"), 2 * kMostStepCurves);
  EXPECT_NE(page_with(arms).find("<th scope=\"row\">fp8_scale1/bf16=19</th>"), std::string::npos);
  EXPECT_EQ(page_with(places).find("<svg id=\"divergence-"), std::string::npos);
  EXPECT_NE(page_with(places).find("<td class=\"n\">10240</td>"), std::string::npos);
  StepChart chart;
  chart.curves.resize(kMostStepCurves + 1);
  Markup html;
  EXPECT_THROW(draw(html, chart), ValueError);
}

int widest(const std::string& text) {
  std::istringstream lines(text);
  int most = 0;
  for (std::string line; std::getline(lines, line);) most = std::max(most, columns(line));
  return most;
}

TEST(DivergenceText, KeepsToTheWidth) {
  std::vector<DivergenceRow> rows = some_rows();
  rows[2].arm = "fp8_token_head/bf16=0,1,2,3,4,5,6,7,8,9,10k,11v/math=fp8/round=truncate | \x1b[2J";
  VerdictCase one = keep_case();
  one.verdict.divergence = rows;
  const std::string text = verdict_markdown(report_of(one), {});
  EXPECT_NE(text.find("## Divergence of greedy answers"), std::string::npos);
  EXPECT_NE(text.find("| 2048   | 1,200 (300) |       36 |        12 |"), std::string::npos)
      << text;
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
  EXPECT_LE(widest(divergence_text(rows, {.width = 80})), 80);
  EXPECT_EQ(divergence_text({}, {}), "");
}

TEST(DivergenceText, StandsInEvalWhereThingsWereGenerated) {
  EvalReport report;
  ArmRecord control;
  control.record_id = control.arm = "bf16";
  report.arms = {control};
  EXPECT_EQ(eval_json(report).find("divergence"), std::string::npos);
  report.divergence = some_rows();
  EXPECT_NE(eval_text(report, {}).find("95.0 % [93.0, 97.0]"), std::string::npos);
  const auto json = nlohmann::json::parse(eval_json(report));
  EXPECT_EQ(json.at("divergence").at("rows").size(), 5u);
}

}  // namespace
}  // namespace kv::divergence_test
