#include "model/forward_pass.h"

#include <fmt/core.h>

#include <algorithm>

#include "kvscale/error.h"
#include "numeric/bf16.h"
#include "numeric/bulk.h"
#include "ops/add.h"
#include "ops/rms_norm.h"

namespace kv {
namespace {

std::span<const float> scales_of(const ScaleTable* table, int64_t layer, Side side) {
  return table == nullptr ? std::span<const float>() : table->heads(layer, side);
}

}  // namespace

Model::ForwardPass::ForwardPass(const Model& model, std::span<const Segment> segments,
                                int32_t keys_per_split)
    : model_(model),
      spec_(model.spec()),
      segments_(segments),
      keys_per_split_(keys_per_split),
      q_size_(spec_.num_q_heads * spec_.head_dim),
      kv_size_(spec_.num_kv_heads * spec_.head_dim),
      value_dim_(spec_.latent ? spec_.latent->kv_rank : spec_.head_dim),
      latent_start_(spec_.latent ? model.weights_->layers[0].qkv.out_features() - kv_size_ : 0),
      out_size_(model.weights_->layers[0].o.in_features()) {
  group_segments();
  lay_out_rows();
  const auto allocate = [this](auto& buffer, int64_t columns) {
    buffer.resize(static_cast<size_t>(rows_ * columns));
  };
  allocate(residual_, spec_.hidden_size);
  allocate(block_out_, spec_.hidden_size);
  allocate(normed_, spec_.hidden_size);
  allocate(qkv_, model_.weights_->layers[0].qkv.out_features());
  allocate(q_, q_size_);
  allocate(k_, kv_size_);
  if (spec_.latent) {
    allocate(q_up_, spec_.num_q_heads * (spec_.latent->nope_dim + spec_.latent->rope_dim));
    allocate(expanded_, out_size_);
  } else {
    allocate(v_, kv_size_);
  }
  allocate(attended_, spec_.num_q_heads * value_dim_);
  const int64_t inner = std::max(
      {spec_.intermediate_size, spec_.dense_intermediate_size, spec_.shared_intermediate_size});
  allocate(gate_up_, 2 * inner);
  allocate(act_, inner);
  for (const int32_t position : positions_) {
    if (model_.dispersion_) key_factors_.push_back(model_.dispersion_->factor(position));
  }
  embed();
}

void Model::ForwardPass::group_segments() {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const int64_t end = segment.first_position + std::ssize(segment.tokens);
    if (segment.table->seq_len() < end) {
      throw ShapeError(fmt::format("forward: segment {}: tokens up to {} but room for {}", i, end,
                                   segment.table->seq_len()));
    }
    const KvCache* cache = &segment.table->cache();
    auto group = std::find_if(groups_.begin(), groups_.end(), [&](const Group& g) {
      return g.cache == cache && g.scales == segment.scales && g.math == segment.math;
    });
    if (group == groups_.end()) {
      group = groups_.insert(groups_.end(),
                             Group{cache, segment.scales, segment.math, {}, 0, 1, {}, {}, {0}});
    }
    std::vector<std::vector<int64_t>>& slots = slots_.emplace_back();
    for (size_t pool = 0; pool < cache->num_pools(); ++pool) {
      slots.push_back(
          segment.table->slots(pool, segment.first_position, std::ssize(segment.tokens)));
    }
    group->segments.push_back(i);
  }
}

void Model::ForwardPass::lay_out_rows() {
  first_row_.resize(segments_.size());
  kernels_.resize(segments_.size());
  for (Group& group : groups_) {
    group.first_row = rows_;
    for (const size_t i : group.segments) {
      const Segment& segment = segments_[i];
      const int64_t count = std::ssize(segment.tokens);
      first_row_[i] = rows_;
      for (int64_t t = 0; t < count; ++t)
        positions_.push_back(static_cast<int32_t>(segment.first_position + t));
      rows_ += count;
      group.seq_lens.push_back(static_cast<int32_t>(segment.first_position + count));
      group.query_start.push_back(static_cast<int32_t>(rows_ - group.first_row));
      group.max_blocks = std::max(group.max_blocks, segment.table->blocks().size());
    }
    fill_block_tables(group);
  }
}

