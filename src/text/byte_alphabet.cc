#include "text/byte_alphabet.h"

#include <array>

#include "text/utf8.h"

namespace kv {
namespace {

constexpr uint32_t kAlphabetEnd = 0x100 + 68;

bool is_printable(uint32_t byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<uint16_t, 256> spelling;
  std::array<int16_t, kAlphabetEnd> byte;  // -1: spells none

  Alphabet() {
    byte.fill(-1);
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      spelling[b] = static_cast<uint16_t>(is_printable(b) ? b : next++);
      byte[spelling[b]] = static_cast<int16_t>(b);
    }
  }
};

const Alphabet& alphabet() {
  static const Alphabet instance;
  return instance;
}

}  // namespace

uint32_t spell_byte(uint8_t byte) { return alphabet().spelling[byte]; }

std::optional<uint8_t> spelled_byte(uint32_t code_point) {
  if (code_point >= kAlphabetEnd || alphabet().byte[code_point] < 0) return std::nullopt;
  return static_cast<uint8_t>(alphabet().byte[code_point]);
}

std::optional<std::string> spelled_bytes(std::string_view token) {
  std::string out;
  while (!token.empty()) {
    const CodePoint code_point = first_code_point(token);
    const std::optional<uint8_t> byte = spelled_byte(code_point.value);
    if (!byte) return std::nullopt;
    out.push_back(static_cast<char>(*byte));
    token.remove_prefix(code_point.size);
  }
  return out;
}

}  // namespace kv
