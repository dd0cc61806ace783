// CompletionClient::stream(): the same requests as events.

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "endpoint/completion.h"
#include "endpoint/reply.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

Json prompt_json(std::span<const int32_t> tokens) {
  return Json(std::vector<int32_t>(tokens.begin(), tokens.end()));
}

/// What streams of one dialect are made of.
struct Stream {
  std::string route;
  Json body;
};

/// Reads events one by one; true while more may come.
class StreamReader {
 public:
  StreamReader(Dialect dialect, std::string where, const std::function<void(int64_t)>& arrived)
      : dialect_(dialect), where_(std::move(where)), arrived_(arrived) {}

  bool read(std::string_view text) {
    if (text == "[DONE]") return false;
    const Json json = parse_json(text, where_);
    const Reply event(json, where_);
    if (event.has("error")) {
      throw IoError(
          fmt::format("{}: the server broke off: {}", where_, shortened(event.at("error").json())));
    }
    if (dialect_ == Dialect::kSglang) return read_sglang(event);
    if (dialect_ == Dialect::kLlamaServer) return read_llama(event);
    return read_openai(event);
  }

  StreamedCounts counts() const { return counts_; }

 private:
  static constexpr int64_t kMost = int64_t{1} << 30;

  bool read_openai(const Reply& event) {
    if (event.has("usage")) {
      const Reply usage = event.at("usage");
      counts_.input_tokens = usage.at("prompt_tokens").integer(0, kMost);
      counts_.output_tokens = usage.at("completion_tokens").integer(0, kMost);
    }
    const Reply choices = event.at("choices");
    if (choices.size() == 0) return true;  // the last one, with the usage alone
    const Reply choice = choices.at(size_t{0});
    const bool has_ids = choice.has("token_ids");
    const auto tokens = has_ids ? static_cast<int64_t>(choice.at("token_ids").size())
                                : int64_t{!choice.at("text").text().empty()};
    if (tokens > 0) arrived_(tokens);
    return true;
  }

  /// Each event counts from the beginning.
  bool read_sglang(const Reply& event) {
    const Reply meta = event.at("meta_info");
    const int64_t so_far = meta.at("completion_tokens").integer(0, kMost);
    if (meta.has("prompt_tokens")) {
      counts_.input_tokens = meta.at("prompt_tokens").integer(0, kMost);
    }
    if (so_far > counts_.output_tokens) arrived_(so_far - counts_.output_tokens);
    counts_.output_tokens = so_far;
    return true;
  }

  bool read_llama(const Reply& event) {
    if (const auto tokens = static_cast<int64_t>(event.at("tokens").size()); tokens > 0) {
      arrived_(tokens);
    }
    counts_.output_tokens = event.at("tokens_predicted").integer(0, kMost);
    counts_.input_tokens = event.at("tokens_evaluated").integer(0, kMost);
    return !event.at("stop").boolean();
  }

  Dialect dialect_;
  std::string where_;
  const std::function<void(int64_t)>& arrived_;
  StreamedCounts counts_;
};

Stream stream_of(Dialect dialect, const std::string& model, const GenerateRequest& request) {
  const Json prompt = prompt_json(request.prompt);
  if (dialect == Dialect::kSglang) {
    return {"/generate",
            {{"input_ids", prompt},
             {"stream", true},
             {"sampling_params",
              {{"max_new_tokens", request.max_tokens}, {"temperature", 0}, {"ignore_eos", true}}}}};
  }
  if (dialect == Dialect::kLlamaServer) {
    return {"/completion",
            {{"prompt", prompt},
             {"n_predict", request.max_tokens},
             {"temperature", 0},
             {"return_tokens", true},
             {"ignore_eos", true},
             {"stream", true}}};
  }
  Json body = {
      {"model", model},   {"prompt", prompt}, {"max_tokens", request.max_tokens},
      {"temperature", 0}, {"stream", true},   {"stream_options", {{"include_usage", true}}}};
  if (dialect == Dialect::kVllm) {
    body["ignore_eos"] = true;
    body["return_token_ids"] = true;
  }
  return {"/v1/completions", body};
}

}  // namespace

StreamedCounts CompletionClient::stream(const GenerateRequest& request,
                                        const std::function<void(int64_t)>& arrived) {
  if (request.prompt.empty() || request.max_tokens < 1) {
    throw ValueError("server: expected a prompt and at least one token to generate");
  }
  Stream asked = stream_of(dialect_, model_, request);
  if (!may_use_prefix_cache_ && dialect_ == Dialect::kVllm) {
    asked.body["cache_salt"] = fmt::format("kvscale-{}", salts_++);
  }
  if (dialect_ == Dialect::kLlamaServer) asked.body["cache_prompt"] = may_use_prefix_cache_;
  StreamReader reader(dialect_, http_.describe("POST", asked.route), arrived);
  http_.stream(asked.route, asked.body.dump(),
               [&](std::string_view text) { return reader.read(text); });
  return reader.counts();
}

}  // namespace kv
