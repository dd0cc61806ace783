#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "endpoint/completion.h"

namespace kv {

/// What a server says about itself: routes, metrics and log. Empty or 0: it does not say.
struct ServerFacts {
  std::string engine, version, model;
  std::string process;       // when it was started, in seconds since 1970, as it writes it
  std::string model_dtype;   // of weights and activations: "torch.bfloat16"
  std::string cache_dtype;   // as the front end has it; "auto" proves nothing (vLLM 0.32)
  std::string cache_layout;  // "LBHNC"
  std::string backend;       // of attention, as a log line names it
  std::string device;        // "CPU", "GPU", from the log
  int64_t block_size = 0;    // tokens a block
  int64_t max_model_len = 0;
  int64_t cache_tokens = 0, cache_bytes = 0;  // that fit; the memory that they fit into
  std::vector<std::string> skip_layers;       // kept in the model's dtype
  bool says_scale_one = false;                // that it found no scale and uses 1.0
  std::vector<std::string> warnings;          // of the log, about the cache and its scales

  /// Memory over tokens; 0 when one of the two is not known.
  double bytes_per_token() const;

  /// "vllm 0.32.0, CPU, block size 128, 186,368 tokens in 2,147,483,648 bytes": what is known.
  std::string text() const;
};

/// Asks all routes that the dialect has. A route that is not there leaves its facts empty; a reply
/// of another form than the route promises throws FormatError.
ServerFacts read_server_facts(CompletionClient& client);

/// The servers behind one address, as far as `tries` looks on connections of their own show and as
/// they tell themselves apart (by the start time of the process, in /metrics); each once, in the
/// order of their start times. Empty: they do not tell.
std::vector<ServerFacts> read_replicas(CompletionClient& client, int tries);

/// Adds what the log of a server of `facts.engine` says: vLLM, llama-server (from -lv 4 on).
void add_log_facts(std::string_view log, ServerFacts& facts);

/// The labels of the first sample of a metric in the Prometheus text format; empty when it is not
/// there. Throws FormatError naming `where` for labels that do not end.
std::map<std::string, std::string> metric_labels(std::string_view text, std::string_view metric,
                                                 const std::string& where);

}  // namespace kv
