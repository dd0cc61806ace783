#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "cache/capacity.h"
#include "report/text_style.h"

namespace kv {

/// A cache to be planned.
struct PlanInput {
  std::string model;                  // what the geometry is from
  std::vector<LayerGeometry> layers;  // all of the model
  int64_t context = 0;                // tokens of one sequence
  // Layers beside them with a recurrent state, and the bytes of that a sequence: no layout changes
  // it.
  int64_t state_layers = 0, state_bytes = 0;
  int64_t block_size = 16;       // tokens
  int64_t budget_bytes = 0;      // for tokens_that_fit; 0 = what BF16 takes for the context
  std::vector<int> bf16_layers;  // adds every FP8 layout with these layers in BF16
};

/// One layout's share of the plan, in bytes for one sequence of `context` tokens. All integers come
/// from cache/capacity.h.
struct PlanRow {
  std::string name;  // as an arm is spelled: "fp8_head/bf16=0"
  std::vector<LayerFormat> formats;
  CacheBytes bytes;
  int64_t bytes_per_token = 0;  // windows not applied, without static scales
  int64_t block_bytes = 0, blocks = 0;
  int64_t tokens_that_fit = 0;

  /// Whether all layers have one format.
  bool is_uniform() const {
    return std::ranges::all_of(formats, [&](const LayerFormat& one) {
      return one.k == formats.front().k && one.v == formats.front().v;
    });
  }

  /// What whole blocks take, windows not applied.
  int64_t allocated_bytes() const { return blocks * block_bytes + bytes.static_scale_bytes; }
};

/// The budget that rows are planned with.
int64_t plan_budget(const PlanInput& input);

/// How many times as many sequences of `tokens` tokens fit under a row's formats as under BF16,
/// their states counted.
double plan_gain(const PlanInput& input, const PlanRow& row, int64_t tokens);

/// The bytes of a block in each kind of layer (KV heads and head size), ascending.
std::vector<int64_t> page_kinds(const PlanInput& input, const PlanRow& row);

/// BF16 first, then every FP8 layout, then those with layers kept in BF16. Throws ValueError for no
/// layers, a context or block size below 1, a negative budget, or a layer not in the model.
std::vector<PlanRow> plan_rows(const PlanInput& input);

/// The formula, every term of it with its numbers, and a table. Throws as plan_rows does.
std::string plan_text(const PlanInput& input, const TextStyle& style);

/// One JSON object: `layouts[]` with name, code_bytes, scale_bytes (inline), total_bytes,
/// bytes_per_token, static_scale_bytes, tokens_that_fit and more, all bytes as integers.
std::string plan_json(const PlanInput& input);

}  // namespace kv
