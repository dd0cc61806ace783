// kv_tokenize VOCAB TEXT IDS: encodes the file TEXT, writes the ids to IDS (int32, little endian)
// and prints how long it took. VOCAB is a tokenizer.json, or the tokenizer keys of a GGUF file as
// JSON
// ({"pre", "tokens", "types", "merges", ...}). Used by peer_tokenizers.py.
#include <fmt/format.h>

#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>

#include "text/tokenizer.h"

namespace {

/// Processor time of this single-threaded program: what others do on the machine is left out.
double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

std::string read_file(const char* path) {
  std::ifstream in(path, std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  if (!in) throw std::runtime_error(fmt::format("{}: cannot be read", path));
  return content.str();
}

kv::Tokenizer load_gguf_keys(const std::string& text, const char* path) {
  const auto keys = nlohmann::json::parse(text);
  kv::GgufVocab vocab;
  vocab.file_name = path;
  vocab.model = keys.at("model").get<std::string>();
  vocab.pre = keys.at("pre").get<std::string>();
  vocab.tokens = keys.at("tokens").get<std::vector<std::string>>();
  vocab.types = keys.at("types").get<std::vector<int32_t>>();
  vocab.merges = keys.at("merges").get<std::vector<std::string>>();
  vocab.add_bos = keys.at("add_bos").get<bool>();
  vocab.bos_id = keys.at("bos_id").get<int32_t>();
  return kv::Tokenizer::from_gguf(std::move(vocab));
}

kv::Tokenizer load(const char* path) {
  const std::string text = read_file(path);
  const bool is_gguf = text.find("\"added_tokens\"") == std::string::npos;
  return is_gguf ? load_gguf_keys(text, path) : kv::Tokenizer::from_tokenizer_json(text, path);
}

void run(char** argv) {
  const double start = cpu_seconds();
  const kv::Tokenizer tokenizer = load(argv[1]);
  const double load_s = cpu_seconds() - start;
  const std::string text = read_file(argv[2]);
  const double encode_start = cpu_seconds();
  const std::vector<int32_t> ids = tokenizer.encode(text);
  const double encode_s = cpu_seconds() - encode_start;
  const double mb = static_cast<double>(text.size()) / 1e6;
  std::ofstream out(argv[3], std::ios::binary);
  out.write(reinterpret_cast<const char*>(ids.data()),
            static_cast<std::streamsize>(ids.size() * sizeof(int32_t)));
  const double decode_start = cpu_seconds();
  const bool is_same = tokenizer.decode(ids) == text;
  const double decode_s = cpu_seconds() - decode_start;
  fmt::print(
      "{{\"load_ms\": {:.0f}, \"mb_per_s\": {:.2f}, \"decode_mb_per_s\": {:.1f}, \"ids\": {}, "
      "\"round_trip\": {}}}\n",
      load_s * 1e3, mb / encode_s, mb / decode_s, ids.size(), is_same);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    fmt::print(stderr, "usage: kv_tokenize VOCAB TEXT IDS\n");
    return 1;
  }
  try {
    run(argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
