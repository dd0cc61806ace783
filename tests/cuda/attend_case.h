#pragma once

#include <functional>

#include "ops/attend.h"
#include "tests/cuda/device_case.h"

namespace kv {

inline constexpr Format kAllFormats[] = {Format::kBf16, Format::kE4m3PerTensor,
                                         Format::kE4m3PerHead, Format::kE4m3PerTokenHead};
using Change = std::function<void(AttendParams&)>;

struct AttendResult {
  std::vector<float> out;
  std::string name;
};

/// The case on the card. `pad` values lie between two tokens' rows of q and of out.
inline AttendResult run(const PagedCase& c, const Change& change = nullptr, int64_t pad = 0) {
  std::vector<float> host;
  AttendParams p = c.params(host);
  if (change) change(p);
  const int64_t rows = p.q.sizes[0], width = p.q.sizes[1] * p.q.sizes[2], step = width + pad;
  std::vector<uint16_t> q(static_cast<size_t>(rows * step));
  for (int64_t r = 0; r < rows; ++r)
    std::copy_n(p.q.as<const uint16_t>() + r * width, width, q.begin() + r * step);
  const auto device_q = to_device(q.data(), q.size());
  const std::vector<float> unwritten(q.size(), -77.0f);
  const auto device_out = to_device(unwritten.data(), unwritten.size());
  const DevicePages pages(p.cache);
  p.q.data = device_q.data();
  p.out.data = device_out.data();
  p.q.device = p.out.device = Device::kCuda;
  p.q.strides[0] = p.out.strides[0] = step;
  p.cache = pages.view();
  AttendResult result;
  result.name = attend(p, Device::kCuda).name;
  const auto padded = to_host<float>(device_out.data(), unwritten.size());
  for (int64_t r = 0; r < rows; ++r) {
    result.out.insert(result.out.end(), padded.begin() + r * step,
                      padded.begin() + r * step + width);
    for (int64_t i = width; i < step; ++i)
      EXPECT_EQ(padded[static_cast<size_t>(r * step + i)], -77);
  }
  return result;
}

inline std::vector<float> run_ref(const PagedCase& c, const Change& change = nullptr) {
  std::vector<float> out;
  AttendParams p = c.params(out);
  if (change) change(p);
  attend_ref(p);
  return out;
}

/// Weights are rounded once, to F16 (11 bits) or BF16 (8 bits): each moves by half a step at most,
/// so a result moves by at most that share of the largest value; sums and scores in F32 add what
/// the CPU twin's test allows (5e-5). A weight in E4M3 (4 bits) moves by 2^-4 at most.
inline float tolerance(Format format, Math math, float value_size) {
  const float weight = math == Math::kFp8 ? 0x1p-4f : is_fp8(format) ? 0x1p-11f : 0x1p-8f;
  return (weight + 5e-5f) * value_size;
}

inline void expect_close(const std::vector<float>& out, const std::vector<float>& ref,
                         float allowed, const std::string& what) {
  ASSERT_EQ(out.size(), ref.size());
  float worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    ASSERT_TRUE(std::isfinite(out[i])) << what << " element " << i;
    if (std::fabs(out[i] - ref[i]) > worst) worst = std::fabs(out[i] - ref[i]), at = i;
  }
  EXPECT_LT(worst, allowed) << what << " element " << at << " is " << out[at] << ", reference "
                            << ref[at];
}

}  // namespace kv
