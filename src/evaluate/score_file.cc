#include "evaluate/score_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "evaluate/bucket_means.h"
#include "evaluate/logit_metrics.h"
#include "evaluate/shallow_json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using SampleJson = nlohmann::ordered_json;

// ---- lines ----

/// JSON has no NaN and no infinities, but the programs that write these logs do: null stands in,
/// and a score that is null is refused.
std::string without_bare_nan(const std::string& line) {
  static constexpr std::string_view kWords[] = {"NaN", "-Infinity", "Infinity"};
  std::string out;
  bool in_string = false;
  for (size_t i = 0; i < line.size(); ++i) {
    const char c = line[i];
    if (in_string && c == '\\' && i + 1 < line.size()) {
      out += c;
      out += line[++i];
      continue;
    }
    if (c == '"') in_string = !in_string;
    const auto* word = std::ranges::find_if(
        kWords, [&](std::string_view w) { return line.compare(i, w.size(), w) == 0; });
    if (!in_string && word != std::end(kWords)) {
      out += "null";
      i += word->size() - 1;
    } else {
      out += c;
    }
  }
  return out;
}

struct StoredLine {
  SampleJson json;
  std::string where;

  [[noreturn]] void refuse(const std::string& field, std::string_view expected,
                           const std::string& found) const {
    throw FormatError(fmt::format("{}: \"{}\": expected {}, found {}", where, field, expected,
                                  found.size() > 60 ? found.substr(0, 57) + "..." : found));
  }
};

std::string shown(const SampleJson& value) {
  if (value.is_null()) return "null or NaN";
  return value.dump(-1, ' ', false, SampleJson::error_handler_t::replace);
}

template <class Use>
void for_each_sample(const fs::path& path, Use use) {
  std::ifstream file(path, std::ios::binary);
  if (!file) throw IoError(fmt::format("{}: cannot be read", path.string()));
  size_t number = 0;
  for (std::string text; std::getline(file, text);) {
    ++number;
    if (text.find_first_not_of(" \t\r") == std::string::npos) continue;
    StoredLine line{{}, fmt::format("{}: line {}", path.string(), number)};
    try {
      line.json = parse_shallow<SampleJson>(without_bare_nan(text));
    } catch (const FormatError& error) {
      throw FormatError(fmt::format("{}: {}", line.where, error.what()));
    } catch (const SampleJson::exception& error) {
      throw FormatError(fmt::format("{}: not JSON: {}", line.where, error.what()));
    }
    if (!line.json.is_object()) line.refuse("line", "a JSON object", shown(line.json));
    use(line);
  }
}

/// A field by its path with dots; null when some part of it is not there.
const SampleJson* field_at(const SampleJson& object, const std::string& path) {
  const SampleJson* at = &object;
  size_t begin = 0;
  while (begin <= path.size()) {
    const size_t end = std::min(path.find('.', begin), path.size());
    if (!at->is_object()) return nullptr;
    const auto found = at->find(path.substr(begin, end - begin));
    if (found == at->end()) return nullptr;
    at = &*found;
    begin = end + 1;
  }
  return at;
}

std::string text_of(const SampleJson& value) {
  return value.is_string() ? value.get<std::string>() : shown(value);
}

// ---- sample logs ----

/// "samples_gsm8k_2026-11-30T12-00-00.1.jsonl" -> "gsm8k".
std::string task_of(const fs::path& path) {
  std::string name = path.stem().string();
  if (name.starts_with("samples_")) name = name.substr(8);
  const size_t last = name.rfind('_');
  const bool ends_in_date = last != std::string::npos && last + 5 < name.size() &&
                            name.find_first_not_of("0123456789", last + 1) == last + 5 &&
                            name[last + 5] == '-';
  return ends_in_date ? name.substr(0, last) : name;
}

std::vector<fs::path> sample_files(const fs::path& path) {
  if (!fs::is_directory(path)) return {path};
  std::vector<fs::path> out;
  for (const auto& entry : fs::directory_iterator(path)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with("samples_") && name.ends_with(".jsonl")) out.push_back(entry.path());
  }
  std::ranges::sort(out);
  if (out.empty()) {
    throw FormatError(fmt::format("{}: expected samples_*.jsonl in it, found none", path.string()));
  }
  return out;
}

