#include "endpoint/completion.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <random>

#include "checkpoint/json.h"
#include "endpoint/reply.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using Json = nlohmann::json;

constexpr std::array<std::string_view, 4> kNames = {"vllm", "openai", "sglang", "llama-server"};

Json ids(std::span<const int32_t> tokens) {
  return Json(std::vector<int32_t>(tokens.begin(), tokens.end()));
}

/// Engines differ in whether the id that ended an answer is a part of it.
void cut_stop_id(const GenerateRequest& request, Generated& out) {
  if (out.tokens.empty() ||
      std::ranges::find(request.stop_ids, out.tokens.back()) == request.stop_ids.end()) {
    return;
  }
  out.tokens.pop_back();
  out.ended = true;
}

/// The generated ids of a reply, where it tells them.
void read_tokens(const Reply& owner, const char* key, const GenerateRequest& request,
                 Generated& out) {
  if (!owner.has(key)) return;
  const Reply list = owner.at(key);
  out.tokens = list.tokens();
  out.has_tokens = true;
  if (std::ssize(out.tokens) <= request.max_tokens) return;
  throw FormatError(fmt::format("{}: expected at most {} tokens, found {}", list.path(),
                                request.max_tokens, out.tokens.size()));
}

void expect_length(const Reply& list, size_t expected) {
  if (list.size() == expected) return;
  throw FormatError(
      fmt::format("{}: expected {} entries, one for each token of the prompt, found {}",
                  list.path(), expected, list.size()));
}

/// The entry of one prompt token in vLLM's form: a map from id to logprob and rank.
ScoredToken vllm_entry(const Reply& entry, int32_t token) {
  const Reply own = entry.at(std::to_string(token));
  ScoredToken out{own.at("logprob").logprob(), std::nullopt};
  if (own.has("rank")) out.is_top = own.at("rank").integer(0, INT64_MAX) == 1;
  return out;
}

/// [logprob, id, text] in SGLang's form.
ScoredToken sglang_entry(const Reply& entry, int32_t token) {
  if (const int32_t found = entry.at(1).token(); found != token) {
    throw FormatError(
        fmt::format("{}: expected the prompt's token {}, found {}", entry.path(), token, found));
  }
  return {entry.at(size_t{0}).logprob(), std::nullopt};
}

}  // namespace

std::string_view name(Dialect dialect) { return kNames.at(static_cast<size_t>(dialect)); }

Dialect dialect_from_name(std::string_view name) {
  const auto found = std::ranges::find(kNames, name);
  if (found != kNames.end()) return static_cast<Dialect>(found - kNames.begin());
  throw ValueError(
      fmt::format("server: expected one of {}, found \"{}\"", fmt::join(kNames, ", "), name));
}

std::vector<std::string> served_models(HttpClient& http) {
  const std::string where = http.describe("GET", "/v1/models");
  const HttpReply reply = http.get("/v1/models");
  if (!reply.is_ok()) {
    throw IoError(fmt::format("{}: status {}: {}", where, reply.status, http.shown(reply.body)));
  }
  const Json json = parse_json(reply.body, where);
  const Reply data = Reply(json, where).at("data");
  std::vector<std::string> out;
  for (size_t i = 0; i < data.size(); ++i) out.push_back(data.at(i).at("id").text());
  return out;
}

CompletionClient::CompletionClient(HttpOptions options, Dialect dialect, std::string model)
    : http_(std::move(options)), dialect_(dialect), model_(std::move(model)) {
  const bool must_name = dialect_ == Dialect::kVllm || dialect_ == Dialect::kOpenAi;
  if (!model_.empty() || !must_name) return;
  const std::vector<std::string> models = served_models(http_);
  if (models.size() != 1) {
    throw ValueError(fmt::format("{}: expected one model, found {}: {}",
                                 http_.describe("GET", "/v1/models"), models.size(),
                                 http_.shown(fmt::format("{}", fmt::join(models, ", ")))));
  }
  model_ = models.front();
}

