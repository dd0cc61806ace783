#include "endpoint/server_facts.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "endpoint/reply.h"
#include "kvscale/error.h"

namespace kv {
namespace {

/// A whole number as a metric's label or a log line writes it; 0 for "None" and what is no number.
int64_t number_in(std::string_view text) {
  std::string digits;
  for (const char c : text) {
    if (c != ',') digits += c;
  }
  int64_t out = 0;
  const char* end = digits.data() + digits.size();
  const auto [stop, error] = std::from_chars(digits.data(), end, out);
  return error == std::errc{} && stop == end && out >= 0 ? out : 0;
}

std::string unless_none(const std::string& text) { return text == "None" ? "" : text; }

/// "['0', '1']", as Python writes a list of strings.
std::vector<std::string> python_list(std::string_view text) {
  std::vector<std::string> out;
  size_t at = 0;
  while ((at = text.find('\'', at)) != std::string_view::npos) {
    const size_t end = text.find('\'', at + 1);
    if (end == std::string_view::npos) break;
    out.emplace_back(text.substr(at + 1, end - at - 1));
    at = end + 1;
  }
  return out;
}

/// What stands between `before` and the first of `ends` behind it; empty when `before` is not
/// there.
std::string_view between(std::string_view text, std::string_view before, std::string_view ends) {
  const size_t at = text.find(before);
  if (at == std::string_view::npos) return {};
  text.remove_prefix(at + before.size());
  return text.substr(0, text.find_first_of(ends));
}

/// A label's value, read up to its closing quote; `at` ends behind that. False when there is none.
bool read_label_value(std::string_view text, size_t& at, std::string& out) {
  for (; at < text.size() && text[at] != '\n'; ++at) {
    if (text[at] == '"') {
      ++at;
      return true;
    }
    if (text[at] == '\\' && at + 1 < text.size()) {
      ++at;
      out += text[at] == 'n' ? '\n' : text[at];
    } else {
      out += text[at];
    }
  }
  return false;
}

std::map<std::string, std::string> read_labels(std::string_view text, const std::string& where) {
  std::map<std::string, std::string> out;
  for (size_t at = 0; at < text.size();) {
    if (text[at] == '}') return out;
    if (text[at] == ',' || text[at] == ' ') {
      ++at;
      continue;
    }
    const size_t equals = text.find("=\"", at);
    if (equals == std::string_view::npos) break;
    const std::string name(text.substr(at, equals - at));
    std::string value;
    at = equals + 2;
    if (!read_label_value(text, at, value)) break;
    out[name] = value;
  }
  throw FormatError(
      fmt::format("{}: expected labels of a metric that end with \"}}\", found none", where));
}

void add_vllm_metrics(std::string_view metrics, const std::string& where, ServerFacts& facts) {
  const auto labels = metric_labels(metrics, "vllm:cache_config_info", where);
  const auto label = [&](const char* key) {
    const auto found = labels.find(key);
    return found == labels.end() ? std::string() : unless_none(found->second);
  };
  facts.cache_dtype = label("cache_dtype");
  facts.cache_layout = label("kv_cache_layout");
  facts.block_size = number_in(label("block_size"));
  facts.cache_tokens = number_in(label("kv_cache_size_tokens"));
  facts.cache_bytes = number_in(label("kv_cache_memory_bytes"));
  facts.skip_layers = python_list(label("kv_cache_dtype_skip_layers"));
}

void add_version(CompletionClient& client, ServerFacts& facts) {
  HttpClient& http = client.http();
  const std::string where = http.describe("GET", "/version");
  const HttpReply reply = http.get("/version");
  if (!reply.is_ok()) return;
  const nlohmann::json json = parse_json(reply.body, where);
  facts.version = Reply(json, where).at("version").text();
}

void add_models(CompletionClient& client, ServerFacts& facts) {
  HttpClient& http = client.http();
  const std::string where = http.describe("GET", "/v1/models");
  const HttpReply reply = http.get("/v1/models");
  if (!reply.is_ok()) return;
  const nlohmann::json json = parse_json(reply.body, where);
  const Reply data = Reply(json, where).at("data");
  for (size_t i = 0; i < data.size(); ++i) {
    const Reply model = data.at(i);
    if (model.at("id").text() != facts.model || !model.has("max_model_len")) continue;
    facts.max_model_len = model.at("max_model_len").integer(0, INT64_MAX);
  }
}

/// SGLang's /server_info: the arguments of the server and what it made of them, in one object.
void add_sglang_info(CompletionClient& client, ServerFacts& facts) {
  HttpClient& http = client.http();
  const std::string where = http.describe("GET", "/server_info");
  const HttpReply reply = http.get("/server_info");
  if (!reply.is_ok()) return;
  const nlohmann::json json = parse_json(reply.body, where);
  const Reply info(json, where);
  const auto text = [&](const char* key) {
    return info.has(key) ? info.at(key).text() : std::string();
  };
  const auto number = [&](const char* key) {
    return info.has(key) ? info.at(key).integer(0, INT64_MAX) : int64_t{0};
  };
  facts.version = text("version");
  facts.model_dtype = text("dtype");
  facts.cache_dtype = text("kv_cache_dtype");
  facts.backend = text("attention_backend");
  facts.block_size = number("page_size");
  facts.cache_tokens = number("max_total_num_tokens");
}

/// llama-server's /props; its cache is named in the log alone.
void add_llama_props(CompletionClient& client, ServerFacts& facts) {
  HttpClient& http = client.http();
  const std::string where = http.describe("GET", "/props");
  const HttpReply reply = http.get("/props");
  if (!reply.is_ok()) return;
  const nlohmann::json json = parse_json(reply.body, where);
  const Reply props(json, where);
  if (props.has("build_info")) facts.version = props.at("build_info").text();
  if (props.has("model_alias")) facts.model = props.at("model_alias").text();
  if (!props.has("default_generation_settings")) return;
  const Reply settings = props.at("default_generation_settings");
  if (settings.has("n_ctx")) facts.max_model_len = settings.at("n_ctx").integer(0, INT64_MAX);
}

/// "llama_kv_cache: size =   23.91 MiB (  2048 cells,  30 layers,  1/1 seqs), K (q8_0):   11.95
/// MiB, V (q8_0):   11.95 MiB"; a model with windows has two such lines.
void add_llama_cache_line(std::string_view line, ServerFacts& facts) {
  constexpr int64_t kCells = 256;  // a cache's length is a multiple of it
  const auto word = [&](std::string_view before, std::string_view ends) {
    std::string_view text = line;
    const size_t at = text.find(before);
    if (at == std::string_view::npos) return std::string_view();
    text.remove_prefix(at + before.size());
    text.remove_prefix(std::min(text.find_first_not_of(' '), text.size()));
    return text.substr(0, text.find_first_of(ends));
  };
  const std::string_view size = word("size =", " "), k = word("K (", ")"), v = word("V (", ")");
  double mebibytes = 0;
  const auto [end, error] = std::from_chars(size.data(), size.data() + size.size(), mebibytes);
  const bool is_size = error == std::errc{} && end == size.data() + size.size();
  if (!is_size || !(mebibytes >= 0 && mebibytes < 1e9) || k.empty() || v.empty()) return;
  facts.cache_bytes += static_cast<int64_t>(mebibytes * 1048576);
  facts.cache_tokens = std::max(facts.cache_tokens, number_in(word("MiB (", " ")));
  facts.block_size = kCells;
  facts.cache_dtype = k == v ? std::string(k) : fmt::format("{} and {}", k, v);
}

/// Values that are turned before they are quantized are another format than those that are not.
void add_llama_rotation(std::string_view line, ServerFacts& facts) {
  for (const std::string_view side : {"k", "v"}) {
    const auto turned = between(line, fmt::format("n_rot_{} = ", side), ", ");
    if (number_in(turned) == 0) continue;
    facts.cache_layout += fmt::format("{}{} rotated in groups of {}",
                                      facts.cache_layout.empty() ? "" : ", ", side, turned);
  }
}

void add_log_line(std::string_view line, ServerFacts& facts) {
  if (facts.engine == name(Dialect::kLlamaServer)) {
    if (line.find("llama_kv_cache") == std::string_view::npos) return;
    if (line.find(" cells") != std::string_view::npos) add_llama_cache_line(line, facts);
    return add_llama_rotation(line, facts);
  }
  if (const auto v = between(line, "LLM engine (v", ")"); !v.empty()) facts.version = v;
  if (const auto v = between(line, " dtype=", ",) "); !v.empty() && facts.model_dtype.empty()) {
    facts.model_dtype = v;
  }
  if (const auto v = between(line, " KV cache size: ", " "); !v.empty()) {
    if (facts.cache_tokens == 0) facts.cache_tokens = number_in(v);
    const size_t end = line.find(" KV cache size: ");
    const size_t begin = line.find_last_of(" ]", end - 1);
    if (begin != std::string_view::npos) facts.device = line.substr(begin + 1, end - begin - 1);
  }
  if (line.ends_with(" KV cache layout.")) {
    if (const auto v = between(line, "Using ", " "); !v.empty()) facts.cache_layout = v;
  }
  if (const auto v = between(line, "Using ", " ");
      !v.empty() && line.find(" attention backend out of") != std::string_view::npos) {
    facts.backend = v;
  }
  if (const auto v = between(line, "Using AttentionBackendEnum.", " "); !v.empty()) {
    facts.backend = v;
  }
  if (const auto v = between(line, "Using FlashAttention version ", " ,."); !v.empty()) {
    facts.backend = fmt::format("FLASH_ATTN (FlashAttention {})", v);
  }
  constexpr std::string_view kScaleOne = "Using KV cache scaling factor 1.0";
  if (line.find(kScaleOne) != std::string_view::npos) facts.says_scale_one = true;
}

/// Lines that a reader of a verdict should see once.
bool is_about_scales(std::string_view line) {
  constexpr std::array<std::string_view, 6> kParts = {
      "KV cache scaling factor",       "accuracy drop without a proper scaling factor",
      "Dynamic per-token-head scales", "_scale with dtype",
      "in the checkpoint (e.g.",       "Using uncalibrated q_scale"};
  return std::ranges::any_of(
      kParts, [&](std::string_view part) { return line.find(part) != std::string_view::npos; });
}

std::string with_commas(int64_t number) {
  std::string out = fmt::format("{}", number);
  for (auto at = std::ssize(out) - 3; at > 0; at -= 3) out.insert(static_cast<size_t>(at), ",");
  return out;
}

}  // namespace

double ServerFacts::bytes_per_token() const {
  if (cache_tokens <= 0 || cache_bytes <= 0) return 0;
  return static_cast<double>(cache_bytes) / static_cast<double>(cache_tokens);
}

std::string ServerFacts::text() const {
  std::vector<std::string> parts = {version.empty() ? engine : engine + " " + version};
  if (!device.empty()) parts.push_back(device);
  if (!backend.empty()) parts.push_back(backend);
  if (!cache_dtype.empty()) parts.push_back("cache dtype " + cache_dtype);
  if (!skip_layers.empty())
    parts.push_back(fmt::format("without layers {}", fmt::join(skip_layers, " ")));
  if (block_size > 0) parts.push_back(fmt::format("block size {}", block_size));
  if (!cache_layout.empty()) parts.push_back("layout " + cache_layout);
  if (cache_tokens > 0) {
    parts.push_back(
        with_commas(cache_tokens) + " tokens fit" +
        (cache_bytes > 0 ? fmt::format(" into {} bytes", with_commas(cache_bytes)) : ""));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::map<std::string, std::string> metric_labels(std::string_view text, std::string_view metric,
                                                 const std::string& where) {
  for (size_t at = 0; (at = text.find(metric, at)) != std::string_view::npos; at += metric.size()) {
    const size_t end = at + metric.size();
    const bool begins_line = at == 0 || text[at - 1] == '\n';
    if (begins_line && end < text.size() && text[end] == '{') {
      return read_labels(text.substr(end + 1), where);
    }
  }
  return {};
}

ServerFacts read_server_facts(CompletionClient& client) {
  ServerFacts facts;
  facts.engine = name(client.dialect());
  facts.model = client.model();
  switch (client.dialect()) {
    case Dialect::kVllm:
      add_version(client, facts);
      add_models(client, facts);
      if (const HttpReply reply = client.http().get("/metrics"); reply.is_ok()) {
        add_vllm_metrics(reply.body, client.http().describe("GET", "/metrics"), facts);
      }
      break;
    case Dialect::kOpenAi:
      add_version(client, facts);
      add_models(client, facts);
      break;
    case Dialect::kSglang:
      add_sglang_info(client, facts);
      break;
    case Dialect::kLlamaServer:
      add_llama_props(client, facts);
      break;
  }
  return facts;
}

std::vector<ServerFacts> read_replicas(CompletionClient& client, int tries) {
  std::map<std::string, ServerFacts> found;
  const std::string where = client.http().describe("GET", "/metrics");
  for (int i = 0; i < tries; ++i) {
    const HttpReply reply = client.http().get_anew("/metrics");
    if (!reply.is_ok()) return {};
    const std::string process(between(reply.body, "\nprocess_start_time_seconds ", "\r\n"));
    if (process.empty()) return {};
    ServerFacts& facts = found[process];
    if (!facts.process.empty()) continue;
    facts.process = process;
    facts.engine = name(client.dialect());
    facts.model = client.model();
    if (client.dialect() == Dialect::kVllm) add_vllm_metrics(reply.body, where, facts);
  }
  std::vector<ServerFacts> out;
  for (auto& [process, facts] : found) out.push_back(std::move(facts));
  return out;
}

void add_log_facts(std::string_view log, ServerFacts& facts) {
  constexpr size_t kMostWarnings = 20;
  while (!log.empty()) {
    const size_t end = std::min(log.find('\n'), log.size());
    const std::string_view line = log.substr(0, end);
    log.remove_prefix(std::min(end + 1, log.size()));
    add_log_line(line, facts);
    if (!is_about_scales(line) || facts.warnings.size() >= kMostWarnings) continue;
    const size_t message = std::min(line.find("] "), line.size());
    std::string text(message < line.size() ? line.substr(message + 2, 300) : line.substr(0, 300));
    if (std::ranges::find(facts.warnings, text) == facts.warnings.end()) {
      facts.warnings.push_back(std::move(text));
    }
  }
}

}  // namespace kv
