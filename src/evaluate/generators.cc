#include "evaluate/generators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <span>

#include "evaluate/drafts.h"
#include "evaluate/question_cut.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "text/tokenizer.h"

namespace kv {
namespace {

constexpr std::array<std::string_view, 5> kBlocks = {"CAL", "E1", "E2", "E3", "AA"};
// Limits of document_seed: block, target and index stand in bits of their own.
constexpr int64_t kTargetLimit = int64_t{1} << 28, kIndexLimit = int64_t{1} << 20;

void append(std::vector<int32_t>& ids, std::span<const int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

class Generator {
 public:
  Generator(const Tokenizer& tokenizer, const GeneratorOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        cut_(tokenizer, options.task, options.form),
        drafts_(tokenizer, options, cut_) {}

  Document document(int64_t target, int64_t index) const;

 private:
  Document finished(const Draft& draft, std::vector<int32_t> context, int64_t target,
                    int64_t index) const;
  Question question(const Fact& fact, const Document& document) const;

  const Tokenizer& tokenizer_;
  const GeneratorOptions& options_;
  QuestionCut cut_;
  DraftMaker drafts_;
};

Document Generator::document(int64_t target, int64_t index) const {
  const auto prefix = tokenizer_.prefix_ids();
  const int64_t shortest = target - target / 100;
  // Costs of lines add up, but a line and the tail may share a token; one correction mends that.
  constexpr int kAttempts = 8;
  int64_t tokens = target - drafts_.cost(cut_.tail()) - static_cast<int64_t>(prefix.size());
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Draft drafted = drafts_.draft(target, index, tokens);
    std::vector<int32_t> context(prefix.begin(), prefix.end());
    append(context, cut_.encode(cut_.context(drafted.body)));
    const auto [least, most] = std::minmax_element(
        drafted.asked.begin(), drafted.asked.end(),
        [](const auto& a, const auto& b) { return a.asking_cost < b.asking_cost; });
    const auto size = static_cast<int64_t>(context.size());
    if (size + most->asking_cost <= target && size + least->asking_cost >= shortest) {
      return finished(drafted, std::move(context), target, index);
    }
    tokens -= size + most->asking_cost - target;
  }
  refuse_documents(options_, target, "no context of this length was found");
}

Question Generator::question(const Fact& fact, const Document& document) const {
  Question out;
  out.tokens = cut_.encode(cut_.question(fact));
  out.answer_tokens = cut_.encode(cut_.answer(fact));
  out.check = options_.task == "copy_span" ? Check::kPrefix : Check::kExact;
  const std::vector<int32_t>& context = document.context;
  const auto find = [&](auto from) {
    return std::search(from, context.end(), out.answer_tokens.begin(), out.answer_tokens.end());
  };
  const auto found = find(context.begin());
  if (found == context.end() || find(found + 1) != context.end()) {
    refuse_documents(options_, document.target_tokens,
                     fmt::format("the tokens of the answer \"{}\" do not stand "
                                 "exactly once in the context",
                                 fact.answer));
  }
  out.depth = static_cast<double>(found - context.begin()) / static_cast<double>(context.size());
  return out;
}

Document Generator::finished(const Draft& draft, std::vector<int32_t> context, int64_t target,
                             int64_t index) const {
  Document out;
  out.bucket = fmt::format("{}", target);
  out.id = fmt::format("{}-{}-{}-{}", options_.task, options_.block, out.bucket, index);
  out.task = options_.task;
  out.target_tokens = target;
  out.seed = document_seed(options_, target, index);
  out.context = std::move(context);
  const std::string text = cut_.context(draft.body);
  const double chance = FactMaker(options_.task, options_.form, 0).chance();
  for (const PricedFact& priced : draft.asked) {
    if (!cut_.is_right(text, priced.fact)) {
      refuse_documents(options_, target,
                       fmt::format("tokens join across the cuts of \"{}\"", priced.fact.line()));
    }
    Question asked = question(priced.fact, out);
    asked.id = fmt::format("{}-q{}", out.id, out.questions.size());
    asked.chance = chance;
    out.questions.push_back(std::move(asked));
  }
  return out;
}

void check_range(std::string_view name, int64_t value, int64_t least, int64_t limit) {
  if (value >= least && value < limit) return;
  throw ValueError(fmt::format("generator: {}: expected a number in [{}, {}), found {}", name,
                               least, limit, value));
}

void check_options(const GeneratorOptions& options) {
  const auto& tasks = generator_tasks();
  if (std::find(tasks.begin(), tasks.end(), options.task) == tasks.end()) {
    throw ValueError(fmt::format("generator: task: expected {}, found \"{}\"",
                                 fmt::join(tasks, ", "), options.task));
  }
  check_range("documents", options.documents, 1, kIndexLimit);
  check_range("questions_per_document", options.questions_per_document, 1, 1000);
  if (options.buckets.empty()) throw ValueError("generator: buckets: expected some, found none");
  for (size_t i = 0; i < options.buckets.size(); ++i) {
    check_range("bucket", options.buckets[i], 1, kTargetLimit);
    if (std::count(options.buckets.begin(), options.buckets.end(), options.buckets[i]) > 1) {
      throw ValueError(fmt::format("generator: bucket {} occurs twice", options.buckets[i]));
    }
  }
}

}  // namespace

const std::vector<std::string>& generator_tasks() {
  static const std::vector<std::string> tasks = {"niah_single", "kv_recall", "copy_span"};
  return tasks;
}

uint64_t document_seed(const GeneratorOptions& options, int64_t target_tokens, int64_t index) {
  const auto block = std::find(kBlocks.begin(), kBlocks.end(), options.block);
  if (block == kBlocks.end()) {
    throw ValueError(fmt::format("generator: block: expected {}, found \"{}\"",
                                 fmt::join(kBlocks, ", "), options.block));
  }
  check_range("bucket", target_tokens, 1, kTargetLimit);
  check_range("document", index, 0, kIndexLimit);
  const auto block_number = static_cast<uint64_t>(block - kBlocks.begin());
  const uint64_t number = block_number << 48 | static_cast<uint64_t>(target_tokens) << 20 |
                          static_cast<uint64_t>(index);
  return mix(mix(options.master_seed ^ fnv1a64(options.task)) + number);
}

std::vector<Document> generate(const Tokenizer& tokenizer, const GeneratorOptions& options) {
  check_options(options);
  const Generator generator(tokenizer, options);
  std::vector<Document> out;
  for (const int64_t target : options.buckets) {
    for (int64_t index = 0; index < options.documents; ++index) {
      out.push_back(generator.document(target, index));
    }
  }
  return out;
}

}  // namespace kv
