#include "tests/report/scan_cases.h"

#include <fmt/format.h>

#include <cmath>

namespace kv {
namespace {

constexpr std::array<const char*, 4> kLayouts = {"fp8_scale1", "fp8_tensor", "fp8_head",
                                                 "fp8_token_head"};

ScanReport scan_of(const std::string& name, const std::string& architecture, int64_t layers,
                   int64_t q_heads, int64_t kv_heads, int64_t head_dim) {
  ScanReport report;
  report.model = {name, architecture, std::string(64, 'a'), layers, q_heads, kv_heads, head_dim};
  report.prompts = {"gpl-3.txt", std::string(64, 'b'), 1, 1080};
  report.run.kernels = {"attend cpu/avx512_bf16"};
  report.run.scale_sources = {{"fp8_tensor", "amax/448 over these prompts"}};
  report.run.cache_bytes = 5 << 20;
  report.run.seconds = 12.34;
  report.run.machine = "two cores";
  report.run.version = "0.1.0";
  report.run.command = "kvscale scan " + name;
  return report;
}

/// Layers whose noise runs evenly from `low` to `high`.
void add_even_layers(ScanReport& report, int count, PerLayout low, PerLayout high,
                     PerLayout total_damage) {
  for (int i = 0; i < count; ++i) {
    const double at = count == 1 ? 1 : static_cast<double>(i) / (count - 1);
    LayerCase layer;
    for (size_t l = 0; l < kLayouts.size(); ++l) {
      layer.noise[l] = low[l] + at * (high[l] - low[l]);
      layer.worst[l] = 1.5 * layer.noise[l];
      layer.damage_squared[l] = total_damage[l] / count;
    }
    add_layer(report, layer);
  }
}

void add_gains(ScanReport& report) {
  for (const ArmRecord& arm : report.arms) {
    CapacityRecord record;
    record.record_id = "capacity/" + arm.arm;
    record.arm = arm.arm;
    record.tokens = 8192;
    record.bf16_bytes = 23040 * 8192;
    record.arm_bytes = arm.arm == "bf16" ? record.bf16_bytes : record.bf16_bytes / 2;
    report.capacities.push_back(record);
  }
}

}  // namespace

void add_layer(ScanReport& report, const LayerCase& layer) {
  const auto number = static_cast<int64_t>(report.ranges.size() / (3 * kLayouts.size()));
  for (size_t l = 0; l < kLayouts.size(); ++l) {
    for (const char* side : {"k", "v", "kv"}) {
      RangeRecord record;
      record.record_id = fmt::format("range/{}/{}/{}", number, side, kLayouts[l]);
      record.layer = number;
      record.side = side;
      record.layout = kLayouts[l];
      record.tokens = 1080;
      record.queries = 64;
      record.block_damage = std::sqrt(layer.damage_squared[l]);
      record.normed_damage = record.block_damage;
      if (record.side != "kv") {
        record.noise_mean = record.side == "k" ? layer.noise[l] : 0.02;
        record.noise_worst = record.side == "k" ? layer.worst[l] : 0.03;
        record.noise_heads.assign(static_cast<size_t>(report.model.num_q_heads), record.noise_mean);
        record.noise_heads.back() = record.noise_worst;
        record.sqnr_db = layer.sqnr_db;
        record.centred_sqnr_db = layer.centred_sqnr_db;
        record.amax = 20;
        if (record.side == "k" && l == 0) record.clip_frac = layer.clip_frac;
      }
      report.ranges.push_back(record);
    }
  }
}

void add_arm(ScanReport& report, const std::string& arm, double nll, double kld, double same_top,
             double kld_se) {
  report.arms.push_back({"scan/arm/" + arm, arm, 1080, nll, kld, kld_se, same_top});
}

ScanReport smollm2_scan() {
  ScanReport report = scan_of("SmolLM2-135M-Instruct", "llama", 30, 9, 3, 64);
  add_even_layers(report, 30, {0.04, 0.04, 0.04, 0.04}, {0.13, 0.13, 0.13, 0.12},
                  {0.0037, 0.0038, 0.0038, 0.0023});
  add_arm(report, "bf16", 3.061, 0, 1);
  add_arm(report, "fp8_scale1", 3.083, 0.0162, 0.927);
  add_arm(report, "fp8_tensor", 3.075, 0.0178, 0.928);
  add_arm(report, "fp8_head", 3.086, 0.0187, 0.917);
  add_arm(report, "fp8_token_head", 3.065, 0.0122, 0.949);
  add_gains(report);
  return report;
}

ScanReport qwen_1_5b_scan() {
  ScanReport report = scan_of("Qwen2.5-Coder-1.5B-Instruct", "qwen2", 28, 12, 2, 128);
  add_layer(report, {{2.77, 1.42, 1.38, 1.37},
                     {7.70, 3.37, 3.37, 2.74},
                     32.3,
                     -2.2,
                     {0.375, 0.375, 0.209, 0.254}});
  add_layer(report, {{0.42, 0.35, 0.35, 0.47}, {1.05, 0.85, 0.85, 1.19}, 35.7, 18.6});
  add_even_layers(report, 26, {0.07, 0.07, 0.08, 0.07}, {0.19, 0.19, 0.19, 0.16},
                  {0.009, 0.009, 0.009, 0.009});
  add_arm(report, "bf16", 0.765, 0, 1);
  add_arm(report, "fp8_scale1", 2.277, 1.348, 0.600);
  add_arm(report, "fp8_tensor", 3.141, 2.169, 0.447);
  add_arm(report, "fp8_head", 1.751, 0.833, 0.701);
  add_arm(report, "fp8_token_head", 2.298, 1.347, 0.649);
  add_arm(report, "fp8_scale1/bf16=0", 0.783, 0.0170, 0.953);
  add_arm(report, "fp8_tensor/bf16=0", 0.768, 0.0167, 0.957);
  for (const char* layout : kLayouts) report.bf16_layers[layout] = {0};
  add_gains(report);
  return report;
}

ScanReport qwen_0_5b_scan() {
  ScanReport report = scan_of("Qwen2.5-Coder-0.5B-Instruct", "qwen2", 24, 14, 2, 64);
  add_layer(report, {{1.14, 0.90, 1.00, 0.92}, {2.45, 2.0, 2.0, 2.0}, 31.4, 17.3});
  add_layer(report, {{0.83, 0.86, 0.86, 1.31}, {2.07, 2.0, 2.0, 2.0}, 33.8, 12.1});
  add_layer(report, {{0.41, 0.46, 0.39, 0.42}, {1, 1, 1, 1}, 31, 8.1});
  add_layer(report, {{0.34, 0.34, 0.34, 0.22}, {1, 1, 1, 1}, 31, 20});
  add_layer(report, {{0.57, 0.54, 0.54, 0.38}, {1, 1, 1, 1}, 31, 20});
  add_even_layers(report, 19, {0.10, 0.10, 0.11, 0.07}, {0.28, 0.22, 0.22, 0.21},
                  {0.0287, 0.0296, 0.0324, 0.0324});
  add_arm(report, "bf16", 1.998, 0, 1);
  add_arm(report, "fp8_scale1", 1.992, 0.0560, 0.899);
  add_arm(report, "fp8_tensor", 2.153, 0.0567, 0.890);
  add_arm(report, "fp8_head", 2.096, 0.0404, 0.907);
  add_arm(report, "fp8_token_head", 2.052, 0.0359, 0.912);
  add_arm(report, "fp8_scale1/bf16=0", 2.004, 0.0482, 0.895);
  for (const char* layout : {"fp8_scale1", "fp8_head"}) report.bf16_layers[layout] = {0};
  report.bf16_layers["fp8_tensor"] = {0, 1, 4, 2, 3};
  report.bf16_layers["fp8_token_head"] = {1};
  add_gains(report);
  return report;
}

ScanReport small_scan() {
  ScanReport report = scan_of("small <script>alert(1)</script> & co", "llama", 2, 2, 1, 64);
  report.prompts.documents = 3;
  add_layer(report, {{1.5, 1.2, 1.1, 1.3}, {2, 2, 2, 2}, 32, 4, {0.2, 0.2, 0.2, 0.2}});
  add_layer(report, {{0.1, 0.1, 0.1, 0.1}, {0.2, 0.2, 0.2, 0.2}});
  add_arm(report, "bf16", 2, 0, 1);
  add_arm(report, "fp8_scale1", 2.5, 0.4, 0.8, 0.05);
  add_arm(report, "fp8_scale1/bf16=0", 2.01, 0.004, 0.99, 0.0005);
  report.bf16_layers["fp8_scale1"] = {0};
  add_gains(report);
  return report;
}

}  // namespace kv
