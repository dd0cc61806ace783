#include "engine/engine.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "kvscale/error.h"

namespace kv {
namespace {

// Logits of one call of the sink: 64 MB, some rows of the largest vocabularies.
constexpr int64_t kLogitFloatsPerCall = 1 << 24;

ScaleTable table_for(const ArmSpec& spec, const std::optional<ScaleTable>& scales,
                     const ModelSpec& model) {
  if (!spec.needs_scales()) {
    const char* source = spec.layout == ArmLayout::kBf16           ? "none: stored as BF16"
                         : spec.layout == ArmLayout::kFp8TokenHead ? "inline, per token and KV head"
                         : spec.layout == ArmLayout::kFp8DsMla ? "inline, per token and 128 values"
                                                               : "scale 1.0 (none supplied)";
    return {model.num_layers, model.num_kv_heads, source};
  }
  if (!scales)
    throw ValueError(fmt::format("arm {}: needs calibrated scales, found none", spec.text()));
  if (scales->num_layers() != model.num_layers || scales->num_kv_heads() != model.num_kv_heads) {
    throw ValueError(
        fmt::format("arm {}: scales ({}): expected {} layers and {} KV heads, found {} and {}",
                    spec.text(), scales->source(), model.num_layers, model.num_kv_heads,
                    scales->num_layers(), scales->num_kv_heads()));
  }
  return *scales;
}

/// The formats that a kernel's name says it worked on, and "/math=fp8" when it says so too: the
/// third and a later part of "attend_cpu/avx2/bf16,bf16/planes/f32".
std::string formats_in(std::string_view kernel) {
  const bool is_fp8_math = kernel.find("/math=fp8") != std::string_view::npos;
  for (int i = 0; i < 2; ++i) kernel.remove_prefix(std::min(kernel.size(), kernel.find('/') + 1));
  return std::string(kernel.substr(0, kernel.find('/'))) + (is_fp8_math ? "/math=fp8" : "");
}

/// What the kernels of an arm must say: of attention with its numerics, of the cache write without.
std::set<std::string> formats_asked(const ArmSpec& spec, const std::vector<LayerFormat>& formats,
                                    bool is_attention) {
  std::set<std::string> out;
  for (const LayerFormat& f : formats) {
    const bool is_fp8_math =
        is_attention && spec.math == Math::kFp8 && (is_fp8(f.k) || is_fp8(f.v));
    out.insert(fmt::format("{},{}{}", name(f.k), name(f.v), is_fp8_math ? "/math=fp8" : ""));
  }
  return out;
}

}  // namespace

int32_t argmax(std::span<const float> logits) {
  size_t best = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    if (!std::isfinite(logits[i])) return -1;
    if (logits[i] > logits[best]) best = i;
  }
  return logits.empty() ? -1 : static_cast<int32_t>(best);
}

/// One request's part of a pass.
struct Engine::Slice {
  size_t request, segment;
  int64_t first, count, logits_from;
};

/// Places for the tokens of a request, taken pass by pass; given back unless the run ends well.
class Engine::Room {
 public:
  explicit Room(BlockTable& table) : table_(&table), first_(table.seq_len()) {}
  ~Room() {
    if (table_ != nullptr) table_->truncate(first_);
  }
  Room(Room&& other) noexcept
      : table_(std::exchange(other.table_, nullptr)), first_(other.first_) {}

  int64_t first() const { return first_; }
  void take(int64_t count) {
    table_->leave_windows(first_);
    table_->append(count);
  }
  void keep() {
    table_->leave_windows(table_->seq_len());
    table_ = nullptr;
  }

 private:
  BlockTable* table_;
  int64_t first_;  // the sequence's length before
};

Engine::Engine(std::shared_ptr<const Model> model, BatchPlan plan)
    : model_(std::move(model)), plan_(plan) {
  if (plan.block_size <= 0 || plan.rows_per_pass <= 0 || plan.keys_per_split < 0) {
    throw ValueError(fmt::format(
        "batch plan: expected block_size and rows_per_pass > 0, keys_per_split >= 0, found {}, "
        "{}, {}",
        plan.block_size, plan.rows_per_pass, plan.keys_per_split));
  }
}

int Engine::add_arm(const ArmSpec& spec, const std::optional<ScaleTable>& scales,
                    int64_t capacity_tokens, int64_t sequences, StoredValues values) {
  if (values != StoredValues::kOfFormat && spec.layout != ArmLayout::kBf16) {
    throw ValueError(fmt::format(
        "arm {}: expected 16-bit pages for values of another format, found codes", spec.text()));
  }
  if (spec.math == Math::kFp8 && has_inline_scales(stored_format(spec.layout))) {
    throw UnsupportedError(fmt::format(
        "arm {}: needed math=fp8 over inline scales, this device supports math=bf16 there",
        spec.text()));
  }
  const ModelSpec& model = model_->spec();
  const bool is_emulated = spec.sink > 0;
  const std::vector<LayerFormat> asked = (is_emulated ? ArmSpec{} : spec).formats(model.num_layers);
  const std::vector<LayerFormat> formats = model_->cache_formats(asked);
  const int64_t blocks = (capacity_tokens + plan_.block_size - 1) / plan_.block_size;
  Arm arm;
  arm.spec = spec;
  arm.values = is_emulated ? StoredValues::kE4m3 : values;
  if (is_emulated) arm.rounded = spec.formats(model.num_layers);
  arm.formats = asked;
  arm.scales = table_for(spec, scales, model);
  const WindowRoom room{sequences, plan_.rows_per_pass};
  arm.cache = std::make_unique<KvCache>(model_->geometry(), formats, plan_.block_size, blocks,
                                        PageOrder::kCpu, room);
  arm.counts.resize(static_cast<size_t>(model.num_layers));
  arm.planned_bytes = pool_bytes(model_->geometry(), formats, plan_.block_size, blocks, room);
  arms_.push_back(std::move(arm));
  return num_arms() - 1;
}