void Model::ForwardPass::fill_block_tables(Group& group) const {
  for (size_t pool = 0; pool < group.cache->num_pools(); ++pool) {
    std::vector<int32_t>& table = group.block_tables.emplace_back();
    table.assign(group.segments.size() * group.max_blocks, -1);
    for (size_t s = 0; s < group.segments.size(); ++s) {
      std::ranges::copy(segments_[group.segments[s]].table->blocks(pool),
                        table.begin() + s * group.max_blocks);
    }
  }
}

void Model::ForwardPass::embed() {
  std::vector<uint16_t> row(static_cast<size_t>(spec_.hidden_size));
  const auto scale = static_cast<float>(spec_.embedding_scale);
  for (size_t i = 0; i < segments_.size(); ++i) {
    float* out = residual_.data() + first_row_[i] * spec_.hidden_size;
    for (const int32_t token : segments_[i].tokens) {
      if (token < 0 || token >= spec_.vocab_size) {
        throw ValueError(
            fmt::format("token id: expected 0 to {}, found {}", spec_.vocab_size - 1, token));
      }
      model_.checkpoint().read_bf16("model.embed_tokens.weight", token, 1, row.data());
      bf16_decode(row.data(), out, row.size());
      if (scale != 1.0f) {
        for (size_t d = 0; d < row.size(); ++d) out[d] *= scale;
      }
      out += spec_.hidden_size;
    }
  }
}

TensorView Model::ForwardPass::hidden_view(std::vector<float>& data) const {
  return TensorView::contiguous(data.data(), DType::kF32, {rows_, spec_.hidden_size});
}

TensorView Model::ForwardPass::rows_view(const std::vector<uint16_t>& data, int64_t columns) const {
  return TensorView::contiguous(data.data(), DType::kBF16, {rows_, columns});
}

TensorView Model::ForwardPass::heads_view(std::vector<uint16_t>& data, int64_t first_row,
                                          int64_t rows, int64_t heads) const {
  return TensorView::contiguous(data.data() + first_row * heads * spec_.head_dim, DType::kBF16,
                                {rows, heads, spec_.head_dim});
}

void Model::ForwardPass::project_heads(const Layer& layer) {
  const int64_t size = q_size_ + 2 * kv_size_;
  const KernelUsed used = matmul(layer.qkv, rows_view(normed_, spec_.hidden_size),
                                 TensorView::contiguous(qkv_.data(), DType::kF32, {rows_, size}));
  for (ForwardKernels& kernels : kernels_) kernels.matmul.insert(used.name);
  const auto columns = [&](int64_t first, int64_t count) {
    TensorView view = TensorView::contiguous(qkv_.data() + first, DType::kF32,
                                             {rows_, count / spec_.head_dim, spec_.head_dim});
    view.strides[0] = size;
    return view;
  };
  const auto bias = [&](int64_t first, int64_t count) {
    if (layer.qkv_bias.empty()) return std::span<const float>();
    return std::span(layer.qkv_bias)
        .subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  };
  norm_heads(layer);
  const RopeTable& table = *layer.rope;
  rope(columns(0, q_size_), bias(0, q_size_), positions_, table,
       heads_view(q_, 0, rows_, spec_.num_q_heads));
  rope(columns(q_size_, kv_size_), bias(q_size_, kv_size_), positions_, table,
       heads_view(k_, 0, rows_, spec_.num_kv_heads));
  const int64_t v_first = q_size_ + kv_size_;
  TensorView v = TensorView::contiguous(qkv_.data() + v_first, DType::kF32, {rows_, kv_size_});
  v.strides[0] = size;
  add_bias(v, bias(v_first, kv_size_), rows_view(v_, kv_size_));
}

void Model::ForwardPass::project_out(const Layer& layer) {
  if (spec_.latent) {
    expand_values(layer,
                  TensorView::contiguous(attended_.data(), DType::kBF16,
                                         {rows_, spec_.num_q_heads, value_dim_}),
                  expanded_.data());
  }
  matmul(layer.o, rows_view(spec_.latent ? expanded_ : attended_, out_size_),
         hidden_view(block_out_));
}

void Model::ForwardPass::norm_heads(const Layer& layer) {
  if (!spec_.has_qk_norm) return;
  const auto norm = [&](int64_t first, int64_t heads, std::span<const float> weight) {
    TensorView view =
        TensorView::contiguous(qkv_.data() + first, DType::kF32, {rows_, heads, spec_.head_dim});
    view.strides[0] = q_size_ + 2 * kv_size_;
    rms_norm_in_place(view, weight, static_cast<float>(spec_.rms_norm_eps));
  };
  norm(0, spec_.num_q_heads, layer.q_norm);
  norm(q_size_, spec_.num_kv_heads, layer.k_norm);
}

