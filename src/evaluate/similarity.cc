#include "evaluate/similarity.h"

#include <cstddef>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

namespace kv {
namespace {

/// Length of the code point that begins a text; 1 where there is none.
size_t code_point_size(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const size_t size = first < 0xC0 ? 1 : first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
  if (size > text.size()) return 1;
  for (size_t i = 1; i < size; ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xC0) != 0x80) return 1;
  }
  return size;
}

/// Code points as numbers that differ when they do.
std::vector<uint32_t> code_points(std::string_view text) {
  std::vector<uint32_t> out;
  while (!text.empty()) {
    const size_t size = code_point_size(text);
    uint32_t value = 0;
    for (const char byte : text.substr(0, size)) {
      value = value << 8 | static_cast<unsigned char>(byte);
    }
    out.push_back(value);
    text.remove_prefix(size);
  }
  return out;
}

struct Part {
  size_t a_begin = 0, a_end = 0, b_begin = 0, b_end = 0;
};

struct Block {
  size_t a = 0, b = 0, size = 0;
};

class Matcher {
 public:
  Matcher(std::span<const uint32_t> a, std::span<const uint32_t> b)
      : a_(a), last_(b.size() + 1), here_(b.size() + 1) {
    for (size_t j = 0; j < b.size(); ++j) places_[b[j]].push_back(j);
  }

  size_t matched(size_t b_size) {
    size_t sum = 0;
    std::vector<Part> todo = {{0, a_.size(), 0, b_size}};
    while (!todo.empty()) {
      const Part part = todo.back();
      todo.pop_back();
      const Block block = longest(part);
      if (block.size == 0) continue;
      sum += block.size;
      todo.push_back({part.a_begin, block.a, part.b_begin, block.b});
      todo.push_back({block.a + block.size, part.a_end, block.b + block.size, part.b_end});
    }
    return sum;
  }

 private:
  /// Row i of the table of common endings: here_[j + 1] is how long a and b agree up to i and j.
  Block longest(const Part& part) {
    Block best;
    std::vector<size_t> set, set_before;
    for (size_t i = part.a_begin; i < part.a_end; ++i) {
      const auto found = places_.find(a_[i]);
      if (found != places_.end()) {
        for (const size_t j : found->second) {
          if (j < part.b_begin) continue;
          if (j >= part.b_end) break;
          const size_t size = last_[j] + 1;
          here_[j + 1] = size;
          set.push_back(j + 1);
          if (size > best.size) best = {i + 1 - size, j + 1 - size, size};
        }
      }
      for (const size_t j : set_before) last_[j] = 0;
      std::swap(last_, here_);
      std::swap(set, set_before);
      set.clear();
    }
    for (const size_t j : set_before) last_[j] = 0;
    return best;
  }

  std::span<const uint32_t> a_;
  std::unordered_map<uint32_t, std::vector<size_t>> places_;  // in b, ascending
  std::vector<size_t> last_, here_;                           // zero between calls
};

}  // namespace

double similarity(std::string_view a, std::string_view b) {
  const std::vector<uint32_t> first = code_points(a), second = code_points(b);
  if (first.empty() && second.empty()) return 1;
  const size_t matched = Matcher(first, second).matched(second.size());
  return 2.0 * static_cast<double>(matched) / static_cast<double>(first.size() + second.size());
}

}  // namespace kv
