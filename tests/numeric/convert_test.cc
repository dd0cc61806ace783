// The per-target pieces for kernels, on every target and with vectors of several sizes: the values,
// and that they touch exactly as many elements as the vector has lanes.

#include <gtest/gtest.h>

#include <bit>
#include <cstdint>
#include <string>
#include <vector>

#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/f16.h"
#include "numeric/simd.h"
#include "tests/numeric/reference.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/numeric/convert_test.cc"
#include "hwy/foreach_target.h"
// highway.h and per-target headers must follow foreach_target.h.
#include "hwy/highway.h"
#include "numeric/convert-inl.h"

#ifndef KV_TESTS_NUMERIC_PIECES
#define KV_TESTS_NUMERIC_PIECES
namespace kv {

/// The pieces for one vector size of one target, behind plain pointers.
struct Pieces {
  size_t lanes;
  void (*load_e4m3)(const uint8_t* codes, float* x);
  void (*load_e4m3x4)(const uint8_t* codes, float* x);
  void (*load_bf16)(const uint16_t* halves, float* x);
  void (*load_f16)(const uint16_t* halves, float* x);
  void (*store_bf16)(const float* x, uint16_t* halves);
  void (*store_e4m3_nearest)(const float* x, uint8_t* codes);
  void (*store_e4m3_truncated)(const float* x, uint8_t* codes);
  void (*encode_e4m3)(const float* x, uint32_t* codes);
};

struct TargetPieces {
  int64_t target;
  Pieces sizes[3];
};

}  // namespace kv
#endif  // KV_TESTS_NUMERIC_PIECES

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

template <class D>
struct PiecesOf {
  static void load_e4m3(const uint8_t* codes, float* x) {
    hn::StoreU(LoadE4m3(D(), codes), D(), x);
  }
  static void load_e4m3x4(const uint8_t* codes, float* x) {
    hn::Vec<D> v0, v1, v2, v3;
    LoadE4m3x4(D(), codes, v0, v1, v2, v3);
    hn::StoreU(v0, D(), x);
    hn::StoreU(v1, D(), x + hn::MaxLanes(D()));
    hn::StoreU(v2, D(), x + 2 * hn::MaxLanes(D()));
    hn::StoreU(v3, D(), x + 3 * hn::MaxLanes(D()));
  }
  static void load_bf16(const uint16_t* halves, float* x) {
    hn::StoreU(LoadBf16(D(), halves), D(), x);
  }
  static void load_f16(const uint16_t* halves, float* x) {
    hn::StoreU(LoadF16(D(), halves), D(), x);
  }
  static void store_bf16(const float* x, uint16_t* halves) {
    StoreBf16(D(), hn::LoadU(D(), x), halves);
  }
  template <Rounding kRounding>
  static void store_e4m3(const float* x, uint8_t* codes) {
    StoreE4m3<kRounding>(D(), hn::LoadU(D(), x), codes);
  }
  static void encode_e4m3(const float* x, uint32_t* codes) {
    hn::StoreU(EncodeE4m3(D(), hn::LoadU(D(), x)), hn::RebindToUnsigned<D>(), codes);
  }

  static Pieces all() {
    return {hn::MaxLanes(D()),
            load_e4m3,
            load_e4m3x4,
            load_bf16,
            load_f16,
            store_bf16,
            store_e4m3<Rounding::kNearestEven>,
            store_e4m3<Rounding::kTruncate>,
            encode_e4m3};
  }
};

