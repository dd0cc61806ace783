#pragma once

#include <string>
#include <string_view>

namespace kv::jinja {

/// Appends what a backslash escape of Python's strings stands for, whose letter is at `at` of `in`;
/// gives the place behind it. Throws as the lexer does.
size_t append_escape(std::string_view in, size_t at, int line, std::string& text);

}  // namespace kv::jinja
