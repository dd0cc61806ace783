#pragma once

#include <fmt/core.h>

#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "cache/layout.h"
#include "kvscale/error.h"

namespace kv::bench {

/// `--name value` pairs and `--name` alone.
class Options {
 public:
  Options(int argc, char** argv) {
    for (int i = 1; i < argc; ++i) {
      const std::string word = argv[i];
      if (!word.starts_with("--")) throw ValueError("expected an option, found '" + word + "'");
      const bool has_value = i + 1 < argc && std::string(argv[i + 1]).rfind("--", 0) != 0;
      values_[word.substr(2)] = has_value ? argv[++i] : "";
    }
  }

  bool has(const std::string& key) const { return values_.contains(key); }

  std::string text(const std::string& key, const std::string& otherwise) const {
    return has(key) ? values_.at(key) : otherwise;
  }

  int64_t number(const std::string& key, int64_t otherwise) const {
    return has(key) ? std::stoll(values_.at(key)) : otherwise;
  }

  std::vector<std::string> list(const std::string& key, const std::string& otherwise) const {
    std::vector<std::string> out;
    std::string all = text(key, otherwise) + ",";
    for (size_t at = 0, comma; (comma = all.find(',', at)) != std::string::npos; at = comma + 1)
      out.push_back(all.substr(at, comma - at));
    return out;
  }

 private:
  std::map<std::string, std::string> values_;
};

inline Format format_named(const std::string& text) {
  for (const Format format :
       {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead, Format::kE4m3PerTokenHead}) {
    if (name(format) == text) return format;
  }
  throw ValueError(
      "--formats: expected bf16, e4m3_per_tensor, e4m3_per_head or "
      "e4m3_per_token_head, found '" +
      text + "'");
}

/// The exit code of a bench program: `run`'s, or kExitUsage after its error is printed.
inline int run_program(int (*run)(const Options&), int argc, char** argv) {
  try {
    return run(Options(argc, argv));
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return kExitUsage;
  }
}

}  // namespace kv::bench
