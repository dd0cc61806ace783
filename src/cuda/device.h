#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

struct CUstream_st;  // cudaStream_t, without CUDA's headers

namespace kv::cuda {

using StreamHandle = CUstream_st*;

/// What the kernels' plans depend on. Throws UnsupportedError when there is no device, or none of
/// compute capability 9.0 (the kernels are sm_90a code, which runs nowhere else).
struct DeviceInfo {
  std::string name;  // "NVIDIA H200"
  int num_sms = 0;
  int64_t shared_bytes = 0;  // per block, opted in
  int64_t l2_bytes = 0;
  int driver_version = 0;  // 13000 = CUDA 13.0
};
const DeviceInfo& device_info();

/// Throws Error naming the call or kernel, with the runtime's text, unless the code is success.
void check(int code, std::string_view what);

/// To be called after every launch: throws if the launch was refused.
void check_launch(std::string_view kernel);

/// Returns when everything that was launched, on any stream, has ended.
void synchronize_device();

/// Device memory; freed by the destructor. Move-only.
class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(int64_t bytes);
  DeviceBuffer(DeviceBuffer&& other) noexcept;
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept;
  ~DeviceBuffer();

  int64_t bytes() const { return bytes_; }
  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

  /// Grows to at least `bytes`; what was in it is lost when it grows.
  void reserve(int64_t bytes);

 private:
  void* data_ = nullptr;
  int64_t bytes_ = 0;
};

/// Copies between host and device on a stream. Host memory is pageable: the call returns after the
/// host's bytes were read (upload), or stay valid until the stream is synchronized (download).
void upload(void* device, const void* host, int64_t bytes, StreamHandle stream);
void download(void* host, const void* device, int64_t bytes, StreamHandle stream);
void fill_bytes(void* device, int value, int64_t bytes, StreamHandle stream);

/// A stream of its own, not synchronized with the default one.
class Stream {
 public:
  Stream();
  ~Stream();
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  StreamHandle handle() const { return handle_; }
  void synchronize() const;

 private:
  StreamHandle handle_ = nullptr;
};

}  // namespace kv::cuda
