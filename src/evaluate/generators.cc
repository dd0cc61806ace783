#include "evaluate/generators.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <memory>
#include <span>

#include "evaluate/induction.h"
#include "evaluate/question_cut.h"
#include "evaluate/task.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "text/tokenizer.h"

namespace kv {
namespace {

constexpr std::string_view kIdTask = "induction";  // the one in token ids
constexpr std::array<std::string_view, 5> kBlocks = {"CAL", "E1", "E2", "E3", "AA"};
// Limits of document_seed: block, target and index stand in bits of their own.
constexpr int64_t kTargetLimit = int64_t{1} << 28, kIndexLimit = int64_t{1} << 20;

void append(std::vector<int32_t>& ids, std::span<const int32_t> more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

/// Writes the documents of one task in text.
class Generator {
 public:
  Generator(const Tokenizer& tokenizer, const GeneratorOptions& options)
      : tokenizer_(tokenizer),
        options_(options),
        filler_(tokenizer, options.filler),
        task_(make_task(options_, filler_)),
        cut_(tokenizer, options.task, *task_) {}

  Document document(int64_t target, int64_t index) const;

 private:
  Document finished(const DraftRequest& request, const Draft& draft,
                    std::vector<int32_t> context) const;
  Question question(const DraftRequest& request, const AskedText& asked,
                    const Document& document) const;
  void find_answer(const DraftRequest& request, const AskedText& asked, const Document& document,
                   Question& question) const;

  const Tokenizer& tokenizer_;
  GeneratorOptions options_;
  FillerMaker filler_;
  std::unique_ptr<Task> task_;
  QuestionCut cut_;
};

/// The strata of a bucket are dealt to its documents in turn, so that each document's questions lie
/// all over its context.
std::vector<double> stratified_depths(const GeneratorOptions& options, int64_t target,
                                      int64_t index) {
  SplitMix64 random(mix(document_seed(options, target, index) + 3));
  const int64_t strata =
      options.documents * questions_asked(options.task, options.questions_per_document);
  std::vector<double> out;
  for (int64_t stratum = index; stratum < strata; stratum += options.documents) {
    out.push_back((static_cast<double>(stratum) + random.uniform()) / static_cast<double>(strata));
  }
  return out;
}

Document Generator::document(int64_t target, int64_t index) const {
  const auto prefix = tokenizer_.prefix_ids();
  const int64_t shortest = target - target / 100;
  // Costs of lines add up, but a line and the tail may share a token; one correction mends that.
  constexpr int kAttempts = 8;
  DraftRequest request{options_, cut_, target,
                       index,    0,    stratified_depths(options_, target, index)};
  request.tokens = target - filler_.cost(cut_.tail()) - std::ssize(prefix);
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const Draft drafted = task_->draft(request);
    std::vector<int32_t> context(prefix.begin(), prefix.end());
    append(context, cut_.encode(cut_.context(drafted.body())));
    const auto [least, most] =
        std::minmax_element(drafted.asked.begin(), drafted.asked.end(),
                            [](const auto& a, const auto& b) { return a.cost < b.cost; });
    const int64_t size = std::ssize(context);
    if (size + most->cost <= target && size + least->cost >= shortest) {
      return finished(request, drafted, std::move(context));
    }
    request.tokens -= size + most->cost - target;
  }
  request.refuse("no context of this length was found");
}

Question Generator::question(const DraftRequest& request, const AskedText& asked,
                             const Document& document) const {
  Question out;
  out.tokens = cut_.encode(cut_.question(asked.question));
  out.check = asked.check;
  out.chance = asked.chance;
  out.answer_budget = asked.cost - std::ssize(out.tokens);
  if (asked.is_forced()) {
    find_answer(request, asked, document, out);
  } else {
    out.accepted_answers = asked.accepted;
    out.tag = asked.tag;
    out.ends_with_line = true;
  }
  return out;
}

/// An answer that is forced is judged by its tokens: they must stand in the context as they are.
void Generator::find_answer(const DraftRequest& request, const AskedText& asked,
                            const Document& document, Question& question) const {
  question.answer_tokens = cut_.encode(cut_.answer(asked.answer));
  const std::vector<int32_t>& context = document.context;
  const auto find = [&](auto from) {
    return std::search(from, context.end(), question.answer_tokens.begin(),
                       question.answer_tokens.end());
  };
  const auto found = find(context.begin());
  if (found == context.end() || find(found + 1) != context.end()) {
    request.refuse(fmt::format(
        "the tokens of the answer \"{}\" do not stand exactly once in the context", asked.answer));
  }
  question.depth =
      static_cast<double>(found - context.begin()) / static_cast<double>(context.size());
}

Document Generator::finished(const DraftRequest& request, const Draft& draft,
                             std::vector<int32_t> context) const {
  Document out;
  out.bucket = fmt::format("{}", request.target);
  out.id = fmt::format("{}-{}-{}-{}", options_.task, options_.block, out.bucket, request.index);
  out.task = options_.task;
  if (options_.form == Form::kPlain) out.language = "en";  // the compact form is of no language
  out.target_tokens = request.target;
  out.seed = document_seed(options_, request.target, request.index);
  out.context = std::move(context);
  const std::string text = cut_.context(draft.body());
  std::vector<int64_t> starts = {std::ssize(tokenizer_.prefix_ids())};  // of the lines
  for (const Line& line : draft.lines) starts.push_back(starts.back() + line.tokens);
  for (const AskedText& asked : draft.asked) {
    if (!cut_.is_right(text, asked)) {
      request.refuse(
          fmt::format("tokens join across the cuts of \"{}{}\"", asked.question, asked.answer));
    }
    Question made = question(request, asked, out);
    made.id = fmt::format("{}-q{}", out.id, out.questions.size());
    for (const size_t line : asked.needles) made.needles.push_back(starts[line]);
    if (made.depth < 0) {
      made.depth =
          static_cast<double>(made.needles.front()) / static_cast<double>(out.context.size());
    }
    out.questions.push_back(std::move(made));
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
  if (options.filler == Filler::kDistract && options.task != "niah_multikey") {
    throw ValueError(fmt::format(
        "generator: filler: expected prose or repeat, found distract, for niah_multikey only, "
        "with task {}",
        options.task));
  }
  if (options.buckets.empty()) throw ValueError("generator: buckets: expected some, found none");
  for (size_t i = 0; i < options.buckets.size(); ++i) {
    check_range("bucket", options.buckets[i], 1, kTargetLimit);
    if (std::count(options.buckets.begin(), options.buckets.end(), options.buckets[i]) > 1) {
      throw ValueError(fmt::format("generator: bucket {} occurs twice", options.buckets[i]));
    }
  }
}

}  // namespace

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

namespace {

template <class Make>
std::vector<Document> all_documents(const GeneratorOptions& options, Make make) {
  std::vector<Document> out;
  for (const int64_t target : options.buckets) {
    for (int64_t index = 0; index < options.documents; ++index) {
      out.push_back(make(target, index));
    }
  }
  return out;
}

std::vector<Document> generate_ids(const GeneratorOptions& options, std::span<const int32_t> pool,
                                   std::span<const int32_t> prefix) {
  return all_documents(options, [&](int64_t target, int64_t index) {
    return induction_document(options, pool, prefix, target, index,
                              stratified_depths(options, target, index));
  });
}

std::vector<int32_t> ids_in(const IdRange& range) {
  std::vector<int32_t> out;
  for (int32_t id = range.first; id < range.limit; ++id) out.push_back(id);
  return out;
}

std::vector<int32_t> ordinary_ids(const Tokenizer& tokenizer) {
  std::vector<int32_t> out;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.token(id).empty() && !tokenizer.is_special(id)) out.push_back(id);
  }
  return out;
}

}  // namespace

std::vector<Document> generate(const Tokenizer& tokenizer, const GeneratorOptions& options) {
  check_options(options);
  if (options.task == kIdTask) {
    return generate_ids(options,
                        options.ids.is_empty() ? ordinary_ids(tokenizer) : ids_in(options.ids),
                        tokenizer.prefix_ids());
  }
  const Generator generator(tokenizer, options);
  return all_documents(
      options, [&](int64_t target, int64_t index) { return generator.document(target, index); });
}

std::vector<Document> generate(const GeneratorOptions& options) {
  check_options(options);
  if (options.task != kIdTask || options.ids.is_empty() || options.ids.first < 0) {
    throw ValueError(
        fmt::format("generator: without a tokenizer: expected {} and a range of ids, found {} and "
                    "[{}, {})",
                    kIdTask, options.task, options.ids.first, options.ids.limit));
  }
  return generate_ids(options, ids_in(options.ids), {});
}

std::vector<int32_t> line_end_ids(const Tokenizer& tokenizer) {
  std::vector<int32_t> out;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (tokenizer.token(id).empty()) continue;
    if (tokenizer.token_bytes(id).find('\n') != std::string_view::npos) out.push_back(id);
  }
  return out;
}

}  // namespace kv
