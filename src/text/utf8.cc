#include "text/utf8.h"

#include <cstring>

namespace kv {
namespace {

uint8_t byte_at(std::string_view text, size_t i) { return static_cast<uint8_t>(text[i]); }

size_t ascii_prefix(std::string_view text) {
  size_t i = 0;
  for (; i + 8 <= text.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + i, 8);
    if (word & 0x8080808080808080u) break;
  }
  while (i < text.size() && byte_at(text, i) < 0x80) ++i;
  return i;
}

/// What may follow a lead byte: the sequence's length and the range of its second byte.
struct Lead {
  uint8_t size;  // 0: never begins a sequence
  uint8_t second_min, second_max;
};

// Unicode 15, table 3-7: the second byte is where overlong forms, surrogates and values beyond
// U+10FFFF are excluded.
Lead lead_of(uint8_t byte) {
  if (byte < 0x80) return {1, 0, 0};
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

/// The sequence at the beginning of `text`: how many bytes belong together, and whether they are a
/// whole code point or a maximal subpart of one.
struct Sequence {
  size_t size;
  bool is_whole;
};

Sequence first_sequence(std::string_view text) {
  const Lead lead = lead_of(byte_at(text, 0));
  if (lead.size == 0) return {1, false};
  for (size_t i = 1; i < lead.size; ++i) {
    if (i == text.size()) return {i, false};
    const uint8_t low = i == 1 ? lead.second_min : 0x80;
    const uint8_t high = i == 1 ? lead.second_max : 0xBF;
    if (byte_at(text, i) < low || byte_at(text, i) > high) return {i, false};
  }
  return {lead.size, true};
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  const uint8_t lead = byte_at(text, 0);
  if (lead < 0x80) return {lead, 1};
  const uint32_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  uint32_t value = lead & (0xFFu >> (size + 1));
  for (uint32_t i = 1; i < size; ++i) value = value << 6 | (byte_at(text, i) & 0x3Fu);
  return {value, size};
}

void append_utf8(std::string& out, uint32_t code_point) {
  const auto push = [&](uint32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code_point < 0x80) return push(code_point);
  if (code_point < 0x800) {
    push(0xC0 | code_point >> 6);
  } else {
    if (code_point < 0x10000) {
      push(0xE0 | code_point >> 12);
    } else {
      push(0xF0 | code_point >> 18);
      push(0x80 | (code_point >> 12 & 0x3F));
    }
    push(0x80 | (code_point >> 6 & 0x3F));
  }
  push(0x80 | (code_point & 0x3F));
}

size_t well_formed_prefix(std::string_view text) {
  size_t i = 0;
  while (true) {
    i += ascii_prefix(text.substr(i));
    if (i == text.size()) return i;
    const Sequence sequence = first_sequence(text.substr(i));
    if (!sequence.is_whole) return i;
    i += sequence.size;
  }
}

std::string replace_ill_formed(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  while (true) {
    const size_t good = well_formed_prefix(text);
    out.append(text.substr(0, good));
    text.remove_prefix(good);
    if (text.empty()) return out;
    text.remove_prefix(first_sequence(text).size);
    append_utf8(out, 0xFFFD);
  }
}

}  // namespace kv