void CompletionClient::forbid_prefix_cache() {
  if (dialect_ != Dialect::kVllm && dialect_ != Dialect::kLlamaServer) {
    throw UnsupportedError(fmt::format(
        "{}: needed a request field against the prefix cache, which {} has not: start the server "
        "without its prefix cache",
        http_.url(), name(dialect_)));
  }
  may_use_prefix_cache_ = false;
  // Not the salts of an earlier process, whose prompts the server may hold.
  salts_ = uint64_t{std::random_device{}()} << 32;
}

std::string CompletionClient::post(const std::string& route, const std::string& json) {
  HttpReply reply = http_.post(route, json);
  if (reply.is_ok()) return std::move(reply.body);
  throw IoError(fmt::format("{}: status {}: {}", http_.describe("POST", route), reply.status,
                            http_.shown(reply.body)));
}

Generated CompletionClient::generate(const GenerateRequest& request) {
  if (request.prompt.empty() || request.max_tokens < 1) {
    throw ValueError("server: expected a prompt and at least one token to generate");
  }
  switch (dialect_) {
    case Dialect::kSglang:
      return generate_sglang(request);
    case Dialect::kLlamaServer:
      return generate_llama(request);
    case Dialect::kVllm:
    case Dialect::kOpenAi:
      break;
  }
  return generate_openai(request);
}

Generated CompletionClient::generate_openai(const GenerateRequest& request) {
  constexpr const char* kRoute = "/v1/completions";
  const std::string where = http_.describe("POST", kRoute);
  Json body = {{"model", model_},
               {"prompt", ids(request.prompt)},
               {"max_tokens", request.max_tokens},
               {"temperature", 0}};
  if (dialect_ == Dialect::kVllm) {
    body["return_token_ids"] = true;
    body["stop_token_ids"] = ids(request.stop_ids);
    body["ignore_eos"] = request.exact_length;
    if (!may_use_prefix_cache_) body["cache_salt"] = fmt::format("kvscale-{}", salts_++);
  }
  const Json json = parse_json(post(kRoute, body.dump()), where);
  const Reply reply(json, where);
  const Reply choice = reply.at("choices").at(size_t{0});
  Generated out;
  if (reply.has("id")) out.reply_id = reply.at("id").text();
  out.text = choice.at("text").text();
  out.ended = choice.at("finish_reason").text() == "stop";
  read_tokens(choice, "token_ids", request, out);
  cut_stop_id(request, out);
  return out;
}

Generated CompletionClient::generate_sglang(const GenerateRequest& request) {
  constexpr const char* kRoute = "/generate";
  const std::string where = http_.describe("POST", kRoute);
  const Json body = {{"input_ids", ids(request.prompt)},
                     {"sampling_params",
                      {{"max_new_tokens", request.max_tokens},
                       {"temperature", 0},
                       {"stop_token_ids", ids(request.stop_ids)},
                       {"ignore_eos", request.exact_length}}}};
  const Json json = parse_json(post(kRoute, body.dump()), where);
  const Reply reply(json, where);
  Generated out;
  out.text = reply.at("text").text();
  const Reply meta = reply.at("meta_info");
  if (meta.has("id")) out.reply_id = meta.at("id").text();
  out.ended = meta.at("finish_reason").at("type").text() == "stop";
  read_tokens(reply, "output_ids", request, out);
  cut_stop_id(request, out);
  return out;
}

Generated CompletionClient::generate_llama(const GenerateRequest& request) {
  constexpr const char* kRoute = "/completion";
  const std::string where = http_.describe("POST", kRoute);
  const Json body = {{"prompt", ids(request.prompt)},
                     {"n_predict", request.max_tokens},
                     {"temperature", 0},
                     {"n_probs", 1},
                     {"cache_prompt", may_use_prefix_cache_},
                     {"return_tokens", true},
                     {"ignore_eos", request.exact_length}};
  const Json json = parse_json(post(kRoute, body.dump()), where);
  const Reply reply(json, where);
  Generated out;
  out.text = reply.at("content").text();
  out.ended = reply.at("stop_type").text() != "limit";
  read_tokens(reply, "tokens", request, out);
  if (reply.has("completion_probabilities")) {
    const Reply list = reply.at("completion_probabilities");
    for (size_t i = 0; i < list.size(); ++i) {
      out.logprobs.push_back(static_cast<float>(list.at(i).at("logprob").logprob()));
    }
  }
  // It knows no stop ids: what stands behind one was not asked for.
  const auto stop = std::ranges::find_first_of(out.tokens, request.stop_ids);
  if (stop == out.tokens.end()) return out;
  out.tokens.erase(stop, out.tokens.end());
  out.ended = true;
  return out;
}

