#include "targets/dry_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "kvscale/error.h"

namespace kv {
namespace {

LayerRule rule_of(std::string_view engine, DirectoryKind kind) {
  if (engine == "sglang") return load_sglang;
  if (engine == "edge-llm") return load_edge_llm;
  if (engine == "tensorrt-llm-legacy") return load_tensorrt_llm_legacy;
  switch (kind) {
    case DirectoryKind::kCtTensorKvOnly:
    case DirectoryKind::kCtTensorFineWeights:
    case DirectoryKind::kCtTensorCoarseWeights:
    case DirectoryKind::kCtHead:
      return load_vllm_compressed_tensors;
    default:
      return load_vllm_scalar;
  }
}

std::string how_of(LoadOutcome outcome) {
  return outcome == LoadOutcome::kIgnored ? "ignored" : "default 1.0";
}

LayerOutcome unscaled(int layer, const std::string& how, int tp) {
  const SideOutcome side{how, std::vector<std::vector<float>>(static_cast<size_t>(tp), {1.0f})};
  return {layer, layer, side, side};
}

// Sharing layers have no scales of their own and read with the owner's.
void add_sharing_layers(const ScaleSet& set, DryRun& run) {
  for (int layer = 0; layer < set.geometry.num_layers; ++layer) {
    const int owner = set.cache_layer(layer);
    if (owner == layer) continue;
    const auto found = std::ranges::find(run.layers, owner, &LayerOutcome::layer);
    if (found == run.layers.end()) continue;
    LayerOutcome shared = *found;
    shared.layer = layer;
    shared.reads_layer = owner;
    run.layers.push_back(shared);
  }
  std::ranges::sort(run.layers, {}, &LayerOutcome::layer);
}

std::vector<int> layers_of(const ScaleSet& set) {
  if (!set.owner_layers.empty()) return set.owner_layers;
  std::vector<int> layers;
  for (const StoredScale& scale : set.scales) {
    if (layers.empty() || layers.back() != scale.layer) layers.push_back(scale.layer);
  }
  return layers;
}

bool is_kept_16_bit(const ScaleSet& set, int layer) {
  return set.record &&
         std::ranges::find(set.record->bf16_layers, layer) != set.record->bf16_layers.end();
}

// SGLang takes a JSON file only when it has exactly its ranks, each with exactly the model's
// layers.
bool json_fits(const ScaleSet& set, int tp) {
  std::map<int, int> layers_of_rank;
  for (const StoredScale& scale : set.scales) {
    if (scale.side == ScaleSide::kK) ++layers_of_rank[scale.rank];
  }
  if (std::ssize(layers_of_rank) != tp) return false;
  return std::ranges::all_of(layers_of_rank, [&](const auto& entry) {
    return entry.first < tp && entry.second == set.geometry.num_layers;
  });
}

void fill_layers(const ScaleSet& set, const TargetRow& row, int tp, DryRun& run) {
  const LayerRule rule = rule_of(row.engine, run.kind);
  for (const int layer : layers_of(set)) {
    if (is_kept_16_bit(set, layer)) {
      run.layers.push_back(unscaled(layer, "16-bit", tp));
    } else if (run.outcome == LoadOutcome::kUsed) {
      run.layers.push_back(rule(set, layer, row, tp, run));
    } else {
      run.layers.push_back(unscaled(layer, how_of(run.outcome), tp));
    }
    if (!run.starts) return;
  }
  add_sharing_layers(set, run);
}

}  // namespace

std::vector<std::vector<int>> heads_of_ranks(int num_kv_heads, int tp) {
  if (tp < 1) throw ValueError(fmt::format("tp: expected at least 1, found {}", tp));
  const bool divides = num_kv_heads >= tp ? num_kv_heads % tp == 0 : tp % num_kv_heads == 0;
  if (num_kv_heads < 1 || !divides) {
    std::vector<int> divisors;
    for (int n = 1; n <= num_kv_heads; ++n) {
      if (num_kv_heads % n == 0) divisors.push_back(n);
    }
    throw ValueError(fmt::format(
        "tp: {} KV heads and {} ranks do not divide: expected {} ranks, or a multiple of {}",
        num_kv_heads, tp, fmt::join(divisors, ", "), num_kv_heads));
  }
  std::vector<std::vector<int>> ranks;
  for (int rank = 0; rank < tp; ++rank) {
    std::vector<int> heads;
    if (num_kv_heads >= tp) {
      const int each = num_kv_heads / tp;
      for (int h = 0; h < each; ++h) heads.push_back(rank * each + h);
    } else {
      heads.push_back(rank / (tp / num_kv_heads));  // replicated
    }
    ranks.push_back(std::move(heads));
  }
  return ranks;
}

namespace {

/// vLLM makes parameters for scales of MLA with ModelOpt's configuration only, and reads V, which
/// is the latent, through K's.
void expect_latent_scales(DryRun& run) {
  constexpr DirectoryKind kWithScales[] = {DirectoryKind::kModelOpt, DirectoryKind::kModelOptAffine,
                                           DirectoryKind::kModelOptFlatSide,
                                           DirectoryKind::kModelOptProfileB};
  if (run.outcome != LoadOutcome::kUsed) return;
  if (std::ranges::find(kWithScales, run.kind) != std::end(kWithScales)) return;
  run.outcome = LoadOutcome::kDefaults;
  run.message = "for MLA only ModelOpt's configuration makes scale parameters: these are dropped";
}

void read_values_through_k(DryRun& run) {
  if (run.outcome != LoadOutcome::kUsed) return;
  run.notes.emplace_back("V is the beginning of the latent and is read through k_scale");
  const auto differs = [](const LayerOutcome& layer) { return layer.v.ranks != layer.k.ranks; };
  const auto count = std::ranges::count_if(run.layers, differs);
  for (LayerOutcome& layer : run.layers) layer.v = {"shared", layer.k.ranks};
  if (count == 0) return;
  run.warnings.push_back(
      {"mla-v-scale", run.target,
       fmt::format("v_scale differs from k_scale in {} of {} layers and is not used: the cache "
                   "holds one latent, read through k_scale",
                   count, run.layers.size()),
       Severity::kDoubtful});
}

}  // namespace

DryRun dry_run(const ScaleSet& set, const DryRunRequest& request) {
  const TargetRow& row = find_target(request.target);
  const EngineRules& rules = engine_rules(row.engine);
  DryRun run;
  run.target = row.name;
  run.version = request.version.empty() ? std::string(rules.version) : request.version;
  run.kind = directory_kind(set);
  const EngineRule& rule = find_rule(rules, run.kind, run.version);
  const bool is_newer = compare_versions(run.version, rules.version) > 0;
  run.outcome = rule.outcome;
  run.auto_dtype = rule.auto_is_fp8 ? "fp8_e4m3" : "16-bit";
  run.flag = rule.flag;
  run.message = rule.message;
  run.basis = name(is_newer ? Basis::kInferred : rule.basis);
  run.source = rules.source;
  if (rule.outcome == LoadOutcome::kRefused) {
    run.starts = false;
    run.refusal = rule.message;
  }
  if (set.geometry.num_kv_heads > 0 && request.tp > 1) {
    heads_of_ranks(set.geometry.num_kv_heads, request.tp);  // refuses what does not divide
  }
  if (run.kind == DirectoryKind::kSglangJson && run.outcome == LoadOutcome::kUsed &&
      !json_fits(set, request.tp)) {
    run.outcome = LoadOutcome::kDefaults;
    run.message = "the file has not exactly one entry per rank and layer: logged, all scales 1.0";
  }
  const bool is_latent = set.geometry.is_mla && row.engine == "vllm";
  if (is_latent) expect_latent_scales(run);
  if (run.starts && run.outcome != LoadOutcome::kUnknown) fill_layers(set, row, request.tp, run);
  if (is_latent) read_values_through_k(run);
  if (!run.starts) run.outcome = LoadOutcome::kRefused;
  check_target(set, row, run);
  if (const int heads = set.geometry.num_kv_heads; run.starts && heads > 0 && request.tp > heads) {
    run.notes.push_back(fmt::format(
        "{} KV heads on {} ranks: each head and its scale stand on {} of them, one after the other",
        heads, request.tp, request.tp / heads));
  }
  if (is_newer) {
    run.notes.insert(run.notes.begin(),
                     fmt::format("{} {} is newer than {}, the newest that was looked at: taken to "
                                 "do what that one does",
                                 rules.engine, run.version, rules.version));
  }
  return run;
}

}  // namespace kv
