#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "tests/endpoint/fake_server.h"

namespace kv::testing {

using Json = nlohmann::json;

inline double log_softmax_at(std::span<const float> logits, int32_t token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return logits[static_cast<size_t>(token)] - largest - std::log(sum);
}

/// A model under one arm behind HTTP.
class ModelServer {
 public:
  ModelServer(const std::shared_ptr<const Model>& model, const ArmSpec& arm,
              const std::optional<ScaleTable>& scales = std::nullopt,
              StoredValues values = StoredValues::kOfFormat, const BatchPlan& plan = {})
      : engine_(model, plan),
        server_([this](const FakeRequest& request) { return answer(request); }) {
    engine_.add_arm(arm, scales, 4096, 0, values);
  }

  std::string url() const { return server_.url(); }
  int generations() const { return generations_; }
  /// From this many generations on the server is broken.
  void break_after(int generations) { most_ = generations; }

 private:
  /// Servers share a model, whose passes are made for one thread.
  static std::mutex& one_pass_at_a_time() {
    static std::mutex mutex;
    return mutex;
  }

  FakeAnswer answer(const FakeRequest& request) {
    if (request.route == "/v1/models") return ok(R"({"data":[{"id":"tiny"}]})");
    if (request.route != "/v1/completions") return refused(404, "");
    const std::lock_guard lock(one_pass_at_a_time());
    const Json asked = Json::parse(request.body);
    const auto prompt = asked.at("prompt").get<std::vector<int32_t>>();
    if (asked.contains("prompt_logprobs")) return ok(score(prompt).dump());
    if (++generations_ > most_) return refused(500, "out of order");
    return ok(generate(prompt, asked).dump());
  }

  /// The prompt but for its last token, in the cache. Questions of one document find its context
  /// there: the prefix cache of a server.
  Sequence prefilled(const std::vector<int32_t>& prompt) {
    constexpr size_t kQuestion = 24;  // more tokens than any has
    const std::span<const int32_t> context = std::span(prompt).first(prompt.size() - kQuestion);
    const auto holds = [&](const Context& one) {
      return one.tokens.size() < prompt.size() &&
             std::equal(one.tokens.begin(), one.tokens.end(), prompt.begin());
    };
    auto found = std::ranges::find_if(contexts_, holds);
    if (found == contexts_.end()) {
      if (contexts_.size() == 4) contexts_.erase(contexts_.begin());
      contexts_.push_back({{context.begin(), context.end()}, engine_.start(0)});
      found = contexts_.end() - 1;
      const Request request{&found->sequence, found->tokens, -1, nullptr};
      engine_.run({&request, 1});
    }
    Sequence out = found->sequence.fork();
    const Request rest{
        &out,
        std::span(prompt).subspan(found->tokens.size(), prompt.size() - 1 - found->tokens.size()),
        -1, nullptr};
    engine_.run({&rest, 1});
    return out;
  }

  Json generate(const std::vector<int32_t>& prompt, const Json& asked) {
    Sequence sequence = prefilled(prompt);
    std::array<Sequence*, 1> one = {&sequence};
    std::vector<int32_t> stops;
    if (!asked.at("ignore_eos").get<bool>()) {
      stops = asked.at("stop_token_ids").get<std::vector<int32_t>>();
    }
    const std::array<int32_t, 1> first = {prompt.back()};
    const Generation out =
        engine_.generate(one, first, asked.at("max_tokens").get<int64_t>(), stops).front();
    const bool stopped = out.end == Generation::End::kStopId;
    return {{"choices",
             {{{"text", ""},
               {"finish_reason", stopped ? "stop" : "length"},
               {"token_ids", out.tokens}}}}};
  }

  Json score(const std::vector<int32_t>& prompt) {
    Sequence sequence = engine_.start(0);
    const Request all{&sequence, prompt, 0, nullptr};
    Json list = {nullptr};
    engine_.run({&all, 1}, [&](std::span<const LogitRow> rows) {
      for (const LogitRow& row : rows) {
        const auto next = static_cast<size_t>(row.token) + 1;
        if (next == prompt.size()) continue;
        const int32_t token = prompt[next];
        list.push_back({{std::to_string(token),
                         {{"logprob", log_softmax_at(row.logits, token)},
                          {"rank", argmax(row.logits) == token ? 1 : 2}}}});
      }
    });
    return {{"choices", {{{"text", ""}, {"prompt_logprobs", list}}}}};
  }

  struct Context {
    std::vector<int32_t> tokens;
    Sequence sequence;
  };

  Engine engine_;
  std::vector<Context> contexts_;
  std::atomic<int> generations_{0}, most_{1 << 30};
  FakeServer server_;
};

}  // namespace kv::testing
