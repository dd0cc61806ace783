#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kv::jinja {

enum class TokenKind : uint8_t {
  kText,  // between tags, white space already trimmed
  kBlockBegin,
  kBlockEnd,
  kPrintBegin,
  kPrintEnd,
  kName,
  kString,  // unescaped
  kInteger,
  kFloat,
  kOperator,
  kEnd
};

struct Token {
  TokenKind kind;
  std::string text;
  int line;
};

/// Cuts a template into tokens; the last one is kEnd. White space around tags goes as with Jinja's
/// trim_blocks and lstrip_blocks, and as "-" and "+" in a tag ask. Throws FormatError with the
/// line.
std::vector<Token> tokenize(std::string_view source);

/// FormatError "chat template: line N: ...".
[[noreturn]] void throw_syntax(int line, std::string_view what);

/// UnsupportedError "chat template: line N: ...": Jinja has it, kvscale does not.
[[noreturn]] void throw_unsupported(int line, std::string_view what);

}  // namespace kv::jinja
