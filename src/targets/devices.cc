#include "targets/devices.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <vector>

#include "kvscale/error.h"

namespace kv {
namespace {

constexpr std::string_view kNoFp8 =
    "no E4M3 in hardware: codes are converted by table or bit operations";
constexpr std::string_view kFnuz =
    "E4M3 of the FNUZ kind: engines double a loaded scale, compressed-tensors' excepted in vLLM";

// Compute capabilities: NVIDIA's list of CUDA GPUs. E4M3 conversion: from 8.9 on.
constexpr std::array<DeviceRow, 16> kDevices{{
    {"h100", 90, "NVIDIA", true, ""},
    {"h200", 90, "NVIDIA", true, ""},
    {"gh200", 90, "NVIDIA", true, ""},
    {"b200", 100, "NVIDIA", true, ""},
    {"gb200", 100, "NVIDIA", true, ""},
    {"b300", 103, "NVIDIA", true, ""},
    {"rtx5090", 120, "NVIDIA", true, ""},
    {"gb10", 121, "NVIDIA", true, ""},
    {"l4", 89, "NVIDIA", true, ""},
    {"l40s", 89, "NVIDIA", true, ""},
    {"rtx4090", 89, "NVIDIA", true, ""},
    {"a100", 80, "NVIDIA", false, kNoFp8},
    {"a10", 86, "NVIDIA", false, kNoFp8},
    {"rtx3090", 86, "NVIDIA", false, kNoFp8},
    {"mi300x", 0, "AMD", true, kFnuz},
    {"cpu", 0, "CPU", false, "x86 with AVX-512 or AMX"},
}};

}  // namespace

std::span<const DeviceRow> devices() { return kDevices; }

const DeviceRow& find_device(std::string_view name) {
  std::vector<std::string_view> known;
  for (const DeviceRow& row : kDevices) {
    if (row.name == name) return row;
    known.push_back(row.name);
  }
  throw ValueError(
      fmt::format("device: expected one of {}, found \"{}\"", fmt::join(known, ", "), name));
}

}  // namespace kv
