#include "tests/model/golden.h"

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace kv::golden {
namespace {

using Json = nlohmann::json;

Row read_row(const Json& json) {
  return {json.at("position").get<int64_t>(), json.at("ids").get<std::vector<int32_t>>(),
          json.at("logits").get<std::vector<double>>(), json.at("lse").get<double>(),
          json.at("mean").get<double>()};
}

Prompt read_prompt(const std::string& name, const Json& json) {
  Prompt prompt;
  prompt.name = name;
  json.at("ids").get_to(prompt.ids);
  for (const Json& row : json.at("rows")) prompt.rows.push_back(read_row(row));
  prompt.peer = {json.at("peer_rms").get<double>(), json.at("peer_lse_rms").get<double>(),
                 json.at("peer_mean_rms").get<double>()};
  if (json.contains("greedy")) json.at("greedy").get_to(prompt.greedy);
  return prompt;
}

/// Log of the sum of the exponentials, and the mean.
std::pair<double, double> summary(std::span<const float> row) {
  double largest = row[0], sum = 0, total = 0;
  for (const float x : row) largest = std::max<double>(largest, x);
  for (const float x : row) {
    sum += std::exp(x - largest);
    total += x;
  }
  return {largest + std::log(sum), total / static_cast<double>(row.size())};
}

}  // namespace

const Prompt& File::prompt(const std::string& name) const {
  for (const Prompt& p : prompts) {
    if (p.name == name) return p;
  }
  throw std::runtime_error("no recorded prompt " + name);
}

File read(const std::string& name) {
  std::ifstream in(std::string(KV_SOURCE_DIR "/tests/golden/model/") + name + ".json");
  const Json json = Json::parse(in);
  File file;
  file.checksum = json.value("checksum", "");
  for (const auto& [prompt, content] : json.at("prompts").items())
    file.prompts.push_back(read_prompt(prompt, content));
  return file;
}

RowErrors errors(const Prompt& prompt, std::span<const float> logits, int64_t vocab_size) {
  RowErrors sum;
  size_t values = 0;
  for (const Row& row : prompt.rows) {
    const auto ours = logits.subspan(static_cast<size_t>(row.position * vocab_size),
                                     static_cast<size_t>(vocab_size));
    for (size_t i = 0; i < row.ids.size(); ++i) {
      const double difference = ours[static_cast<size_t>(row.ids[i])] - row.logits[i];
      sum.logits += difference * difference;
    }
    values += row.ids.size();
    const auto [lse, mean] = summary(ours);
    sum.lse += (lse - row.lse) * (lse - row.lse);
    sum.mean += (mean - row.mean) * (mean - row.mean);
  }
  const auto rows = static_cast<double>(prompt.rows.size());
  return {std::sqrt(sum.logits / static_cast<double>(values)), std::sqrt(sum.lse / rows),
          std::sqrt(sum.mean / rows)};
}

}  // namespace kv::golden