/// What a line could be scored by: the metrics that it lists, else its numbers and truth values.
std::set<std::string> metrics_of(const SampleJson& line) {
  std::set<std::string> out;
  const auto listed = line.find("metrics");
  if (listed != line.end() && listed->is_array()) {
    for (const SampleJson& name : *listed) out.insert(text_of(name));
    return out;
  }
  for (const auto& [key, value] : line.items()) {
    if (key != "doc_id" && key != "target" && (value.is_number() || value.is_boolean())) {
      out.insert(key);
    }
  }
  return out;
}

/// Metric and filter are the same for a whole comparison: found once, or named by the user.
struct Choice {
  std::string metric, filter;
};

std::string only_one(const std::set<std::string>& found, const std::string& asked,
                     const std::string& source, const char* what) {
  if (!asked.empty()) {
    if (found.contains(asked)) return asked;
    throw FormatError(
        fmt::format("{}: {}: expected \"{}\", found {}", source, what, asked,
                    found.empty() ? "none" : fmt::format("{}", fmt::join(found, ", "))));
  }
  if (found.size() == 1) return *found.begin();
  if (found.empty())
    throw FormatError(fmt::format("{}: {}: expected one, found none", source, what));
  throw FormatError(fmt::format("{}: {}: expected one (choose with --{}), found {}", source, what,
                                what, fmt::join(found, ", ")));
}

Choice choose(const std::vector<fs::path>& files, const std::string& source,
              const SampleOptions& options) {
  std::set<std::string> metrics, filters;
  for (const fs::path& file : files) {
    for_each_sample(file, [&](const StoredLine& line) {
      metrics.merge(metrics_of(line.json));
      const auto filter = line.json.find("filter");
      if (filter != line.json.end()) filters.insert(text_of(*filter));
    });
  }
  Choice out;
  out.metric = only_one(metrics, options.metric, source, "metric");
  if (!filters.empty() || !options.filter.empty()) {
    out.filter = only_one(filters, options.filter, source, "filter");
  }
  return out;
}

double score_of(const StoredLine& line, const std::string& metric) {
  const auto found = line.json.find(metric);
  if (found == line.json.end()) line.refuse(metric, "a score from 0 to 1", "nothing");
  if (found->is_boolean()) return found->get<bool>() ? 1 : 0;
  if (!found->is_number()) line.refuse(metric, "a score from 0 to 1", shown(*found));
  const double score = found->get<double>();
  if (!(score >= 0 && score <= 1)) line.refuse(metric, "a score from 0 to 1", shown(*found));
  return score;
}

const SampleJson& required(const StoredLine& line, const std::string& field) {
  const SampleJson* found = field_at(line.json, field);
  if (found == nullptr || found->is_null()) line.refuse(field, "a value", "nothing");
  return *found;
}

void set_bucket(const StoredLine& line, const SampleOptions& options, StoredScore& out) {
  out.bucket = "all";
  if (options.bucket_field.empty()) return;
  const SampleJson& value = required(line, options.bucket_field);
  if (!value.is_number()) {
    out.bucket = text_of(value);
    out.tokens = length_of_label(out.bucket).value_or(0);
    return;
  }
  out.tokens = value.get<double>();
  if (!(out.tokens > 0 && out.tokens < 1e15)) {
    line.refuse(options.bucket_field, "a length above 0", shown(value));
  }
  out.bucket =
      options.edges.empty()
          ? shown(value)
          : PositionBuckets(options.edges).label(static_cast<int64_t>(std::ceil(out.tokens)));
}

StoredScore score_from(const StoredLine& line, const std::string& prefix, const Choice& choice,
                       const SampleOptions& options) {
  StoredScore out;
  out.id = prefix + text_of(required(line, "doc_id"));
  out.where = line.where;
  out.score = score_of(line, choice.metric);
  set_bucket(line, options, out);
  if (!options.cluster_field.empty()) out.cluster = text_of(required(line, options.cluster_field));
  const auto hash = line.json.find("prompt_hash");
  if (hash != line.json.end() && hash->is_string()) out.prompt_hash = hash->get<std::string>();
  return out;
}

void expect_each_once(const std::vector<StoredScore>& scores) {
  std::unordered_map<std::string, const StoredScore*> seen;
  for (const StoredScore& one : scores) {
    const auto [first, is_new] = seen.emplace(one.id, &one);
    if (is_new) continue;
    throw FormatError(fmt::format("{}: example \"{}\": expected once, found it at {} too",
                                  one.where, one.id, first->second->where));
  }
}

