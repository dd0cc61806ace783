#include "calibrate/value_histogram.h"

#include <fmt/core.h>

#include <cstring>

#include "kvscale/error.h"
#include "numeric/bf16.h"

namespace kv {
namespace {

constexpr uint16_t kMagnitude = 0x7fff, kInfinity = 0x7f80;

template <class T>
void append_bytes(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(T));
}

template <class T>
bool take_bytes(std::string_view& bytes, T& out) {
  if (bytes.size() < sizeof(T)) return false;
  std::memcpy(&out, bytes.data(), sizeof(T));
  bytes.remove_prefix(sizeof(T));
  return true;
}

}  // namespace

int64_t& ValueHistogram::count_of(uint16_t magnitude) {
  uint16_t& place = place_[magnitude >> 7];
  if (place == 0) {
    octaves_.emplace_back();
    octaves_.back().fill(0);
    place = static_cast<uint16_t>(octaves_.size());
  }
  return octaves_[place - 1u][magnitude & 0x7f];
}

void ValueHistogram::add(const uint16_t* values, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    const auto magnitude = static_cast<uint16_t>(values[i] & kMagnitude);
    if (magnitude < kInfinity) ++count_of(magnitude);
  }
}

void ValueHistogram::add(const ValueHistogram& other) {
  for (const Bin& bin : other.bins()) count_of(bf16::encode(bin.magnitude)) += bin.count;
}

std::vector<ValueHistogram::Bin> ValueHistogram::bins() const {
  std::vector<Bin> out;
  for (size_t octave = 0; octave < kOctaves; ++octave) {
    if (place_[octave] == 0) continue;
    const Octave& counts = octaves_[place_[octave] - 1u];
    for (size_t i = 0; i < counts.size(); ++i) {
      if (counts[i] == 0) continue;
      out.push_back({bf16::decode(static_cast<uint16_t>(octave << 7 | i)), counts[i]});
    }
  }
  return out;
}

int64_t ValueHistogram::count() const {
  int64_t out = 0;
  for (const Octave& counts : octaves_) {
    for (const int64_t n : counts) out += n;
  }
  return out;
}

float ValueHistogram::amax() const {
  const std::vector<Bin> all = bins();
  return all.empty() ? 0 : all.back().magnitude;
}

int64_t ValueHistogram::count_above(float limit) const {
  int64_t out = 0;
  for (const Bin& bin : bins()) out += bin.magnitude > limit ? bin.count : 0;
  return out;
}

void ValueHistogram::append_to(std::string& bytes) const {
  const std::vector<Bin> all = bins();
  append_bytes(bytes, static_cast<uint32_t>(all.size()));
  for (const Bin& bin : all) {
    append_bytes(bytes, bf16::encode(bin.magnitude));
    append_bytes(bytes, bin.count);
  }
}

std::optional<ValueHistogram> ValueHistogram::take(std::string_view& bytes) {
  ValueHistogram out;
  uint32_t bins = 0;
  if (!take_bytes(bytes, bins)) return std::nullopt;
  for (; bins > 0; --bins) {
    uint16_t magnitude = 0;
    int64_t count = 0;
    if (!take_bytes(bytes, magnitude) || !take_bytes(bytes, count)) return std::nullopt;
    if (magnitude >= kInfinity || count <= 0) return std::nullopt;
    out.count_of(magnitude) += count;
  }
  return out;
}

bool ValueHistogram::operator==(const ValueHistogram& other) const {
  std::string mine, others;
  append_to(mine);
  other.append_to(others);
  return mine == others;
}

ValueObserver::ValueObserver(int64_t num_layers, int64_t num_kv_heads)
    : num_layers_(num_layers),
      num_kv_heads_(num_kv_heads),
      heads_(static_cast<size_t>(num_layers * 2 * num_kv_heads)) {}

void ValueObserver::on_attention(const AttentionTap& tap) {
  if (tap.layer < 0 || tap.layer >= num_layers_ || tap.num_kv_heads != num_kv_heads_) {
    throw ValueError(
        fmt::format("values: expected layer < {} with {} KV heads, found layer {} with {}",
                    num_layers_, num_kv_heads_, tap.layer, tap.num_kv_heads));
  }
  ValueHistogram* heads = &heads_[static_cast<size_t>(tap.layer * 2 * num_kv_heads_)];
  for (const Side side : kSides) {
    const uint16_t* x = side == Side::kK ? tap.k : tap.v;
    for (int64_t t = 0; t < tap.num_tokens; ++t) {
      for (int64_t h = 0; h < num_kv_heads_; ++h, x += tap.head_dim) {
        heads[static_cast<int64_t>(side) * num_kv_heads_ + h].add(
            x, static_cast<size_t>(tap.head_dim));
      }
    }
  }
}

const ValueHistogram& ValueObserver::head(int64_t layer, Side side, int64_t head) const {
  return heads_.at(
      static_cast<size_t>((layer * 2 + static_cast<int64_t>(side)) * num_kv_heads_ + head));
}

ValueHistogram ValueObserver::tensor(int64_t layer, Side side) const {
  ValueHistogram out;
  for (int64_t h = 0; h < num_kv_heads_; ++h) out.add(head(layer, side, h));
  return out;
}

std::string ValueObserver::bytes() const {
  std::string out;
  for (const ValueHistogram& one : heads_) one.append_to(out);
  return out;
}

void ValueObserver::read(std::string_view bytes, const std::string& file) {
  std::vector<ValueHistogram> heads;
  while (heads.size() < heads_.size()) {
    auto one = ValueHistogram::take(bytes);
    if (!one) break;
    heads.push_back(std::move(*one));
  }
  if (heads.size() != heads_.size() || !bytes.empty()) {
    throw FormatError(
        fmt::format("{}: expected the histograms of {} layers x 2 sides x {} heads, "
                    "found {} and {} bytes more",
                    file, num_layers_, num_kv_heads_, heads.size(), bytes.size()));
  }
  heads_ = std::move(heads);
}

}  // namespace kv
