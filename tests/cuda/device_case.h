#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "cuda/device.h"
#include "kvscale/error.h"
#include "tests/ops/paged_case.h"

namespace kv {

/// Why no case of this program can run here; empty when they can.
inline std::string no_device() {
  try {
    cuda::device_info();
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

#define KV_NEEDS_DEVICE() \
  if (const std::string why = no_device(); !why.empty()) GTEST_SKIP() << why

template <class T>
cuda::DeviceBuffer to_device(const T* host, size_t count) {
  cuda::DeviceBuffer buffer(static_cast<int64_t>(count * sizeof(T)));
  cuda::upload(buffer.data(), host, buffer.bytes(), nullptr);
  return buffer;
}

template <class T>
std::vector<T> to_host(const void* device, size_t count) {
  std::vector<T> host(count);
  cuda::download(host.data(), device, static_cast<int64_t>(count * sizeof(T)), nullptr);
  return host;
}

/// The pages of a host cache, in device memory.
class DevicePages {
 public:
  explicit DevicePages(const CacheView& host)
      : pages_(to_device(host.data, static_cast<size_t>(host.num_blocks * host.block_stride))),
        view_(host) {
    view_.data = pages_.as<uint8_t>();
  }
  const CacheView& view() const { return view_; }

 private:
  cuda::DeviceBuffer pages_;
  CacheView view_;
};

}  // namespace kv
