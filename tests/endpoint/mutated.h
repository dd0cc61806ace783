#pragma once

#include <random>
#include <string>

namespace kv::testing {

/// Some bytes changed, cut out or doubled.
inline std::string mutated(std::string text, std::mt19937& random) {
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  const size_t changes = 1 + below(3);
  for (size_t i = 0; i < changes && !text.empty(); ++i) {
    const size_t at = below(text.size());
    switch (below(4)) {
      case 0:
        text[at] = static_cast<char>(below(256));
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        text.insert(at, text.substr(below(text.size()), below(16)));
        break;
      default:
        text[at] = "0123456789[]{}\",:-n"[below(19)];
    }
  }
  return text;
}

}  // namespace kv::testing