TargetPieces target_pieces() {
  return {HWY_TARGET,
          {PiecesOf<hn::ScalableTag<float>>::all(), PiecesOf<hn::CappedTag<float, 4>>::all(),
           PiecesOf<hn::CappedTag<float, 1>>::all()}};
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv {
namespace {

HWY_EXPORT(target_pieces);

/// Loads from `first` on, from a buffer that ends with what may be read, at an odd address.
template <class In>
std::vector<float> loaded(void (*load)(const In*, float*), size_t count, const std::vector<In>& all,
                          size_t first) {
  std::vector<In> in(1);
  for (size_t i = 0; i < count; ++i) in.push_back(all[(first + i) % all.size()]);
  in.shrink_to_fit();
  std::vector<float> x(count);
  load(in.data() + 1, x.data());
  return x;
}

/// Stores x between two elements that must not change.
template <class Out>
std::vector<Out> stored(void (*store)(const float*, Out*), const std::vector<float>& x) {
  std::vector<Out> out(x.size() + 2, 0x5a);
  store(x.data(), out.data() + 1);
  EXPECT_EQ(out.front(), 0x5a);
  EXPECT_EQ(out.back(), 0x5a);
  return {out.begin() + 1, out.end() - 1};
}

void check_loads(const Pieces& pieces, size_t first) {
  std::vector<uint8_t> codes(256);
  std::vector<uint16_t> halves(256);
  for (size_t i = 0; i < 256; ++i) {
    codes[i] = static_cast<uint8_t>(i);
    halves[i] = static_cast<uint16_t>(257 * i);
  }
  const auto one = loaded(pieces.load_e4m3, pieces.lanes, codes, first);
  const auto four = loaded(pieces.load_e4m3x4, 4 * pieces.lanes, codes, first);
  const auto bf16s = loaded(pieces.load_bf16, pieces.lanes, halves, first);
  const auto f16s = loaded(pieces.load_f16, pieces.lanes, halves, first);
  for (size_t i = 0; i < four.size(); ++i) {
    const size_t at = (first + i) % 256;
    ASSERT_EQ(bits_of(four[i]), bits_of(e4m3::decode(codes[at]))) << at;
    if (i >= pieces.lanes) continue;
    ASSERT_EQ(bits_of(one[i]), bits_of(e4m3::decode(codes[at]))) << at;
    ASSERT_EQ(bits_of(bf16s[i]), bits_of(bf16::decode(halves[at]))) << at;
    ASSERT_EQ(bits_of(f16s[i]), bits_of(f16::decode(halves[at]))) << at;
  }
}

void check_stores(const Pieces& pieces, size_t first) {
  std::vector<float> x(pieces.lanes);
  for (size_t i = 0; i < x.size(); ++i) {
    // Values on, between and beyond the codes, of both signs, and NaN.
    x[i] = e4m3::decode(static_cast<uint8_t>(first + i)) * (1 + static_cast<float>(i % 5) / 37);
  }
  const auto nearest = stored(pieces.store_e4m3_nearest, x);
  const auto truncated = stored(pieces.store_e4m3_truncated, x);
  const auto halves = stored(pieces.store_bf16, x);
  const auto codes = stored(pieces.encode_e4m3, x);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(nearest[i], e4m3::encode(x[i])) << x[i];
    ASSERT_EQ(codes[i], e4m3::encode(x[i])) << x[i];
    ASSERT_EQ(truncated[i], e4m3::encode(x[i], Rounding::kTruncate)) << x[i];
    ASSERT_EQ(halves[i], bf16::encode(x[i])) << x[i];
  }
}

TEST(ConvertPieces, AgreeWithTheScalarCodeOnEveryTarget) {
  for (const std::string& name : simd_targets()) {
    force_simd_target(name);
    const TargetPieces found = HWY_DYNAMIC_DISPATCH(target_pieces)();
    const bool is_extended =
        name == "avx3_bf16" || name == kAmxName;  // of what Highway calls avx3_dl
    EXPECT_STRCASEEQ(hwy::TargetName(found.target), is_extended ? "avx3_dl" : name.c_str());
    for (const Pieces& pieces : found.sizes) {
      SCOPED_TRACE(name + ", lanes: " + std::to_string(pieces.lanes));
      for (size_t first = 0; first < 256 && !HasFatalFailure(); ++first) {
        check_loads(pieces, first);
        check_stores(pieces, first);
      }
    }
  }
  force_simd_target("");
}

}  // namespace
}  // namespace kv
#endif  // HWY_ONCE
