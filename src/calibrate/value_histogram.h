#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cache/layout.h"
#include "model/tap.h"

namespace kv {

/// How often every magnitude was stored. Nothing is binned: a cache stores BF16, which has 32,640
/// finite magnitudes, so the counts say exactly what was seen, whatever the number of tokens. A
/// power of two between magnitudes takes 1 KiB once it occurs, all of them 255 KiB.
class ValueHistogram {
 public:
  struct Bin {
    float magnitude = 0;
    int64_t count = 0;
  };

  /// values [n] bf16, of any sign. NaN and infinities are passed over.
  void add(const uint16_t* values, size_t n);
  void add(const ValueHistogram& other);

  /// Of finite values.
  int64_t count() const;
  /// 0 when there is none.
  float amax() const;
  /// Values with |x| > limit.
  int64_t count_above(float limit) const;
  /// Those with a count, ascending.
  std::vector<Bin> bins() const;

  /// Appends a binary form; take() reads it back and moves `bytes` on. Nothing when it is not one.
  void append_to(std::string& bytes) const;
  static std::optional<ValueHistogram> take(std::string_view& bytes);

  bool operator==(const ValueHistogram& other) const;

 private:
  static constexpr size_t kOctaves = 255;  // exponents of finite BF16
  using Octave = std::array<int64_t, 128>;

  int64_t& count_of(uint16_t magnitude);

  std::array<uint16_t, kOctaves> place_ = {};  // of an octave in octaves_, plus 1; 0 = unseen
  std::vector<Octave> octaves_;
};

/// Histograms of what the cache stores, per layer, side and KV head.
class ValueObserver : public AttentionObserver {
 public:
  ValueObserver(int64_t num_layers, int64_t num_kv_heads);

  void on_attention(const AttentionTap& tap) override;

  const ValueHistogram& head(int64_t layer, Side side, int64_t head) const;
  /// All heads of a layer and side together.
  ValueHistogram tensor(int64_t layer, Side side) const;

  /// All histograms as bytes and back. Throws FormatError naming `file` when they are not those of
  /// a model with these layers and heads.
  std::string bytes() const;
  void read(std::string_view bytes, const std::string& file);

 private:
  int64_t num_layers_, num_kv_heads_;
  std::vector<ValueHistogram> heads_;  // [layer][side][head]
};

}  // namespace kv
