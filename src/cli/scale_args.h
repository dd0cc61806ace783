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
  // Servers whose logprobs are held against what kvscale's own engine says: the path is a model.
  std::string control, candidate, scales, prompts, server_model, api_key_env, api_key_file;
  std::string engine = "vllm";
  std::string record;    // file for what was compared
  int64_t tokens = 768;  // of the texts that are sent, at most
  bool full = false;     // all of them, and all hypotheses
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
int run_fingerprint(const VerifyArgs& args);
int run_targets(const TargetsArgs& args);

}  // namespace kv::cli
