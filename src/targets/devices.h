#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace kv {

/// A device that serves models, by the name people use.
struct DeviceRow {
  std::string_view name;       // "h100"
  int compute_capability = 0;  // NVIDIA's, times ten: 90; 0 for others
  std::string_view kind;       // "NVIDIA", "CPU", "AMD"
  bool converts_fp8 = false;   // E4M3 conversion in hardware
  std::string_view note;
};

/// The devices that a backend runs on: one kind, and for NVIDIA a range of compute capabilities.
struct DeviceRange {
  std::string_view kind;
  int from = 0, to = 0;  // inclusive, times ten

  bool holds(const DeviceRow& device) const {
    const bool is_kind = device.kind == kind;
    return is_kind && device.compute_capability >= from && device.compute_capability <= to;
  }
};

std::span<const DeviceRow> devices();

/// Throws ValueError with the names that exist.
const DeviceRow& find_device(std::string_view name);

}  // namespace kv
