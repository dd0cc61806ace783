#include "tests/report/verdict_cases.h"

#include <fmt/format.h>

#include "tests/report/scan_cases.h"

namespace kv {
namespace {

BucketRow bucket_row(const std::string& table, const std::string& bucket, int64_t n, double losses,
                     double gains, Interval interval, BucketVerdict verdict) {
  BucketRow row;
  row.id = table + "/" + bucket;
  row.bucket = bucket;
  row.n = n;
  row.documents = n / 4;
  row.max_questions = 4;
  row.is_binary = true;
  row.losses = losses;
  row.gains = gains;
  row.mean_ctrl = 0.985;
  row.diff = (gains - losses) / static_cast<double>(n);
  row.mean_cand = row.mean_ctrl + row.diff;
  row.interval = interval;
  row.verdict = verdict;
  row.margin = 0.05;
  row.p_ni = 0.004;
  return row;
}

OverallRow overall_row(const std::string& id, int64_t n, double losses, double gains,
                       Interval interval, double margin, BucketVerdict verdict) {
  OverallRow row;
  row.id = id;
  row.n = n;
  row.documents = n / 4;
  row.losses = losses;
  row.gains = gains;
  row.mean_ctrl = 0.985;
  row.diff = (gains - losses) / static_cast<double>(n);
  row.mean_cand = row.mean_ctrl + row.diff;
  row.interval = interval;
  row.margin = margin;
  row.verdict = verdict;
  return row;
}

ArmTable passing_table(const std::string& block, const std::string& arm) {
  const std::string id = block + "/" + arm;
  ArmTable table;
  table.block = block;
  table.arm = arm;
  table.reference = "bf16";
  table.buckets = {bucket_row(id, "512", 200, 1, 2, {-0.014, 0.028}, BucketVerdict::kEquivalent),
                   bucket_row(id, "1024", 200, 2, 2, {-0.021, 0.021}, BucketVerdict::kEquivalent),
                   bucket_row(id, "2048", 200, 4, 1, {-0.041, 0.006}, BucketVerdict::kNonInferior)};
  table.overall =
      overall_row(id + "/overall", 600, 7, 5, {-0.015, 0.008}, 0.025, BucketVerdict::kEquivalent);
  table.validity =
      overall_row(id + "/validity", 600, 0, 0, {-0.006, 0.006}, 0.02, BucketVerdict::kEquivalent);
  table.is_pass = true;
  return table;
}

ArmTable losing_table(const std::string& block, const std::string& arm) {
  ArmTable table = passing_table(block, arm);
  const std::string id = block + "/" + arm;
  table.buckets[1] =
      bucket_row(id, "1024", 200, 130, 0, {-0.71, -0.58}, BucketVerdict::kMaterialLoss);
  table.is_pass = false;
  table.is_material = true;
  return table;
}

CapacityRecord capacity(const std::string& arm, int64_t arm_bytes) {
  CapacityRecord record;
  record.record_id = "capacity/" + arm;
  record.arm = arm;
  record.tokens = 8192;
  record.bf16_bytes = int64_t{180} << 20;
  record.arm_bytes = record.allocated_bytes = record.planned_bytes = arm_bytes;
  return record;
}

}  // namespace

VerdictCase keep_case() {
  VerdictCase out;
  Verdict& verdict = out.verdict;
  verdict.options = DecideOptions::quick();
  verdict.outcome = Outcome::kKeepScaleOne;
  verdict.layout = "fp8_scale1";
  verdict.capacity_gain = 2;
  verdict.sentence = "fp8_scale1 is not worse than BF16 by more than 5 points in any bucket";
  verdict.tables = {passing_table("E1", "fp8_scale1")};
  verdict.aa_flips = 0.002;
  verdict.control = {{"AA/bf16/512", "512", 200, 50, 1, 0.985, 0.009, 0, true},
                     {"AA/bf16/4096", "4096", 200, 50, 0, 0.01, 0.007, 0, false}};
  verdict.dropped_buckets = {"4096"};
  verdict.reasons = {{"INSENSITIVE", "AA/bf16/4096", "the control scores 1 point, n 200"},
                     {"Q_PASS", "E1/fp8_scale1/overall", "7 losses and 5 gains of 600"},
                     {"CAPACITY", "capacity/fp8_scale1", "2.000 times the tokens"},
                     {"KERNEL", "example/E1/7", "attend cpu/avx512_bf16"}};
  verdict.notices = {"only capacity was judged | no timing record"};
  verdict.state_trace = {{"SCREEN", "E1", "fp8_scale1", "Q_PASS -> SYSTEMS"}};
  verdict.next = {{"kvscale decide MODEL --margin standard", "the standard margin: 2 points"}};
  verdict.launch = {{"vllm", {"--kv-cache-dtype fp8", {"no scale file is needed"}}}};
  out.records.capacities = {capacity("fp8_scale1", int64_t{90} << 20)};
  out.records.supports = {{"support/fp8_scale1", "fp8_scale1", "vllm:flash_attn3", true, ""}};
  return out;
}

VerdictCase selective_case() {
  VerdictCase out = keep_case();
  Verdict& verdict = out.verdict;
  verdict.outcome = Outcome::kSelectiveBf16;
  verdict.layout = "fp8_scale1/bf16=0";
  verdict.bf16_layers = {0};
  verdict.capacity_gain = 1.931;
  verdict.tables = {losing_table("E1", "fp8_scale1"), passing_table("E3", "fp8_scale1/bf16=0")};
  verdict.reasons = {{"Q_MATERIAL", "E1/fp8_scale1/1024", "-65 points [-71, -58], n 200"},
                     {"OFFSET", "range/0/k/fp8_scale1", "score noise 2.77 nats under every layout"},
                     {"ABLATION", "kld/fp8_scale1/bf16=0", "98 % of the excess KLD gone"}};
  verdict.ablation = {{"fp8_scale1", "kld/fp8_scale1", 0, 1.348, 0},
                      {"fp8_scale1/bf16=0", "kld/fp8_scale1/bf16=0", 1, 0.017, 0.987}};
  verdict.launch = {{"vllm", {"--kv-cache-dtype fp8 --kv-cache-dtype-skip-layers 0", {}}}};
  out.records.ranges = qwen_1_5b_scan().ranges;
  CalibrationRecord calibration;
  calibration.record_id = "calibration";
  calibration.scale_file = "scales.json";
  calibration.scale_file_sha256 = std::string(64, 'c');
  calibration.examples = 50;
  calibration.tokens = 100000;
  calibration.max_tokens = 2048;
  out.records.calibrations = {calibration};
  return out;
}

VerdictCase inconclusive_case() {
  VerdictCase out = keep_case();
  Verdict& verdict = out.verdict;
  verdict.outcome = Outcome::kInconclusive;
  verdict.sub_reason = "INSUFFICIENT_SAMPLES";
  verdict.layout = "";
  verdict.launch.clear();
  verdict.capacity_gain = 0;
  ArmTable& table = verdict.tables.front();
  table.is_pass = false;
  table.buckets[2].verdict = BucketVerdict::kUnresolved;
  table.buckets[2].interval = {-0.061, 0.012};
  table.buckets[2].note = "TOO_FEW_CLUSTERS: 20 documents, 30 needed";
  verdict.sentence = "fp8_scale1 on E1 is neither shown to be harmless nor to lose";
  verdict.n_required = 381;
  return out;
}

VerdictReport report_of(const VerdictCase& one) {
  const ScanReport scan = smollm2_scan();
  return {one.verdict, one.records, scan.model, scan.prompts, scan.run};
}

}  // namespace kv