void Model::ForwardPass::norm_block_out(std::span<const float> weight) {
  if (!spec_.has_post_norms) return;
  rms_norm_in_place(
      TensorView::contiguous(block_out_.data(), DType::kF32, {rows_, 1, spec_.hidden_size}), weight,
      static_cast<float>(spec_.rms_norm_eps));
}

void Model::ForwardPass::add_key_offset(int64_t l) {
  const auto found = model_.key_offsets_.find(l);
  if (found == model_.key_offsets_.end()) return;
  for (size_t i = 0; i < k_.size(); ++i)
    k_[i] = bf16::encode(bf16::decode(k_[i]) + found->second[i % found->second.size()]);
}

void Model::ForwardPass::disperse_keys() {
  if (model_.dispersion_) TokenDispersion::disperse(key_factors_, kv_size_, k_.data());
}

void Model::ForwardPass::round_values(int64_t l) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    if (segment.values == StoredValues::kOfFormat) continue;
    const int64_t tokens = std::ssize(segment.tokens);
    const int64_t kept = std::clamp<int64_t>(segment.sink - segment.first_position, 0, tokens);
    const auto first = static_cast<size_t>((first_row_[i] + kept) * kv_size_);
    const auto count = static_cast<size_t>((tokens - kept) * kv_size_);
    const auto round = [&](std::vector<uint16_t>& side, Format LayerFormat::*format) {
      if (!segment.rounded.empty() && !is_fp8(segment.rounded[static_cast<size_t>(l)].*format))
        return;
      round_to(segment.values, std::span(side).subspan(first, count), segment.rounding);
    };
    round(k_, &LayerFormat::k);
    if (!spec_.latent) round(v_, &LayerFormat::v);  // else its values are a part of its keys
  }
}

void Model::ForwardPass::store(int64_t l) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    const Segment& segment = segments_[i];
    const int64_t count = std::ssize(segment.tokens);
    StoreKvParams p;
    p.k = heads_view(k_, first_row_[i], count, spec_.num_kv_heads);
    if (!spec_.latent) p.v = heads_view(v_, first_row_[i], count, spec_.num_kv_heads);
    const KvCache& cache = segment.table->cache();
    p.slot_mapping = slots_[i][cache.pool_of(l)];
    p.cache = cache.layer(l);
    p.k_scale = scales_of(segment.scales, l, Side::kK);
    p.v_scale = scales_of(segment.scales, l, Side::kV);
    p.rounding = segment.rounding;
    p.counts = segment.counts == nullptr ? nullptr : segment.counts + l;
    if (!model_.dispersion_) {
      kernels_[i].store_kv.insert(store_kv(p, Device::kCpu).name);
      continue;
    }
    const std::span<const float> factors =
        std::span(key_factors_)
            .subspan(static_cast<size_t>(first_row_[i]), static_cast<size_t>(count));
    const Format asked = segment.asked[static_cast<size_t>(l)].k;
    kernels_[i].store_kv.insert(TokenDispersion::store(p, factors, asked).name);
  }
}

void Model::ForwardPass::attend_cache(int64_t l) {
  std::vector<AttendParams> params;
  for (Group& group : groups_) {
    const int64_t rows = group.query_start.back();
    AttendParams p;
    p.q = heads_view(q_, group.first_row, rows, spec_.num_q_heads);
    p.out =
        TensorView::contiguous(attended_.data() + group.first_row * spec_.num_q_heads * value_dim_,
                               DType::kBF16, {rows, spec_.num_q_heads, value_dim_});
    p.cache = group.cache->layer(l);
    p.block_table = TensorView::contiguous(
        group.block_tables[group.cache->pool_of(l)].data(), DType::kI32,
        {std::ssize(group.seq_lens), static_cast<int64_t>(group.max_blocks)});
    p.seq_lens = group.seq_lens;
    p.query_start = group.query_start;
    p.k_scale = scales_of(group.scales, l, Side::kK);
    p.v_scale = scales_of(group.scales, l, Side::kV);
    p.softmax_scale = model_.softmax_scale();
    p.window = static_cast<int32_t>(spec_.window(l));
    p.soft_cap = static_cast<float>(spec_.attention_soft_cap);
    p.math = group.math;
    p.keys_per_split = keys_per_split_;
    params.push_back(p);
  }
  const std::vector<KernelUsed> used = attend(params, Device::kCpu);
  for (size_t g = 0; g < groups_.size(); ++g) {
    for (const size_t i : groups_[g].segments) kernels_[i].attend.insert(used[g].name);
  }
}

