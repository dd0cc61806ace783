#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "endpoint/http_client.h"

namespace kv {

/// Which routes and fields a server understands.
///   kVllm         /v1/completions with prompt_logprobs, stop_token_ids, return_token_ids
///   kOpenAi       /v1/completions with echo and logprobs alone; answers are texts
///   kSglang       /generate with input_ids and logprob_start_len
///   kLlamaServer  /completion with return_tokens; no logprobs of the prompt
enum class Dialect : uint8_t { kVllm, kOpenAi, kSglang, kLlamaServer };

/// "vllm", "openai", "sglang", "llama-server".
std::string_view name(Dialect dialect);

/// Throws ValueError with the names that exist.
Dialect dialect_from_name(std::string_view name);

/// A prompt to be continued greedily.
struct GenerateRequest {
  std::span<const int32_t> prompt;
  int64_t max_tokens = 1;
  std::span<const int32_t> stop_ids;  // end the answer, and are no part of it
  bool exact_length = false;          // goes on behind the model's own end of text
};

struct Generated {
  std::vector<int32_t> tokens;  // without the stop id
  bool has_tokens = false;      // false: the server tells texts only
  std::vector<float> logprobs;  // nats, of the tokens; empty: the server was not asked
  std::string text;
  bool ended = false;    // by a stop rule, not by max_tokens
  std::string reply_id;  // the server's, where it gives one
};

/// Tokens of a streamed answer, as the server counted them; 0: it does not say.
struct StreamedCounts {
  int64_t input_tokens = 0, output_tokens = 0;
};

/// What the server thinks of one token of a prompt, given those before it.
struct ScoredToken {
  double logprob = 0;          // nats; -infinity where the server says so
  std::optional<bool> is_top;  // the greedy choice; none: not told
};

/// A server that completes prompts given as token ids. May be called from several threads at once.
///
/// Every call throws, beside HttpClient's errors, FormatError naming route, field, expected and
/// found when a reply is not what its dialect promises.
class CompletionClient {
 public:
  /// `model` as the server names it; empty: the one that it serves, asked for at once (not for
  /// llama-server and SGLang, which serve one and do not ask). Throws ValueError with the names
  /// there are when it serves several.
  CompletionClient(HttpOptions options, Dialect dialect, std::string model = "");

  /// Throws IoError with what the server said when it refuses the request.
  Generated generate(const GenerateRequest& request);

  /// The same as a stream, of exactly max_tokens tokens where the engine can be told so: `arrived`
  /// is called, as they come, with the number of tokens of each piece. Returns what the server
  /// counted, 0 where it does not.
  StreamedCounts stream(const GenerateRequest& request,
                        const std::function<void(int64_t tokens)>& arrived);

  /// The logprobs of tokens 1, 2, ... of the prompt: one fewer than it has. Throws ValueError for
  /// fewer than two tokens, UnsupportedError for a dialect that does not give them.
  std::vector<ScoredToken> score(std::span<const int32_t> prompt);

  /// From now on no prompt may be answered from the server's prefix cache: vLLM gets a salt of its
  /// own with every request, llama-server is told not to look. Throws UnsupportedError for dialects
  /// that have no such field. Not while requests are under way.
  void forbid_prefix_cache();

  const std::string& model() const { return model_; }
  Dialect dialect() const { return dialect_; }
  HttpClient& http() { return http_; }

 private:
  std::string post(const std::string& route, const std::string& json);
  Generated generate_openai(const GenerateRequest& request);
  Generated generate_sglang(const GenerateRequest& request);
  Generated generate_llama(const GenerateRequest& request);
  std::vector<ScoredToken> score_vllm(std::span<const int32_t> prompt);
  std::vector<ScoredToken> score_openai(std::span<const int32_t> prompt);
  std::vector<ScoredToken> score_sglang(std::span<const int32_t> prompt);

  HttpClient http_;
  Dialect dialect_;
  std::string model_;
  bool may_use_prefix_cache_ = true;
  std::atomic<uint64_t> salts_{0};
};

/// The models that a server names at /v1/models.
std::vector<std::string> served_models(HttpClient& http);

}  // namespace kv
