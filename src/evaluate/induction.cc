#include "evaluate/induction.h"

#include <fmt/format.h>

#include <algorithm>

#include "evaluate/index.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"

namespace kv {
namespace {

constexpr int64_t kBeginning = 4;  // tokens of a copy that are given

bool occurs_once(std::span<const int32_t> text, std::span<const int32_t> part) {
  const auto found = std::search(text.begin(), text.end(), part.begin(), part.end());
  return std::search(found + 1, text.end(), part.begin(), part.end()) == text.end();
}

/// Where the copies begin: their ends stay inside the sequence.
std::vector<int64_t> beginnings(int64_t length, int64_t copy, std::span<const double> depths) {
  std::vector<int64_t> out;
  for (const double depth : depths) {
    out.push_back(static_cast<int64_t>(depth * static_cast<double>(length - copy)));
  }
  return out;
}

}  // namespace

Document induction_document(const GeneratorOptions& options, std::span<const int32_t> pool,
                            std::span<const int32_t> prefix, int64_t target, int64_t index,
                            std::span<const double> depths) {
  const int64_t questions = std::ssize(depths), start = std::ssize(prefix);
  const int64_t length = ((target - start) * questions + questions) / (questions + 1);
  const int64_t copy = target - start - length;
  const auto refuse = [&](std::string_view why) {
    throw UnsupportedError(fmt::format("generator {}: {} tokens, {} questions a document: {}",
                                       options.task, target, questions, why));
  };
  if (copy < 2 * kBeginning || length < copy) refuse("too short for a copy");
  const std::vector<int64_t> from = beginnings(length, copy, depths);
  Document out;
  out.bucket = fmt::format("{}", target);
  out.id = fmt::format("{}-{}-{}-{}", options.task, options.block, out.bucket, index);
  out.task = options.task;
  out.target_tokens = target;
  out.seed = document_seed(options, target, index);
  out.context.assign(prefix.begin(), prefix.end());
  out.context.resize(kv::index(start + length));
  const std::span<int32_t> sequence = std::span(out.context).subspan(kv::index(start));
  SplitMix64 random(mix(out.seed + 1));
  const auto is_clear = [&] {
    return std::ranges::all_of(from, [&](int64_t at) {
      return occurs_once(sequence, sequence.subspan(kv::index(at), kBeginning));
    });
  };
  constexpr int kAttempts = 20;
  for (int attempt = 0;; ++attempt) {
    if (attempt == kAttempts) refuse("too few different tokens");
    for (int32_t& id : sequence) id = pool[random.below(pool.size())];
    if (is_clear()) break;
  }
  for (const int64_t at : from) {
    const auto piece = sequence.subspan(kv::index(at), kv::index(copy));
    Question question;
    question.id = fmt::format("{}-q{}", out.id, out.questions.size());
    question.tokens.assign(piece.begin(), piece.begin() + kBeginning);
    question.answer_tokens.assign(piece.begin() + kBeginning, piece.end());
    question.answer_budget = std::ssize(question.answer_tokens);
    question.check = Check::kTokenAccuracy;
    question.chance = 1 / static_cast<double>(pool.size());
    question.needles = {start + at};
    question.depth = static_cast<double>(start + at) / static_cast<double>(out.context.size());
    out.questions.push_back(std::move(question));
  }
  return out;
}

}  // namespace kv
