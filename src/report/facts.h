#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace kv {

/// The model that a report is about.
struct ModelFacts {
  std::string name;          // as the user gave it
  std::string architecture;  // "llama", "qwen2"
  std::string sha256;        // of the weights; empty = not computed
  int64_t num_layers = 0, num_q_heads = 0, num_kv_heads = 0, head_dim = 0;
};

/// The text that it ran on.
struct PromptFacts {
  std::string source;  // file, or "built-in text"
  std::string sha256;
  int64_t documents = 0;
  int64_t tokens = 0;
};

/// What ran, from the dispatcher and the allocator.
struct RunFacts {
  std::vector<std::string> kernels;                  // "attend cpu/avx512_bf16"
  std::map<std::string, std::string> scale_sources;  // layout -> "amax/448 over these prompts"
  int64_t cache_bytes = 0;                           // allocated for all arms together
  int64_t peak_memory_bytes = 0;                     // resident; 0 = not measured
  double seconds = 0;
  std::string machine;  // "AMD EPYC 9654, 2 threads"
  std::string version;  // of kvscale
  std::string command;
};

}  // namespace kv
