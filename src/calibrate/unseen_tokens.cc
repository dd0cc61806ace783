#include "calibrate/unseen_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>

#include "numeric/bulk.h"

namespace kv {
namespace {

constexpr float kFp8Max = 448;
constexpr size_t kShown = 5;

}  // namespace

std::vector<int32_t> unseen_ids(const CalibrationSource& source, std::span<const int32_t> tokens) {
  std::vector<int32_t> out;
  if (source.token_ids.empty()) return out;
  for (const int32_t id : tokens) {
    if (!std::ranges::binary_search(source.token_ids, id)) out.push_back(id);
  }
  std::ranges::sort(out);
  out.erase(std::unique(out.begin(), out.end()), out.end());
  return out;
}

UnseenTokenObserver::UnseenTokenObserver(const Calibration& calibration,
                                         const std::vector<int32_t>& ids)
    : scales_(calibration.scales(false)) {
  for (const int32_t id : ids) found_.push_back({.id = id});
}

UnseenToken* UnseenTokenObserver::watched(int32_t id) {
  const auto found = std::ranges::lower_bound(found_, id, {}, &UnseenToken::id);
  return found != found_.end() && found->id == id ? &*found : nullptr;
}

void UnseenTokenObserver::on_attention(const AttentionTap& tap) {
  const int64_t values = tap.num_kv_heads * tap.head_dim;
  wide_.resize(static_cast<size_t>(values));
  for (int64_t t = 0; t < tap.num_tokens; ++t) {
    UnseenToken* token = watched(tokens_[static_cast<size_t>(tap.first_position + t)]);
    if (token == nullptr) continue;
    if (tap.layer == 0) ++token->positions;
    for (const Side side : kSides) {
      const uint16_t* stored = (side == Side::kK ? tap.k : tap.v) + t * values;
      bf16_decode(stored, wide_.data(), wide_.size());
      float& amax = side == Side::kK ? token->k_amax : token->v_amax;
      amax = std::max(amax, max_abs(wide_.data(), wide_.size()));
      const float limit = kFp8Max * scales_.heads(tap.layer, side).front();
      token->clipped += std::ranges::count_if(wide_, [&](float x) { return std::abs(x) > limit; });
    }
  }
}

std::vector<UnseenToken> UnseenTokenObserver::worst_first() const {
  std::vector<UnseenToken> out = found_;
  std::ranges::stable_sort(out, std::greater(), [](const UnseenToken& t) {
    return std::tuple(t.clipped, std::max(t.k_amax, t.v_amax));
  });
  return out;
}

std::string unseen_text(std::span<const UnseenToken> worst_first) {
  if (worst_first.empty()) return "";
  int64_t clipped = 0;
  for (const UnseenToken& token : worst_first) clipped += token.clipped;
  std::string out = fmt::format(
      "{} token ids of the prompts were never calibrated on; {} of their values clip under one "
      "scale "
      "per layer:",
      worst_first.size(), clipped);
  for (const UnseenToken& token : worst_first.first(std::min(kShown, worst_first.size()))) {
    out += fmt::format("{} {} (at {} positions, K up to {:.4g}, V up to {:.4g}, {} clipped)",
                       &token == worst_first.data() ? "" : ",", token.id, token.positions,
                       token.k_amax, token.v_amax, token.clipped);
  }
  return out + (worst_first.size() > kShown ? ", ..." : "");
}

}  // namespace kv