AttentionTap Model::ForwardPass::tap(size_t segment, int64_t l) const {
  const Layer& layer = model_.weights_->layers[static_cast<size_t>(l)];
  const int64_t row = first_row_[segment];
  AttentionTap tap;
  tap.layer = l;
  tap.sequence = segments_[segment].sequence;
  tap.first_position = segments_[segment].first_position;
  tap.num_tokens = std::ssize(segments_[segment].tokens);
  tap.num_q_heads = spec_.num_q_heads;
  tap.num_kv_heads = spec_.num_kv_heads;
  tap.head_dim = spec_.head_dim;
  tap.hidden_size = spec_.hidden_size;
  tap.softmax_scale = model_.softmax_scale();
  tap.window = spec_.window(l);
  tap.soft_cap = static_cast<float>(spec_.attention_soft_cap);
  tap.q = q_.data() + row * q_size_;
  tap.k = k_.data() + row * kv_size_;
  tap.v = (spec_.latent ? k_ : v_).data() + row * kv_size_;
  tap.latent_values = spec_.latent ? value_dim_ : 0;
  tap.key_factors = key_factors_.empty() ? nullptr : key_factors_.data() + row;
  tap.residual = residual_.data() + row * spec_.hidden_size;
  tap.block_out = block_out_.data() + row * spec_.hidden_size;
  tap.next_norm = layer.mlp_norm.data();
  tap.project = [this, &layer](const float* in, int64_t rows, float* out) {
    const int64_t size = spec_.num_q_heads * value_dim_;
    std::vector<uint16_t> x(static_cast<size_t>(rows * size));
    bf16_encode(in, x.data(), x.size());
    if (spec_.latent) {
      std::vector<uint16_t> values(static_cast<size_t>(rows * out_size_));
      expand_values(
          layer,
          TensorView::contiguous(x.data(), DType::kBF16, {rows, spec_.num_q_heads, value_dim_}),
          values.data());
      x = std::move(values);
    }
    const TensorView y = TensorView::contiguous(out, DType::kF32, {rows, spec_.hidden_size});
    matmul(layer.o, TensorView::contiguous(x.data(), DType::kBF16, {rows, out_size_}), y);
    if (!spec_.has_post_norms) return;
    rms_norm_in_place(TensorView::contiguous(out, DType::kF32, {rows, 1, spec_.hidden_size}),
                      layer.attention_post, static_cast<float>(spec_.rms_norm_eps));
  };
  return tap;
}

void Model::ForwardPass::show_observers(int64_t l) {
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (segments_[i].observer != nullptr) segments_[i].observer->on_attention(tap(i, l));
  }
}

void Model::ForwardPass::attention_block(int64_t l) {
  const Layer& layer = model_.weights_->layers[static_cast<size_t>(l)];
  const auto eps = static_cast<float>(spec_.rms_norm_eps);
  rms_norm(hidden_view(residual_), layer.input_norm, eps, rows_view(normed_, spec_.hidden_size));
  spec_.latent ? project_latents(layer) : project_heads(layer);
  add_key_offset(l);
  disperse_keys();
  round_values(l);
  store(l);
  attend_cache(l);
  project_out(layer);
  norm_block_out(layer.attention_post);
  show_observers(l);
  add_residual(hidden_view(block_out_), layer.o_bias, hidden_view(residual_));
}

HiddenStates Model::ForwardPass::run() {
  for (int64_t l = 0; l < spec_.num_layers; ++l) {
    attention_block(l);
    mlp_block(model_.weights_->layers[static_cast<size_t>(l)]);
  }
  HiddenStates out;
  out.rows_ = rows_;
  out.first_row_ = first_row_;
  out.normed_.resize(static_cast<size_t>(rows_ * spec_.hidden_size));
  rms_norm(hidden_view(residual_), model_.weights_->final_norm,
           static_cast<float>(spec_.rms_norm_eps), rows_view(out.normed_, spec_.hidden_size));
  return out;
}

}  // namespace kv
