#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv::cli {

struct InspectArgs {
  std::string path;
  std::string target;   // --for; empty: the scales on their own
  std::string version;  // of the engine
  std::string backend;
  int64_t tp = 1;
  bool hash = false;
  bool json = false;
};

struct ExportArgs {
  std::string model, scales, out;
  std::string target = "vllm";
  std::string layout = "fp8_tensor";
  std::string form;    // empty: what the target reads
  std::string reduce;  // "max", or empty
  std::vector<int64_t> bf16_layers;
  double min_scale = 0;
  int64_t tp = 1;
  bool exact = false;
  bool copy = false;
  bool any_model = false;
  bool json = false;
};

struct VerifyArgs {
  std::string path, against;
  std::string target, version;
  std::string engine_python;
  int64_t tp = 1;
  bool hash = false;
  bool json = false;
};

struct TargetsArgs {
  std::string model, layout, gpu, engine;
  bool json = false;
};

int run_inspect(const InspectArgs& args);
int run_export(const ExportArgs& args);
int run_verify(const VerifyArgs& args);
int run_targets(const TargetsArgs& args);

}  // namespace kv::cli
