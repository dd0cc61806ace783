#include "cuda/device.h"

#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <utility>

#include "kvscale/error.h"

namespace kv::cuda {
namespace {

DeviceInfo query() {
  int device = 0;
  const cudaError_t found = cudaGetDevice(&device);
  if (found != cudaSuccess) {
    throw UnsupportedError(
        fmt::format("cuda: needed a CUDA device of compute capability 9.0, found none ({})",
                    cudaGetErrorString(found)));
  }
  cudaDeviceProp properties;
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
  if (properties.major != 9 || properties.minor != 0) {
    throw UnsupportedError(
        fmt::format("cuda: needed compute capability 9.0 (sm_90a kernels), {} has {}.{}",
                    properties.name, properties.major, properties.minor));
  }
  DeviceInfo info;
  info.name = properties.name;
  info.num_sms = properties.multiProcessorCount;
  info.shared_bytes = static_cast<int64_t>(properties.sharedMemPerBlockOptin);
  info.l2_bytes = properties.l2CacheSize;
  check(cudaDriverGetVersion(&info.driver_version), "cudaDriverGetVersion");
  return info;
}

}  // namespace

const DeviceInfo& device_info() {
  static const DeviceInfo info = query();
  return info;
}

void check(int code, std::string_view what) {
  const auto error = static_cast<cudaError_t>(code);
  if (error == cudaSuccess) return;
  throw Error(
      fmt::format("cuda: {}: {} ({})", what, cudaGetErrorString(error), cudaGetErrorName(error)));
}

void check_launch(std::string_view kernel) { check(cudaGetLastError(), kernel); }

void synchronize_device() { check(cudaDeviceSynchronize(), "cudaDeviceSynchronize"); }

DeviceBuffer::DeviceBuffer(int64_t bytes) : bytes_(bytes) {
  if (bytes > 0) check(cudaMalloc(&data_, static_cast<size_t>(bytes)), "cudaMalloc");
}

DeviceBuffer::DeviceBuffer(DeviceBuffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}

DeviceBuffer& DeviceBuffer::operator=(DeviceBuffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

DeviceBuffer::~DeviceBuffer() { cudaFree(data_); }

void DeviceBuffer::reserve(int64_t bytes) {
  if (bytes > bytes_) *this = DeviceBuffer(bytes);
}

void upload(void* device, const void* host, int64_t bytes, StreamHandle stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(device, host, static_cast<size_t>(bytes), cudaMemcpyHostToDevice, stream),
        "upload");
}

void download(void* host, const void* device, int64_t bytes, StreamHandle stream) {
  if (bytes == 0) return;
  check(cudaMemcpyAsync(host, device, static_cast<size_t>(bytes), cudaMemcpyDeviceToHost, stream),
        "download");
}

void fill_bytes(void* device, int value, int64_t bytes, StreamHandle stream) {
  check(cudaMemsetAsync(device, value, static_cast<size_t>(bytes), stream), "fill");
}

Stream::Stream() {
  check(cudaStreamCreateWithFlags(&handle_, cudaStreamNonBlocking), "cudaStreamCreate");
}

Stream::~Stream() { cudaStreamDestroy(handle_); }

void Stream::synchronize() const { check(cudaStreamSynchronize(handle_), "synchronize"); }

}  // namespace kv::cuda
