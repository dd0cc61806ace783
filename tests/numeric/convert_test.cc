// The per-target pieces for kernels, on every target and with vectors of every size: the values,
// and that they touch exactly as many elements as the vector has lanes.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "numeric/bf16.h"
#include "numeric/e4m3.h"
#include "numeric/f16.h"
#include "numeric/simd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "tests/numeric/convert_test.cc"
#include "hwy/foreach_target.h"
// highway.h and per-target headers must follow foreach_target.h.
#include "hwy/highway.h"
#include "numeric/convert-inl.h"

HWY_BEFORE_NAMESPACE();
namespace kv {
namespace HWY_NAMESPACE {

/// The pieces under test for one vector size, each on the lanes that start at `first`. All buffers
/// are exactly as long as what may be touched, with one odd byte in front of codes.
template <class D>
struct Pieces {
  static constexpr size_t kLanes = hn::MaxLanes(D());

  static HWY_NOINLINE std::vector<float> load_e4m3(size_t first) {
    std::vector<uint8_t> codes(1 + kLanes);
    for (size_t i = 0; i < kLanes; ++i) codes[1 + i] = static_cast<uint8_t>(first + i);
    std::vector<float> x(kLanes);
    hn::StoreU(LoadE4m3(D(), codes.data() + 1), D(), x.data());
    return x;
  }

  static HWY_NOINLINE std::vector<float> load_e4m3x4(size_t first) {
    std::vector<uint8_t> codes(1 + 4 * kLanes);
    for (size_t i = 0; i < 4 * kLanes; ++i) codes[1 + i] = static_cast<uint8_t>(first + i);
    std::vector<float> x(4 * kLanes);
    hn::Vec<D> v0, v1, v2, v3;
    LoadE4m3x4(D(), codes.data() + 1, v0, v1, v2, v3);
    hn::StoreU(v0, D(), x.data());
    hn::StoreU(v1, D(), x.data() + kLanes);
    hn::StoreU(v2, D(), x.data() + 2 * kLanes);
    hn::StoreU(v3, D(), x.data() + 3 * kLanes);
    return x;
  }

  template <bool kF16>
  static HWY_NOINLINE std::vector<float> load_halves(size_t first) {
    std::vector<uint16_t> halves(1 + kLanes);
    for (size_t i = 0; i < kLanes; ++i) halves[1 + i] = static_cast<uint16_t>(257 * (first + i));
    std::vector<float> x(kLanes);
    const uint16_t* p = halves.data() + 1;
    hn::StoreU(kF16 ? LoadF16(D(), p) : LoadBf16(D(), p), D(), x.data());
    return x;
  }

  /// Of these numbers: codes in memory, with a byte before and after that must not change.
  template <Rounding kRounding>
  static HWY_NOINLINE std::vector<uint8_t> store_e4m3(const std::vector<float>& x) {
    std::vector<uint8_t> codes(kLanes + 2, 0x5a);
    StoreE4m3<kRounding>(D(), hn::LoadU(D(), x.data()), codes.data() + 1);
    return codes;
  }

  static HWY_NOINLINE std::vector<uint16_t> store_bf16(const std::vector<float>& x) {
    std::vector<uint16_t> halves(kLanes + 2, 0x5a5a);
    StoreBf16(D(), hn::LoadU(D(), x.data()), halves.data() + 1);
    return halves;
  }

  static HWY_NOINLINE std::vector<uint32_t> encode_e4m3(const std::vector<float>& x) {
    std::vector<uint32_t> codes(kLanes);
    hn::StoreU(EncodeE4m3(D(), hn::LoadU(D(), x.data())), hn::RebindToUnsigned<D>(), codes.data());
    return codes;
  }
};

template <class D>
void check_loads(size_t first) {
  using P = Pieces<D>;
  const auto one = P::load_e4m3(first);
  const auto four = P::load_e4m3x4(first);
  const auto bf16s = P::template load_halves<false>(first);
  const auto f16s = P::template load_halves<true>(first);
  for (size_t i = 0; i < four.size(); ++i) {
    const float value = e4m3::decode(static_cast<uint8_t>(first + i));
    ASSERT_EQ(std::bit_cast<uint32_t>(four[i]), std::bit_cast<uint32_t>(value)) << first + i;
    if (i >= P::kLanes) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(one[i]), std::bit_cast<uint32_t>(value)) << first + i;
    const auto half = static_cast<uint16_t>(257 * (first + i));
    ASSERT_EQ(std::bit_cast<uint32_t>(bf16s[i]), std::bit_cast<uint32_t>(bf16::decode(half)));
    ASSERT_EQ(std::bit_cast<uint32_t>(f16s[i]), std::bit_cast<uint32_t>(f16::decode(half)));
  }
}

template <class D>
void check_stores(size_t first) {
  using P = Pieces<D>;
  std::vector<float> x(P::kLanes);
  for (size_t i = 0; i < x.size(); ++i) {
    // Values on, between and beyond the codes, of both signs, and NaN.
    x[i] = e4m3::decode(static_cast<uint8_t>(first + i)) * (1 + static_cast<float>(i % 5) / 37);
  }
  const auto nearest = P::template store_e4m3<Rounding::kNearestEven>(x);
  const auto truncated = P::template store_e4m3<Rounding::kTruncate>(x);
  const auto codes = P::encode_e4m3(x);
  const auto halves = P::store_bf16(x);
  for (size_t i = 0; i < x.size(); ++i) {
    ASSERT_EQ(nearest[1 + i], e4m3::encode(x[i])) << x[i];
    ASSERT_EQ(codes[i], e4m3::encode(x[i])) << x[i];
    ASSERT_EQ(truncated[1 + i], e4m3::encode(x[i], Rounding::kTruncate)) << x[i];
    ASSERT_EQ(halves[1 + i], bf16::encode(x[i])) << x[i];
  }
  EXPECT_EQ(nearest.front() & nearest.back() & truncated.front() & truncated.back(), 0x5a);
  EXPECT_EQ(halves.front() & halves.back(), 0x5a5a);
}

template <class D>
void check_size() {
  for (size_t first = 0; first < 256; ++first) {
    check_loads<D>(first);
    check_stores<D>(first);
    if (testing::Test::HasFatalFailure()) return;
  }
}

int64_t check_all_sizes() {
  check_size<hn::ScalableTag<float>>();
  check_size<hn::CappedTag<float, 8>>();
  check_size<hn::CappedTag<float, 4>>();
  check_size<hn::CappedTag<float, 2>>();
  check_size<hn::CappedTag<float, 1>>();
  return HWY_TARGET;
}

}  // namespace HWY_NAMESPACE
}  // namespace kv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace kv {
namespace {

HWY_EXPORT(check_all_sizes);

TEST(ConvertPieces, AgreeWithTheScalarCodeOnEveryTarget) {
  std::vector<std::string> ran;
  for (const std::string& name : simd_targets()) {
    SCOPED_TRACE(name);
    force_simd_target(name);
    const int64_t target = HWY_DYNAMIC_DISPATCH(check_all_sizes)();
    EXPECT_STRCASEEQ(hwy::TargetName(target), name == "avx3_bf16" ? "avx3_dl" : name.c_str());
  }
  force_simd_target("");
}

}  // namespace
}  // namespace kv
#endif  // HWY_ONCE
