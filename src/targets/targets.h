#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "targets/devices.h"

namespace kv {

/// One quantized layout on one backend.
struct LayoutSupport {
  std::string_view layout;  // "fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head", "q8_0"
  bool supported = false;
  std::string_view math;  // numerics of the two matmuls, as arms spell them: "bf16", "fp8"; "q8_0"
  std::string_view note;  // which backend runs it, what it needs, why it does not run
};

/// Head sizes that a backend takes: the listed ones, else multiples of `multiple` within bounds.
struct HeadDims {
  int multiple = 1, least = 1, most = 1 << 20;
  std::span<const int> listed = {};

  bool take(int head_dim) const;
  std::string text() const;
};

/// What a backend makes of one scale per KV head.
enum class PerHeadScales : uint8_t { kUsed, kMaximum, kRefused };

/// One attention backend of an engine on a class of devices, as data.
struct TargetRow {
  std::string_view name;     // "vllm:flash_attn3"
  std::string_view engine;   // "vllm"
  std::string_view backend;  // the engine's own name of it
  std::string_view versions;
  std::string_view devices;
  std::string_view round;  // of the cache write, as arms spell it: "nearest", "truncate"
  std::string_view pick;   // value of the flag that picks the backend; empty: chosen by itself
  std::string_view source;
  std::span<const LayoutSupport> layouts;
  DeviceRange device_range;
  HeadDims head_dims;
  PerHeadScales per_head = PerHeadScales::kRefused;
  std::string_view log;  // the line that proves which backend runs; empty: none is printed
  std::span<const LayoutSupport> own_layouts = {};  // that no other engine has
};

/// All rows, the default of each engine first.
std::span<const TargetRow> targets();

/// The row of "ENGINE:BACKEND", or the default of "ENGINE"; "@DEVICE" may follow and is checked
/// against the row's devices. Throws ValueError with the names that exist, or with what the row
/// runs on.
const TargetRow& find_target(std::string_view name);

/// "ENGINE:BACKEND", with "@DEVICE" where `name` has one: how a record and a report call the
/// target. Throws as find_target does.
std::string full_target_name(std::string_view name);

/// "vllm", "sglang", ...: each once, in the table's order.
std::vector<std::string_view> engines();

/// Whether `layout` runs on `target`, and with which numerics. "bf16" always does. Throws
/// ValueError for unknown names.
LayoutSupport support(std::string_view layout, std::string_view target);

/// What is to be launched.
struct LaunchRequest {
  std::string layout;
  std::vector<int> bf16_layers;
  std::vector<int> half_bf16_layers;  // only K or only V
};

struct LaunchFlags {
  bool can_express = true;
  std::vector<std::string> flags;  // words of a command line
  std::vector<std::string> notes;  // what the flags alone do not do
  /// The words joined by blanks.
  std::string text() const;
};

/// The command line of `target`'s engine for a layout. Throws ValueError for unknown names.
LaunchFlags launch_flags(const LaunchRequest& request, std::string_view target);

/// Names of the targets that run a layout, in the table's order.
std::vector<std::string_view> targets_that_run(std::string_view layout);

}  // namespace kv
