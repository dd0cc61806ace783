#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace kv::cli {

/// One scale as an engine's loader holds it.
struct HeldScale {
  std::vector<float> values;    // its tensor, one value or one per head
  std::optional<float> number;  // the one number beside it, which kernels without tensors use
};

/// What an engine's own loader holds, per layer and side ('k', 'v').
struct EngineReading {
  std::string loader;  // "vllm 0.32.0", "transformers 5.19.0 with compressed-tensors 0.17.0"
  std::map<std::pair<int, char>, HeldScale> scales;
};

/// Lets `engine` ("vllm", "sglang", or any other name for Hugging Face's loader) read the directory in a
/// Python that has it, and returns what it held after its own casts. Throws Error with the end of
/// what it printed when it failed.
EngineReading read_with_engine(const std::string& python, const std::string& engine,
                               const std::filesystem::path& folder);

}  // namespace kv::cli
