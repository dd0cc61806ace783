#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kvscale/error.h"
#include "report/markup.h"
#include "report/scan_report.h"
#include "report/verdict_report.h"
#include "tests/report/golden.h"
#include "tests/report/html_check.h"
#include "tests/report/scan_cases.h"
#include "tests/report/verdict_cases.h"

namespace kv {
namespace {

const std::string kHostile = "<script>alert('x')</script> \"&amp;\x1b\xff --> ]]> </style>";

std::string text_of(const std::vector<std::string>& problems) {
  std::string out;
  for (const std::string& problem : problems) out += problem + "\n";
  return out;
}

void expect_sound(const std::string& page) {
  EXPECT_EQ(text_of(html_problems(page)), "");
  for (const char* network : {"http:", "https:", "src=", "url(", "@import", "<script"}) {
    EXPECT_EQ(page.find(network), std::string::npos) << network;
  }
}

size_t count(const std::string& text, const std::string& what) {
  size_t n = 0;
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

TEST(HtmlCheck, FindsWhatIsWrong) {
  const std::string head = "<!DOCTYPE html>";
  EXPECT_EQ(text_of(html_problems(head + "<p id=\"a\">x &lt; y<br/></p>")), "");
  for (const char* bad :
       {"<p>", "</p>", "<p><b></p></b>", "<p a=b></p>", "<p a=\"1\" a=\"2\"></p>", "<p>&nbsp;</p>",
        "<p>a & b</p>", "<p>a > b</p>", "<p id=\"a\"></p><p id=\"a\"></p>", "<a href=\"#no\">x</a>",
        "<a href=\"other.html\">x</a>", "<script></script>", "<p onclick=\"x\"></p>",
        "<style>a { background: url(x) }</style>", "<svg aria-labelledby=\"no\"></svg>"}) {
    EXPECT_FALSE(html_problems(head + bad).empty()) << bad;
  }
  EXPECT_FALSE(html_problems("<p></p>").empty());
}

TEST(Markup, EscapesAndCloses) {
  Markup html;
  html.open("p", {{"title", "\"<'&"}}).text("a<b>&\x01").empty("br").close();
  EXPECT_EQ(html.take(),
            "<p title=\"&quot;&lt;&#39;&amp;\">a&lt;b&gt;&amp;\xef\xbf\xbd<br/>\n</p>\n");
  EXPECT_THROW(Markup().close(), ValueError);
  Markup open;
  open.open("p");
  EXPECT_THROW(open.take(), ValueError);
  EXPECT_THROW(Markup().style_sheet("</style>"), ValueError);
}

TEST(Markup, DifferentRecordsHaveDifferentAnchors) {
  EXPECT_EQ(anchor_of("range/0/k/fp8_scale1"), "range/0/k/fp8_scale1");
  EXPECT_EQ(anchor_of("a b\"=~"), "a~20b~22~3d~7e");
  EXPECT_NE(anchor_of("a~20"), anchor_of("a "));
  EXPECT_NE(anchor_of(""), "");
}

TEST(ScanPage, IsSoundForEveryModel) {
  for (const ScanReport& report :
       {smollm2_scan(), qwen_1_5b_scan(), qwen_0_5b_scan(), small_scan()}) {
    expect_sound(scan_page(report));
  }
}

TEST(ScanPage, Golden) { expect_golden("scan_small.html", scan_page(small_scan())); }

TEST(ScanPage, EveryRecordIsATargetAndEveryChartHasATable) {
  const ScanReport report = qwen_1_5b_scan();
  const std::string page = scan_page(report);
  for (const RangeRecord& record : report.ranges) {
    ASSERT_NE(page.find("id=\"" + anchor_of(record.record_id) + "\""), std::string::npos);
  }
  for (const ArmRecord& record : report.arms) {
    ASSERT_NE(page.find("id=\"" + anchor_of(record.record_id) + "\""), std::string::npos);
  }
  EXPECT_GE(count(page, "<table "), count(page, "<svg "));
  EXPECT_EQ(count(page, "<svg "), count(page, "role=\"img\""));
}

TEST(ScanPage, HostileTextIsEscaped) {
  ScanReport report = small_scan();
  report.model.name = report.model.architecture = report.prompts.source = kHostile;
  report.run.command = report.run.machine = kHostile;
  report.run.kernels = {kHostile};
  report.run.scale_sources = {{kHostile, kHostile}};
  report.arms[1].record_id = kHostile;
  report.ranges[0].record_id = kHostile + "2";
  for (RangeRecord& record : report.ranges) {
    if (record.layout == "fp8_head") record.layout = kHostile;
  }
  expect_sound(scan_page(report));
}

TEST(ScanPage, NumbersThatAreNotFiniteAreShownAsSuch) {
  ScanReport report = small_scan();
  report.arms[1].kld = report.arms[1].kld_se = NAN;
  report.arms[2].kld = 0;
  report.ranges[0].noise_mean = NAN;
  report.ranges[0].sqnr_db = INFINITY;
  const std::string page = scan_page(report);
  expect_sound(page);
  EXPECT_EQ(page.find("=\"nan\""), std::string::npos);
  EXPECT_EQ(page.find("=\"inf\""), std::string::npos);
}

TEST(ScanPage, ManyHeadsStaySmall) {
  ScanReport report = smollm2_scan();
  report.ranges.clear();
  report.model.num_q_heads = 64;
  for (int layer = 0; layer < 80; ++layer) {
    add_layer(report, {{0.1, 0.1, 0.1, 0.1}, {0.2, 0.2, 0.2, 0.2}});
  }
  const std::string page = scan_page(report);
  expect_sound(page);
  EXPECT_LT(page.size(), 3u << 20);
}

TEST(VerdictPage, IsSoundForEveryOutcome) {
  for (const VerdictCase& one : {keep_case(), selective_case(), inconclusive_case()}) {
    expect_sound(verdict_page(report_of(one)));
  }
}

TEST(VerdictPage, EveryReasonLinksToItsRecord) {
  for (const VerdictCase& one : {keep_case(), selective_case(), inconclusive_case()}) {
    const std::string page = verdict_page(report_of(one));
    for (const Reason& reason : one.verdict.reasons) {
      const std::string anchor = anchor_of(reason.record);
      EXPECT_EQ(count(page, " id=\"" + anchor + "\""), 1u) << anchor;
      EXPECT_GE(count(page, "href=\"#" + anchor + "\""), 1u) << anchor;
    }
  }
}

TEST(VerdictPage, ChartsHaveMarginsIntervalsAndTables) {
  const VerdictCase keep = keep_case();
  const std::string page = verdict_page(report_of(keep));
  EXPECT_NE(page.find("margin -5"), std::string::npos);
  EXPECT_NE(page.find("95 % interval"), std::string::npos);
  EXPECT_NE(page.find("-1.5 [-4.1, +0.6], n 200"), std::string::npos);
  EXPECT_GE(count(page, "<table "), count(page, "<svg "));
}

TEST(VerdictPage, HostileTextIsEscaped) {
  VerdictCase one = selective_case();
  Verdict& verdict = one.verdict;
  verdict.sub_reason = verdict.sentence = verdict.layout = kHostile;
  verdict.notices = {kHostile};
  verdict.reasons[0] = {kHostile, kHostile, kHostile};
  verdict.next = {{kHostile, kHostile}};
  verdict.launch = {{kHostile, {kHostile, {kHostile}}}};
  verdict.state_trace = {{kHostile, kHostile, kHostile, kHostile}};
  verdict.tables[0].arm = verdict.tables[0].block = kHostile;
  verdict.tables[0].buckets[0].bucket = verdict.tables[0].buckets[0].note = kHostile;
  verdict.options.preset = verdict.options.target = kHostile;
  one.records.capacities[0].arm = kHostile;
  one.records.supports[0].reason = kHostile;
  one.records.calibrations[0].warnings = {kHostile};
  expect_sound(verdict_page(report_of(one)));
}

}  // namespace
}  // namespace kv