const ArmSpec& Engine::arm(int arm) const { return arms_.at(static_cast<size_t>(arm)).spec; }

int64_t Engine::free_tokens(int arm) const {
  return arms_.at(static_cast<size_t>(arm)).cache->pool().num_free() * plan_.block_size;
}

ArmFacts Engine::facts(int arm) const {
  const Arm& a = arms_.at(static_cast<size_t>(arm));
  const std::string source =
      a.scales->source() + (a.spec.sink > 0 ? ", codes emulated in 16-bit pages" : "");
  return {a.spec.text(), a.kernels, source, a.cache->allocated_bytes(), a.planned_bytes, a.counts};
}

Sequence Engine::start(int arm) {
  return {arm, BlockTable(*arms_.at(static_cast<size_t>(arm)).cache)};
}

void Engine::check(std::span<const Request> requests) const {
  std::set<const Sequence*> seen;
  for (const Request& r : requests) {
    if (!seen.insert(r.sequence).second)
      throw ValueError("sequence: expected once in a call, found twice");
    for (const int32_t token : r.tokens) {
      if (token >= 0 && token < model_->spec().vocab_size) continue;
      throw ValueError(fmt::format("token id: expected 0 to {}, found {}",
                                   model_->spec().vocab_size - 1, token));
    }
    const int64_t length = r.sequence->length() + std::ssize(r.tokens);
    if (length > model_->spec().max_positions) {
      throw ValueError(fmt::format("sequence: {} tokens leave the model's context of {}", length,
                                   model_->spec().max_positions));
    }
  }
}

void Engine::expect_room(std::span<const Request> requests) const {
  std::vector<int64_t> tokens(arms_.size()), needed(arms_.size());
  for (const Request& r : requests) {
    const auto arm = static_cast<size_t>(r.sequence->arm_);
    tokens.at(arm) += std::ssize(r.tokens);
    needed[arm] += r.sequence->table_.blocks_needed(0, std::ssize(r.tokens));
    const BlockPool& pool = arms_[arm].cache->pool();
    if (needed[arm] <= pool.num_free()) continue;
    throw ValueError(fmt::format("cache: {} more tokens need {} blocks, {} of {} are free",
                                 tokens[arm], needed[arm], pool.num_free(), pool.num_blocks()));
  }
}

void Engine::note_kernels(Arm& arm, const ForwardKernels& kernels) const {
  arm.kernels.store_kv.insert(kernels.store_kv.begin(), kernels.store_kv.end());
  arm.kernels.attend.insert(kernels.attend.begin(), kernels.attend.end());
  arm.kernels.matmul.insert(kernels.matmul.begin(), kernels.matmul.end());
  for (const auto* ran : {&kernels.store_kv, &kernels.attend}) {
    const std::set<std::string> asked =
        formats_asked(arm.spec, model_->cache_formats(arm.formats), ran == &kernels.attend);
    std::set<std::string> found;
    for (const std::string& kernel : *ran) found.insert(formats_in(kernel));
    if (found == asked) continue;
    throw Error(fmt::format("arm {}: the kernels that ran are not those asked for: {}",
                            arm.spec.text(), ran->empty() ? "none" : *ran->begin()));
  }
}

void Engine::run(std::span<const Request> requests, const LogitSink& sink) {
  check(requests);
  expect_room(requests);
  int64_t longest = 0;
  for (const Request& r : requests) longest = std::max(longest, std::ssize(r.tokens));
  const int64_t chunk =
      std::max<int64_t>(1, plan_.rows_per_pass / std::max<int64_t>(1, std::ssize(requests)));
  std::vector<Room> rooms;
  rooms.reserve(requests.size());
  for (const Request& r : requests) rooms.emplace_back(r.sequence->table_);
  for (int64_t first = 0; first < longest; first += chunk)
    run_pass(requests, rooms, first, chunk, sink);
  for (Room& room : rooms) room.keep();
}

