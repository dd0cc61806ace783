#pragma once

#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "text/tokenizer.h"

namespace kv {

inline Tokenizer load_tokenizer(const std::string& path) {
  std::ifstream file(std::string(KV_SOURCE_DIR) + "/" + path);
  const std::string json{std::istreambuf_iterator<char>(file), {}};
  return Tokenizer::from_tokenizer_json(json, path);
}

inline Tokenizer tiny_tokenizer() { return load_tokenizer("models/tiny/tokenizer.json"); }

/// Small vocabularies with the pre-tokenizers of the model families, and the built-in model's.
inline std::vector<std::string> tokenizer_files() {
  return {"models/tiny/tokenizer.json", "tests/golden/text/tokenizer-smollm.json",
          "tests/golden/text/tokenizer-qwen2.json", "tests/golden/text/tokenizer-gpt-2.json",
          "tests/golden/text/tokenizer-llama-bpe.json"};
}

}  // namespace kv
