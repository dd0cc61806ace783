#include "study/control_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "engine/engine.h"
#include "study/own_text.h"

namespace kv {
namespace {

constexpr size_t kTextTokens = 256;
constexpr int64_t kContinuationTokens = 12;

/// -ln of the softmax at `token`, in double.
double surprise(std::span<const float> logits, int32_t token) {
  const double largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(x - largest);
  return largest + std::log(sum) - logits[static_cast<size_t>(token)];
}

}  // namespace

ControlCheck check_control(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer) {
  std::vector<int32_t> tokens = tokenizer.encode(own_text());
  const auto room = static_cast<size_t>(model->spec().max_positions - kContinuationTokens);
  tokens.resize(std::min({tokens.size(), kTextTokens, room}));
  Engine engine(model);
  engine.add_arm(ArmSpec{}, std::nullopt, std::ssize(tokens) + kContinuationTokens);
  Sequence sequence = engine.start(0);
  ControlCheck out;
  out.vocab_size = model->spec().vocab_size;
  double sum = 0;
  int32_t next = -1;
  const Request request{&sequence, tokens, 0, nullptr};
  engine.run({&request, 1}, [&](std::span<const LogitRow> rows) {
    for (const LogitRow& row : rows) {
      next = argmax(row.logits);
      const auto following = static_cast<size_t>(row.token) + 1;
      if (following < tokens.size()) sum += surprise(row.logits, tokens[following]);
    }
  });
  out.tokens = std::ssize(tokens) - 1;
  out.perplexity = std::exp(sum / static_cast<double>(out.tokens));
  if (next < 0 || std::isnan(out.perplexity)) {
    out.perplexity = std::numeric_limits<double>::infinity();
    return out;
  }
  std::array<Sequence*, 1> sequences = {&sequence};
  std::vector<int32_t> written = {next};
  const auto more =
      engine.generate(sequences, written, kContinuationTokens - 1, model->spec().eos_ids);
  written.insert(written.end(), more[0].tokens.begin(), more[0].tokens.end());
  out.continuation = tokenizer.decode(written, true);
  return out;
}

std::string ControlCheck::text() const {
  return fmt::format(
      "perplexity {:.4g} over {} tokens of kvscale's own text (vocabulary {}), which it continues "
      "with {:?}",
      perplexity, tokens, vocab_size, continuation);
}

}  // namespace kv