void Engine::run_pass(std::span<const Request> requests, std::span<Room> rooms, int64_t first,
                      int64_t count, const LogitSink& sink) {
  std::vector<Segment> segments;
  std::vector<Slice> slices;
  for (size_t i = 0; i < requests.size(); ++i) {
    const Request& r = requests[i];
    const int64_t n = std::min(count, std::ssize(r.tokens) - first);
    if (n <= 0) continue;
    Arm& arm = arms_.at(static_cast<size_t>(r.sequence->arm_));
    Segment segment;
    segment.tokens = r.tokens.subspan(static_cast<size_t>(first), static_cast<size_t>(n));
    segment.first_position = rooms[i].first() + first;
    rooms[i].take(n);
    segment.table = &r.sequence->table_;
    segment.scales = &*arm.scales;
    segment.rounding = arm.spec.rounding;
    segment.values = arm.values;
    segment.sink = arm.spec.sink;
    segment.rounded = arm.rounded;
    segment.math = arm.spec.math;
    segment.asked = arm.formats;
    segment.sequence = static_cast<int64_t>(i);
    segment.observer = r.observer;
    segment.counts = arm.counts.data();
    const int64_t from = r.logits_from < 0 || !sink ? first + n : std::max(first, r.logits_from);
    slices.push_back({i, segments.size(), first, n, from});
    segments.push_back(segment);
  }
  std::vector<ForwardKernels> kernels;
  const HiddenStates hidden = model_->forward(segments, plan_.keys_per_split, &kernels);
  for (const Slice& s : slices) {
    note_kernels(arms_.at(static_cast<size_t>(requests[s.request].sequence->arm_)),
                 kernels[s.segment]);
  }
  emit_logits(hidden, slices, sink);
}

void Engine::emit_logits(const HiddenStates& hidden, std::span<const Slice> slices,
                         const LogitSink& sink) const {
  struct Wanted {
    size_t request;
    int64_t token, row;
  };
  std::vector<Wanted> wanted;
  for (const Slice& s : slices) {
    for (int64_t t = s.logits_from; t < s.first + s.count; ++t) {
      wanted.push_back({s.request, t, hidden.row(s.segment, t - s.first)});
    }
  }
  std::ranges::stable_sort(wanted, {}, &Wanted::token);
  const int64_t vocab = model_->spec().vocab_size;
  const auto rows_per_call = static_cast<size_t>(std::max<int64_t>(1, kLogitFloatsPerCall / vocab));
  std::vector<float> logits;
  for (size_t begin = 0; begin < wanted.size();) {
    size_t end = std::min(wanted.size(), begin + rows_per_call);
    // Not between two rows of one token.
    while (end < wanted.size() && end > begin + 1 && wanted[end].token == wanted[end - 1].token)
      --end;
    while (end < wanted.size() && wanted[end].token == wanted[begin].token) ++end;
    std::vector<int64_t> rows;
    for (size_t i = begin; i < end; ++i) rows.push_back(wanted[i].row);
    logits.resize(rows.size() * static_cast<size_t>(vocab));
    model_->logits(hidden, rows, logits.data());
    std::vector<LogitRow> out;
    for (size_t i = begin; i < end; ++i) {
      out.push_back({wanted[i].request, wanted[i].token,
                     std::span(logits).subspan((i - begin) * static_cast<size_t>(vocab),
                                               static_cast<size_t>(vocab))});
    }
    sink(out);
    begin = end;
  }
}

std::vector<Generation> Engine::generate(std::span<Sequence*> sequences,
                                         std::span<const int32_t> first, int64_t max_tokens,
                                         std::span<const int32_t> stop_ids,
                                         const Sampling& sampling,
                                         std::span<const uint64_t> streams) {
  if (first.size() != sequences.size()) {
    throw ValueError(
        fmt::format("generate: {} sequences but {} first tokens", sequences.size(), first.size()));
  }
  if (!sampling.is_greedy() && streams.size() != sequences.size()) {
    throw ValueError(fmt::format("generate: {} sequences but {} streams of random numbers",
                                 sequences.size(), streams.size()));
  }
  TokenPicker picker(sampling);
  std::vector<Generation> out(sequences.size());
  std::vector<int32_t> next(first.begin(), first.end());
  std::vector<size_t> active;
  for (size_t i = 0; i < sequences.size(); ++i) active.push_back(i);
  for (int64_t step = 0; step < max_tokens && !active.empty(); ++step) {
    std::vector<Request> requests;
    for (const size_t i : active) requests.push_back({sequences[i], {&next[i], 1}, 0, nullptr});
    std::vector<Pick> picked(active.size());
    run(requests, [&](std::span<const LogitRow> rows) {
      for (const LogitRow& row : rows) {
        const uint64_t stream = sampling.is_greedy() ? 0 : streams[active[row.request]];
        picked[row.request] = picker.pick(row.logits, stream, step);
      }
    });
    std::vector<size_t> still;
    for (size_t a = 0; a < active.size(); ++a) {
      Generation& generation = out[active[a]];
      const int32_t token = picked[a].token;
      generation.margins.push_back(picked[a].margin);
      if (token < 0) {
        generation.end = Generation::End::kNonFinite;
      } else if (std::ranges::find(stop_ids, token) != stop_ids.end()) {
        generation.end = Generation::End::kStopId;
        generation.stop_id = token;
      } else {
        next[active[a]] = token;
        generation.tokens.push_back(token);
        still.push_back(active[a]);
      }
    }
    active = std::move(still);
  }
  return out;
}

}  // namespace kv
