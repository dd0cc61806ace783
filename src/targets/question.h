#pragma once

#include <string>
#include <vector>

#include "checkpoint/scales/kv_geometry.h"

namespace kv {

/// "Does this model run this layout there?"
struct TargetQuestion {
  KvGeometry model;
  std::string layout;  // "fp8_head", ...
  std::string device;  // "h100"; empty: any
  std::string engine;  // "vllm", "vllm:triton"; empty: any
};

struct TargetAnswer {
  std::string target;
  bool runs = false;
  std::string reason;  // what it needs, or why it does not run
  std::string math;    // numerics of the matmuls when it runs
};

/// One answer per row of the table that the question names, those that run first.
std::vector<TargetAnswer> answer(const TargetQuestion& question);

}  // namespace kv
