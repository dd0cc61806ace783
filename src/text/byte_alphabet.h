#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kv {

/// Byte-level vocabularies spell every byte as one printable character: 0x21-0x7E, 0xA1-0xAC and
/// 0xAE-0xFF as the code point of the same value, the other 68 bytes, in increasing order, as
/// U+0100, U+0101, ... (a space is U+0120).
uint32_t spell_byte(uint8_t byte);

/// The byte that a character spells, or nullopt.
std::optional<uint8_t> spelled_byte(uint32_t code_point);

/// The bytes that well-formed `token` spells, or nullopt when a character of it spells none.
std::optional<std::string> spelled_bytes(std::string_view token);

}  // namespace kv
