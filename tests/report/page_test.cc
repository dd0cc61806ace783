#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kvscale/error.h"
#include "report/heat_map.h"
#include "report/markup.h"
#include "report/record_section.h"
#include "report/runs_report.h"
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

/// The bytes of a base64 text.
std::string decoded(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  uint32_t bits = 0;
  int have = 0;
  for (const char c : text) {
    if (c == '=') break;
    bits = bits << 6 | static_cast<uint32_t>(digits.find(c));
    have += 6;
    if (have < 8) continue;
    have -= 8;
    out += static_cast<char>(bits >> have & 255);
  }
  return out;
}

TEST(VerdictPage, Base64OfEveryLengthComesBack) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");  // RFC 4648, section 10
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  std::string all;
  for (int i = 0; i < 256; ++i) {
    all += static_cast<char>(i);
    EXPECT_EQ(decoded(base64(all)), all);
  }
}

TEST(VerdictPage, HoldsItsRecordsAndItsConfiguration) {
  const VerdictCase one = keep_case();
  VerdictReport report = report_of(one);
  EXPECT_EQ(verdict_page(report).find("id=\"provenance\""), std::string::npos);
  report.files.records = "{\"kind\":\"example\"}\n{\"kind\":\"logit\", \"x\": \"\xff</a>\"}\n";
  report.files.configuration = "kvscale 1.2\ncommand decide\nprompts " + kHostile + "\n\nlast\n";
  const std::string page = verdict_page(report);
  expect_sound(page);
  const std::string start = "download=\"records.jsonl\" href=\"data:application/x-ndjson;base64,";
  const size_t at = page.find(start);
  ASSERT_NE(at, std::string::npos);
  const size_t begin = at + start.size();
  EXPECT_EQ(decoded(page.substr(begin, page.find('"', begin) - begin)), report.files.records);
  EXPECT_NE(page.find("2 records"), std::string::npos);
  EXPECT_NE(page.find("<dt>command</dt>\n<dd>decide</dd>"), std::string::npos);
  report.files.records.assign(kMostEmbeddedBytes + 1, '\n');
  const std::string large = verdict_page(report);
  EXPECT_EQ(large.find("download="), std::string::npos);
  EXPECT_NE(large.find("too large to be part of this page"), std::string::npos);
}

TEST(VerdictPage, ContentsLeadToEverySection) {
  const std::string page = verdict_page(report_of(selective_case()));
  const size_t nav = page.find("<nav aria-label=\"Contents\">");
  ASSERT_NE(nav, std::string::npos);
  const std::string list = page.substr(nav, page.find("</nav>", nav) - nav);
  EXPECT_EQ(count(list, "href=\"#"), count(page, "<section id="));
  EXPECT_GE(count(list, "href=\"#"), 6u);
}

LogitRecord logit(const std::string& arm, const std::string& document, const std::string& bucket,
                  double kld) {
  LogitRecord record;
  record.record_id = "logit/" + arm + "/" + document + "/" + bucket;
  record.block = "E2";
  record.arm = arm;
  record.document = document;
  record.bucket = bucket;
  record.n = 2;
  record.kld = 2 * kld;
  record.same_top = 1;
  record.kld_values = {static_cast<float>(kld), static_cast<float>(kld)};
  return record;
}

TEST(VerdictPage, KldStandsByPositionAndHeadsByLayer) {
  VerdictCase one = selective_case();
  for (const char* bucket : {"2048", "512", "over 2048"}) {
    one.records.logits.push_back(logit("fp8_scale1", "a", bucket, 0.01));
    one.records.logits.push_back(logit("fp8_scale1", "b", bucket, 0.03));
  }
  ASSERT_FALSE(one.records.ranges.empty());
  for (RangeRecord& record : one.records.ranges) {
    record.sqnr_db_heads = {31.4, 9.5};
    record.clip_frac_heads = {0, record.layer == 0 ? 0.02 : 0.0};
  }
  const std::string page = verdict_page(report_of(one));
  expect_sound(page);
  EXPECT_LT(page.find("fp8_scale1, 512"), page.find("fp8_scale1, 2048"));
  EXPECT_LT(page.find("fp8_scale1, 2048"), page.find("fp8_scale1, over 2048"));
  EXPECT_NE(page.find("0.02 ± 0.01, n 4"), std::string::npos);
  EXPECT_NE(page.find("layer 0, k1: 9.5 dB"), std::string::npos);
  EXPECT_NE(page.find("layer 0, v1: 0.02 of the values"), std::string::npos);
  EXPECT_GE(count(page, "<table "), count(page, "<svg "));
  // Arms of many layers: the table stays, the chart goes.
  for (int arm = 0; arm < 30; ++arm) {
    one.records.logits.push_back(logit("fp8_scale1/bf16=" + std::to_string(arm), "a", "512", 0.01));
  }
  const std::string many = verdict_page(report_of(one));
  expect_sound(many);
  EXPECT_EQ(many.find("kld-by-position"), std::string::npos);
  EXPECT_NE(many.find("fp8_scale1/bf16=29"), std::string::npos);
}

TEST(HeatScale, StepsAndMarksFollowTheBadEnd) {
  const HeatScale noise = noise_scale(), sqnr = sqnr_scale(), clip = clip_scale();
  EXPECT_EQ(noise.step_of(0), 0u);
  EXPECT_EQ(noise.step_of(5), 6u);
  EXPECT_EQ(noise.mark_of(0.3), "! ");
  EXPECT_EQ(sqnr.step_of(31.5), 0u);
  EXPECT_EQ(sqnr.step_of(31), 0u);
  EXPECT_EQ(sqnr.step_of(30.9), 1u);
  EXPECT_EQ(sqnr.step_of(-3), 6u);
  EXPECT_EQ(sqnr.mark_of(20), "");
  EXPECT_EQ(sqnr.mark_of(19.9), "! ");
  EXPECT_EQ(sqnr.mark_of(9), "✕ ");
  EXPECT_EQ(clip.step_of(0), 0u);
  EXPECT_EQ(clip.step_of(1), 6u);
  EXPECT_EQ(clip.mark_of(1e-4), "! ");
  EXPECT_EQ(clip.mark_of(0.01), "✕ ");
}

TEST(RunsPage, ComparesRunsAndLinksToEach) {
  const VerdictCase keep = keep_case(), open = inconclusive_case();
  std::vector<RunRow> rows = {
      {"runs/a", "a/report.html", &keep.verdict, report_of(keep).model, report_of(keep).prompts},
      {kHostile, "b/report.html", &open.verdict, report_of(open).model, report_of(open).prompts}};
  rows[1].is_current = false;
  const std::string page = runs_page(rows);
  // Nothing is wrong with it but that it links to the runs' pages.
  EXPECT_EQ(text_of(html_problems(page)),
            "link out of the page: a/report.html\nlink out of the page: b/report.html\n");
  for (const char* part : {"KEEP_SCALE_ONE", "INCONCLUSIVE", "5 / 2.5", "decision.json differs",
                           "2048: -1.5 [-4.1, +0.6]", "Deploy fp8_scale1", "2.000x"}) {
    EXPECT_NE(page.find(part), std::string::npos) << part;
  }
  const std::string text = runs_text(rows, TextStyle{});
  EXPECT_NE(text.find("KEEP_SCALE_ONE"), std::string::npos);
  EXPECT_EQ(text.find('\x1b'), std::string::npos);
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
