#include "study/blocks.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "decide/look_plan.h"
#include "evaluate/near_duplicates.h"
#include "kvscale/error.h"
#include "stats/splitmix64.h"
#include "study/calibration_mix.h"
#include "study/disjoint.h"

namespace kv {
namespace {

// Contexts whose amax says something about more of their kind, and few enough to be run in a
// minute.
constexpr int64_t kCalibrationDocumentsPerBucket = 6;

const std::vector<std::string> kBlocks = {"E1", "E2", "E3", "CAL"};

std::string bucket_of(int64_t tokens, const std::vector<int64_t>& buckets) {
  for (const int64_t edge : buckets) {
    if (tokens <= edge) return fmt::format("{}", edge);
  }
  return "";
}

/// The first `count` documents of each bucket, which is a share of every task.
std::vector<Document> first_of_each_bucket(const std::vector<Document>& documents, int64_t count) {
  std::map<std::string, std::set<std::string>> seen;
  std::vector<Document> out;
  for (const Document& document : documents) {
    std::set<std::string>& here = seen[document.bucket];
    if (std::ssize(here) >= count && !here.contains(document.id)) continue;
    here.insert(document.id);
    out.push_back(document);
  }
  return out;
}

/// The documents of a block with the tasks taking turns, so that every look and both replicate
/// halves have a share of each, and each told which look and half it belongs to.
std::vector<Document> dealt_to_looks(std::vector<Document> documents,
                                     const std::vector<double>& looks) {
  // A document that is there several times, once for each prompt of a cluster, has one turn.
  std::map<std::pair<std::string, std::string>, std::map<std::string, int64_t>> turns;
  std::vector<std::pair<int64_t, Document>> order;
  for (Document& document : documents) {
    std::map<std::string, int64_t>& known = turns[{document.bucket, document.task}];
    const int64_t turn = known.try_emplace(document.id, std::ssize(known)).first->second;
    document.half = 1 + turn % 2;
    order.emplace_back(turn, std::move(document));
  }
  std::ranges::stable_sort(order, {}, [](const auto& one) { return one.first; });
  std::map<std::string, std::set<std::string>> all, seen;  // documents of each bucket
  for (const auto& [turn, document] : order) all[document.bucket].insert(document.id);
  std::vector<Document> out;
  for (auto& [turn, document] : order) {
    std::set<std::string>& before = seen[document.bucket];
    before.insert(document.id);
    document.look = look_of(looks, std::ssize(before) - 1, std::ssize(all[document.bucket]));
    out.push_back(std::move(document));
  }
  return out;
}

using Groups = std::map<std::string, std::vector<const Document*>>;

/// Groups of documents by their bucket, shortest first.
std::vector<std::pair<std::string, const std::vector<const Document*>*>> in_order(
    const Groups& groups, const std::vector<int64_t>& buckets) {
  std::vector<std::pair<std::string, const std::vector<const Document*>*>> out;
  for (const int64_t edge : buckets) {
    const std::string bucket = fmt::format("{}", edge);
    for (const auto& [group, documents] : groups) {
      if (documents.front()->bucket == bucket) out.emplace_back(bucket, &documents);
    }
  }
  return out;
}

}  // namespace

void judge_whole_answers(std::vector<Document>& documents) {
  for (Document& document : documents) {
    for (Question& question : document.questions) {
      if (question.check == Check::kPrefix) question.check = Check::kExact;
    }
  }
}

StudyBlocks::StudyBlocks(const Tokenizer& tokenizer, std::span<const Prompt> prompts,
                         std::string prompts_name, const StudyOptions& options)
    : tokenizer_(tokenizer),
      prompts_(prompts.begin(), prompts.end()),
      prompts_name_(std::move(prompts_name)),
      options_(options) {
  deal_prompts();
}

std::vector<Document> StudyBlocks::generate_block(const std::string& block, int64_t documents,
                                                  int64_t questions) const {
  std::vector<Document> out;
  const auto tasks = static_cast<int64_t>(tasks_.size());
  for (int64_t t = 0; t < tasks; ++t) {
    GeneratorOptions generator;
    generator.task = tasks_[static_cast<size_t>(t)];
    generator.form = options_.form;
    generator.buckets = options_.buckets;
    generator.documents = documents / tasks + (t < documents % tasks ? 1 : 0);
    generator.questions_per_document = questions;
    generator.master_seed = options_.seed;
    generator.block = block;
    if (generator.documents == 0) continue;
    std::vector<Document> made = generate(tokenizer_, generator);
    out.insert(out.end(), std::make_move_iterator(made.begin()),
               std::make_move_iterator(made.end()));
  }
  judge_whole_answers(out);
  return out;
}

void StudyBlocks::deal_prompts() {
  if (const int64_t joined = assign_clusters(prompts_); joined > 0) {
    notices_.push_back(
        fmt::format("{} prompts are near-duplicates of others ({:.0f} % of their runs of 8 tokens) "
                    "and count as "
                    "one document with them",
                    joined, 100 * kNearDuplicate));
  }
  if (const auto commands = std::ranges::count(prompts_, Check::kCommand, &Prompt::check)) {
    notices_.push_back(fmt::format(
        "answers to {} prompts are judged by their commands, which were executed", commands));
  }
  std::map<std::string, std::vector<const Prompt*>> answered;
  std::vector<const Prompt*> unanswered;
  int64_t too_long = 0, longest = 0;
  for (const Prompt& prompt : prompts_) {
    const std::string bucket = bucket_of(std::ssize(prompt.tokens), options_.buckets);
    if (!prompt.has_answer()) {
      unanswered.push_back(&prompt);
    } else if (!bucket.empty()) {
      answered[bucket].push_back(&prompt);
    } else {
      ++too_long;
      longest = std::max(longest, std::ssize(prompt.tokens));
    }
  }
  if (too_long > 0) {
    notices_.push_back(fmt::format(
        "{} prompts with answers are longer than the last bucket of {} tokens and were left out "
        "(the longest has {})",
        too_long, options_.buckets.back(), longest));
  }
  for (const auto& [bucket, prompts] : answered) {
    // Each language by itself, so that calibration gets the evaluation's shares of them.
    std::map<std::string_view, std::vector<const Prompt*>> languages;
    for (const Prompt* prompt : prompts) languages[prompt->language].push_back(prompt);
    for (const auto& [language, some] : languages) deal(some, kBlocks);
    expect_every_block(bucket, prompts);
  }
  deal(unanswered, {"E2", "CAL"});
}

/// Statistics count documents: two are the least that say something about their spread. Clusters
/// with prompts in several buckets can leave a block short even where there are enough.
void StudyBlocks::expect_every_block(const std::string& bucket,
                                     const std::vector<const Prompt*>& prompts) const {
  std::map<std::string, std::set<std::string>> clusters;
  std::set<std::string> all;
  for (const Prompt* prompt : prompts) {
    clusters[block_of_cluster_.at(prompt->cluster)].insert(prompt->cluster);
    all.insert(prompt->cluster);
  }
  for (const std::string& block : kBlocks) {
    if (std::ssize(clusters[block]) >= 2) continue;
    throw ValueError(fmt::format(
        "{}: bucket {}: expected prompts with answers from at least {} documents, 2 for each of "
        "the blocks {}, found {} from {}, {} of them in block {}",
        prompts_name_, bucket, 2 * kBlocks.size(), fmt::join(kBlocks, ", "), prompts.size(),
        all.size(), clusters[block].size(), block));
  }
}

/// In an order that hangs on names alone, so that no order of the file favours a block. A cluster
/// goes into one block as a whole, the one with the fewest clusters of these prompts so far.
void StudyBlocks::deal(std::vector<const Prompt*> prompts, const std::vector<std::string>& blocks) {
  std::ranges::sort(prompts, {}, [](const Prompt* p) {
    return std::tuple(mix(fnv1a64(p->cluster)), p->cluster, p->id);
  });
  std::vector<int64_t> counts(blocks.size());
  std::string last;  // a cluster's prompts stand side by side
  for (const Prompt* prompt : prompts) {
    if (prompt->cluster == last) continue;
    last = prompt->cluster;
    std::string& block = block_of_cluster_[last];
    if (block.empty()) {
      block = blocks[static_cast<size_t>(std::ranges::min_element(counts) - counts.begin())];
    }
    const auto place = std::ranges::find(blocks, block);
    if (place != blocks.end()) ++counts[static_cast<size_t>(place - blocks.begin())];
  }
}

std::vector<Document> StudyBlocks::user_documents(const std::string& block) const {
  std::vector<Document> out;
  for (const Prompt& prompt : prompts_) {
    const std::string bucket = bucket_of(std::ssize(prompt.tokens), options_.buckets);
    if (!prompt.has_answer() || bucket.empty() || block_of_cluster_.at(prompt.cluster) != block)
      continue;
    Document document;
    document.id = prompt.cluster;
    document.task = "user";
    document.bucket = bucket;
    document.target_tokens = std::ssize(prompt.tokens);
    document.language = prompt.language;
    document.context.assign(prompt.tokens.begin(), prompt.tokens.end() - 1);
    Question question;
    question.id = prompt.id;
    question.tokens = {prompt.tokens.back()};
    question.accepted_answers = prompt.accepted_answers;
    question.check = prompt.check;
    question.tag = prompt.tag;
    document.questions.push_back(std::move(question));
    out.push_back(std::move(document));
  }
  return out;
}

const std::vector<Document>& StudyBlocks::documents(const std::string& block) {
  const auto found = documents_.find(block);
  if (found != documents_.end()) return found->second;
  // The A/A block is a part of E1 before its candidate has run: the control's answers serve both.
  std::vector<Document> made =
      block == "AA" ? first_of_each_bucket(documents("E1"), options_.decide.aa_documents)
                    : dealt_to_looks(options_.decide.tasks_from_generators
                                         ? generate_block(block, options_.decide.documents,
                                                          options_.decide.questions_per_document)
                                         : user_documents(block),
                                     options_.decide.looks);
  return documents_[block] = std::move(made);
}

std::vector<Prompt> StudyBlocks::contexts(const std::string& block, int64_t per_bucket) {
  std::vector<Prompt> out;
  for (const int64_t bucket : options_.buckets) {
    std::vector<const Document*> here;
    for (const Document& document : documents(block)) {
      if (document.bucket == fmt::format("{}", bucket)) here.push_back(&document);
    }
    const int64_t count = std::min(per_bucket, std::ssize(here));
    // Spread over the block, so that every task has its share.
    for (int64_t i = 0; i < count; ++i) {
      const Document& document = *here[static_cast<size_t>(i * std::ssize(here) / count)];
      out.push_back({document.id, "", document.context, {}, Check::kContains});
    }
  }
  int64_t room = per_bucket * std::ssize(options_.buckets);
  for (const Prompt& prompt : prompts_) {
    if (prompt.has_answer() || block_of_cluster_.at(prompt.cluster) != block) continue;
    if (room-- <= 0) continue;
    out.push_back(prompt);
  }
  return out;
}

std::vector<CalibrationExample> StudyBlocks::calibration_examples() {
  const bool is_generated = options_.decide.tasks_from_generators;
  // What calibration has as large a share of as the evaluation: lengths and, of the user's
  // documents, languages. ("512/en")
  const auto group_of = [&](const Document& document) {
    return document.bucket + '/' + (is_generated ? "" : document.language);
  };
  Groups groups;
  std::map<std::string, int64_t> available, evaluated;
  for (const Document& document : documents("CAL")) groups[group_of(document)].push_back(&document);
  if (!is_generated) {
    for (const auto& [group, here] : groups) available[group] = std::ssize(here);
    for (const Document& document : documents("E1")) {
      // One that calibration lacks is named when it has run.
      if (groups.contains(group_of(document))) ++evaluated[group_of(document)];
    }
    available = in_proportion(available, evaluated);
  }
  std::vector<CalibrationExample> out;
  for (const auto& [bucket, here] : in_order(groups, options_.buckets)) {
    const std::string group = group_of(*here->front());
    for (const Document* one : is_generated ? share_of_tasks(*here, kCalibrationDocumentsPerBucket)
                                            : spread(*here, available[group])) {
      const Prompt context{.id = one->questions.front().id,
                           .cluster = "",
                           .tokens = one->context,
                           .accepted_answers = {},
                           .language = one->language};
      out.push_back({context, one->task, bucket});
    }
  }
  int64_t room = kCalibrationDocumentsPerBucket * std::ssize(options_.buckets);
  for (const Prompt& prompt : prompts_) {
    if (prompt.has_answer() || block_of_cluster_.at(prompt.cluster) != "CAL") continue;
    if (room-- <= 0) break;
    out.push_back({prompt, "", bucket_of(std::ssize(prompt.tokens), options_.buckets)});
  }
  return out;
}

/// Questions of a bucket's first documents, of which the tasks take turns.
int64_t StudyBlocks::questions_in(int64_t documents) const {
  if (tasks_.empty()) return documents * options_.decide.questions_per_document;
  int64_t out = 0;
  for (int64_t i = 0; i < documents; ++i) {
    const std::string& task = tasks_[static_cast<size_t>(i % std::ssize(tasks_))];
    out += questions_asked(task, options_.decide.questions_per_document);
  }
  return out;
}

std::string StudyBlocks::shared() const {
  std::vector<BlockExample> examples;
  for (const Prompt& prompt : prompts_) {
    const auto block = block_of_cluster_.find(prompt.cluster);
    if (block == block_of_cluster_.end()) continue;  // beyond the last bucket: in no block
    examples.push_back({block->second, prompt.id, prompt.cluster, prompt.tokens});
  }
  for (const auto& [block, documents] : documents_) {
    if (block == "AA" || !options_.decide.tasks_from_generators) continue;
    for (const Document& document : documents) {
      examples.push_back({block, document.questions.front().id,
                          fmt::format("{} seed {}", document.task, document.seed),
                          document.context});
    }
  }
  return shared_by_blocks(examples);
}

std::vector<BlockSize> StudyBlocks::sizes() {
  const DecideOptions& plan = options_.decide;
  std::vector<BlockSize> out;
  for (const std::string block : {"AA", "E1", "E2", "E3"}) {
    const int64_t num_looks = block == "AA" ? 1 : std::ssize(plan.looks);
    for (int64_t look = 1; look <= num_looks; ++look) {
      std::map<std::string, BlockSize> sizes;
      if (plan.tasks_from_generators) {  // without making the documents of blocks that may not run
        const int64_t count = block == "AA" ? std::min(plan.documents, plan.aa_documents)
                                            : documents_at(plan.looks, look, plan.documents);
        for (const int64_t bucket : options_.buckets) {
          BlockSize& size = sizes[fmt::format("{}", bucket)];
          size.documents = count;
          size.examples = questions_in(count);
        }
      } else {
        std::map<std::string, std::set<std::string>> clusters;
        for (const Document& d : documents(block)) {
          if (block != "AA" && d.look > look) continue;
          BlockSize& size = sizes[d.bucket];
          size.examples += std::ssize(d.questions);
          clusters[d.bucket].insert(d.id);
          size.documents = std::ssize(clusters[d.bucket]);
        }
      }
      for (auto& [bucket, size] : sizes) {
        size.block = block;
        size.bucket = bucket;
        size.look = look;
        out.push_back(size);
      }
    }
  }
  return out;
}

}  // namespace kv
