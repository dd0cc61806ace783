#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/replacer.h"

namespace kv {

/// One decoder of tokenizer.json.
struct DecoderStep {
  enum class Kind { kByteLevel, kReplace, kByteFallback, kFuse, kStrip, kMetaspace };
  Kind kind = Kind::kByteLevel;
  std::optional<Replacer> replacer;
  std::string content;  // Strip: one character; Metaspace: what stands for a space
  int64_t start = 0;    // Strip: how many of them at either end
  int64_t stop = 0;
  bool drops_first = false;  // Metaspace: the first token loses what stands for spaces
};

/// Tokens back to text: a Sequence of decoders.
class Decoder {
 public:
  Decoder() = default;
  explicit Decoder(std::vector<DecoderStep> steps) : steps_(std::move(steps)) {}

  /// What the tokens spell. Not always well-formed UTF-8: ByteLevel leaves its bytes as they are.
  std::string decode(std::vector<std::string> tokens) const;

  /// The bytes that one token stands for within a text, which may be part of a character.
  std::string bytes_of(const std::string& token) const;

  /// ByteLevel alone, where a text is the bytes of its tokens.
  bool is_byte_level() const;

 private:
  std::vector<DecoderStep> steps_;
};

/// The byte that a token like <0x0A> stands for, or nullopt.
std::optional<uint8_t> byte_of_fallback_token(std::string_view token);

}  // namespace kv
