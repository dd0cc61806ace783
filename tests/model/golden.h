#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace kv::golden {

/// Some logits after one token of a prompt, from transformers in F32.
struct Row {
  int64_t position = 0;
  std::vector<int32_t> ids;  // the largest, descending
  std::vector<double> logits;
  double lse = 0, mean = 0;  // of the whole row
};

/// Root mean squares of the differences to the recorded rows of one prompt.
struct RowErrors {
  double logits = 0, lse = 0, mean = 0;
};

struct Prompt {
  std::string name;
  std::vector<int32_t> ids;
  std::vector<Row> rows;
  RowErrors peer;                                  // transformers in BF16
  std::vector<std::pair<int32_t, double>> greedy;  // id, distance to the second largest logit
};

struct File {
  std::string checksum;  // of seeded weights, see make_golden.py; empty for models/tiny
  std::vector<Prompt> prompts;

  const Prompt& prompt(const std::string& name) const;
};

/// Reads tests/golden/model/NAME.json.
File read(const std::string& name);

/// Differences of logits [ids.size(), vocab_size] of all tokens of a prompt to its recorded rows.
RowErrors errors(const Prompt& prompt, std::span<const float> logits, int64_t vocab_size);

}  // namespace kv::golden
