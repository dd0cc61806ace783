#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "evaluate/record_log.h"

namespace kv {

/// The score of one example under one arm, from a file that another program may have written.
struct StoredScore {
  std::string id;
  std::string bucket, cluster;  // cluster: what it shares with other examples; empty = none known
  std::string prompt_hash;      // where the file says which prompt it was; empty = not told
  std::string where;            // "samples_x.jsonl: line 3"
  double score = 0;             // [0, 1]
  double tokens = 0;            // length of the prompt; 0 = not known
  bool valid = true;
  int64_t half = 0;  // replicate half, 1 or 2; 0 = not dealt into halves
};

/// The scores of one arm.
struct ScoreSet {
  std::string source;  // file or folder
  std::string arm;     // what messages and tables call it
  std::string metric;  // "score" of kvscale's records
  std::string block;   // of kvscale's records; else "samples"
  std::vector<StoredScore> scores;
  bool has_clusters = false, has_validity = false;
};

/// How sample logs are read.
struct SampleOptions {
  std::string metric, filter;               // empty: the only one there is
  std::string bucket_field, cluster_field;  // with dots into objects, as "doc.length"; empty: none
  std::vector<int64_t> edges;               // for a bucket field of numbers; empty: as they are
};

/// Sample logs of lm-evaluation-harness: JSON Lines with `doc_id` and metrics such as `exact_match`
/// or `acc`, 0 to 1, true or false. A folder stands for its samples_*.jsonl; ids then start with
/// the task. Throws IoError, and FormatError naming file, line, field, expected and found: a score
/// that is missing, NaN or outside [0, 1], a doc_id twice (under one filter), several metrics or
/// filters and none chosen.
ScoreSet read_sample_logs(const std::filesystem::path& path, const SampleOptions& options);

/// One arm of a run's records. `block` may be empty when the arm has only one block with `beside`
/// (another arm; empty = any). Throws ValueError naming what there is.
ScoreSet scores_of_records(const Records& records, const std::filesystem::path& path,
                           const std::string& arm, const std::string& block,
                           const std::string& beside = "");

/// Whether a file has kvscale's records in it: its first line says a kind and a schema.
bool is_record_file(const std::filesystem::path& path);

/// The arms that have examples on a block (any block when it is empty), ascending.
std::vector<std::string> arms_with_examples(const Records& records, const std::string& block);

}  // namespace kv