// ---- kvscale's records ----

std::set<std::string> blocks_of(const Records& records, const std::string& arm) {
  std::set<std::string> out;
  for (const ExampleRecord& one : records.examples) {
    if (one.arm == arm) out.insert(one.block);
  }
  return out;
}

std::string block_for(const Records& records, const std::string& source, const std::string& arm,
                      const std::string& asked, const std::string& beside) {
  const std::set<std::string> own = blocks_of(records, arm);
  if (own.empty()) {
    throw ValueError(fmt::format("{}: arm {}: expected examples of it, found those of {}", source,
                                 arm, fmt::join(arms_with_examples(records, ""), ", ")));
  }
  if (!asked.empty()) {
    if (own.contains(asked)) return asked;
    throw ValueError(fmt::format("{}: arm {}: expected block {}, found {}", source, arm, asked,
                                 fmt::join(own, ", ")));
  }
  std::set<std::string> shared = own;
  if (!beside.empty()) {
    const std::set<std::string> other = blocks_of(records, beside);
    std::erase_if(shared, [&](const std::string& block) { return !other.contains(block); });
  }
  if (shared.size() == 1) return *shared.begin();
  throw ValueError(fmt::format("{}: arm {}: expected one block (choose with --block), found {}",
                               source, arm, fmt::join(shared, ", ")));
}

/// The line that a record stands in, for messages.
std::string line_of(const fs::path& path, const std::string& record_id) {
  std::ifstream file(path, std::ios::binary);
  const std::string wanted = fmt::format("\"record_id\":{}", SampleJson(record_id).dump());
  size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.find(wanted) != std::string::npos) {
      return fmt::format("{}: line {}", path.string(), number);
    }
  }
  return path.string();
}

}  // namespace

ScoreSet read_sample_logs(const fs::path& path, const SampleOptions& options) {
  const std::vector<fs::path> files = sample_files(path);
  const Choice choice = choose(files, path.string(), options);
  ScoreSet out;
  out.source = path.string();
  out.metric =
      choice.filter.empty() ? choice.metric : fmt::format("{} ({})", choice.metric, choice.filter);
  out.block = "samples";
  out.has_clusters = !options.cluster_field.empty();
  for (const fs::path& file : files) {
    const std::string prefix = files.size() > 1 ? task_of(file) + "/" : "";
    for_each_sample(file, [&](const StoredLine& line) {
      const auto filter = line.json.find("filter");
      if (filter != line.json.end() && text_of(*filter) != choice.filter) return;
      out.scores.push_back(score_from(line, prefix, choice, options));
    });
  }
  expect_each_once(out.scores);
  return out;
}

ScoreSet scores_of_records(const Records& records, const fs::path& path, const std::string& arm,
                           const std::string& block, const std::string& beside) {
  ScoreSet out;
  out.source = path.string();
  out.arm = arm;
  out.metric = "score";
  out.block = block_for(records, path.string(), arm, block, beside);
  out.has_clusters = out.has_validity = true;
  for (const ExampleRecord& record : records.examples) {
    if (record.arm != arm || record.block != out.block) continue;
    if (!(record.score >= 0 && record.score <= 1)) {
      throw FormatError(fmt::format("{}: record {}: \"score\": expected 0 to 1, found {}",
                                    line_of(path, record.record_id), record.record_id,
                                    record.score));
    }
    out.scores.push_back({record.example_id, record.bucket, record.document, "",
                          "record " + record.record_id, record.score,
                          static_cast<double>(record.prompt_tokens), record.valid, record.half});
  }
  expect_each_once(out.scores);
  return out;
}

bool is_record_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line;
  if (!std::getline(file, line)) return false;
  const SampleJson json = SampleJson::parse(line, nullptr, false);
  return json.is_object() && json.contains("kind") && json.contains("schema");
}

std::vector<std::string> arms_with_examples(const Records& records, const std::string& block) {
  std::set<std::string> out;
  for (const ExampleRecord& one : records.examples) {
    if (block.empty() || one.block == block) out.insert(one.arm);
  }
  return {out.begin(), out.end()};
}

}  // namespace kv