std::vector<ScoredToken> CompletionClient::score(std::span<const int32_t> prompt) {
  if (prompt.size() < 2) throw ValueError("server: expected a prompt of at least two tokens");
  switch (dialect_) {
    case Dialect::kVllm:
      return score_vllm(prompt);
    case Dialect::kOpenAi:
      return score_openai(prompt);
    case Dialect::kSglang:
      return score_sglang(prompt);
    case Dialect::kLlamaServer:
      break;
  }
  throw UnsupportedError(
      fmt::format("{}: llama-server gives no logprobs of the prompt", http_.url()));
}

std::vector<ScoredToken> CompletionClient::score_vllm(std::span<const int32_t> prompt) {
  constexpr const char* kRoute = "/v1/completions";
  const std::string where = http_.describe("POST", kRoute);
  const Json body = {{"model", model_},
                     {"prompt", ids(prompt)},
                     {"max_tokens", 1},
                     {"temperature", 0},
                     {"prompt_logprobs", 0}};
  const Json json = parse_json(post(kRoute, body.dump()), where);
  const Reply list = Reply(json, where).at("choices").at(size_t{0}).at("prompt_logprobs");
  expect_length(list, prompt.size());
  std::vector<ScoredToken> out;
  for (size_t i = 1; i < prompt.size(); ++i) out.push_back(vllm_entry(list.at(i), prompt[i]));
  return out;
}

std::vector<ScoredToken> CompletionClient::score_openai(std::span<const int32_t> prompt) {
  constexpr const char* kRoute = "/v1/completions";
  const std::string where = http_.describe("POST", kRoute);
  const Json body = {{"model", model_},  {"prompt", ids(prompt)}, {"max_tokens", 1},
                     {"temperature", 0}, {"echo", true},          {"logprobs", 1}};
  const Json json = parse_json(post(kRoute, body.dump()), where);
  const Reply logprobs = Reply(json, where).at("choices").at(size_t{0}).at("logprobs");
  const Reply list = logprobs.at("token_logprobs");
  if (list.size() < prompt.size()) expect_length(list, prompt.size());
  std::vector<ScoredToken> out;
  for (size_t i = 1; i < prompt.size(); ++i) out.push_back({list.at(i).logprob(), std::nullopt});
  return out;
}

std::vector<ScoredToken> CompletionClient::score_sglang(std::span<const int32_t> prompt) {
  constexpr const char* kRoute = "/generate";
  const std::string where = http_.describe("POST", kRoute);
  const Json body = {{"input_ids", ids(prompt)},
                     {"sampling_params", {{"max_new_tokens", 1}, {"temperature", 0}}},
                     {"return_logprob", true},
                     {"logprob_start_len", 0},
                     {"top_logprobs_num", 1}};
  const Json json = parse_json(post(kRoute, body.dump()), where);
  const Reply meta = Reply(json, where).at("meta_info");
  const Reply list = meta.at("input_token_logprobs");
  expect_length(list, prompt.size());
  const bool has_tops = meta.has("input_top_logprobs");
  if (has_tops) expect_length(meta.at("input_top_logprobs"), prompt.size());
  std::vector<ScoredToken> out;
  for (size_t i = 1; i < prompt.size(); ++i) {
    out.push_back(sglang_entry(list.at(i), prompt[i]));
    if (!has_tops) continue;
    const Reply top = meta.at("input_top_logprobs").at(i);
    if (top.is_null()) continue;
    out.back().is_top = top.at(size_t{0}).at(1).token() == prompt[i];
  }
  return out;
}

}  // namespace kv
