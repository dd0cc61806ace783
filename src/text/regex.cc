#include "text/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include "kvscale/error.h"
#include "text/utf8.h"

namespace kv {
namespace {

// A pattern that needs more is one that backtracks without bound.
constexpr size_t kJitStackStart = 32 << 10;
constexpr size_t kJitStackMax = 8 << 20;
constexpr uint32_t kMatchLimit = 10'000'000;

std::string pcre2_message(int code) {
  char text[256];
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR8*>(text), sizeof text);
  return text;
}

}  // namespace

Regex::Regex(const std::string& pattern, const std::string& where) : where_(where) {
  const std::unique_ptr<pcre2_compile_context, decltype(&pcre2_compile_context_free)> context(
      pcre2_compile_context_create(nullptr), pcre2_compile_context_free);
  // As in Ruby's syntax: only \n ends a line, and ^ and $ are about lines.
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  pcre2_code* code =
      pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(),
                    PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE, &error, &offset, context.get());
  if (code == nullptr) {
    throw FormatError(fmt::format("{}: pattern does not compile: {} at {} of {}", where,
                                  pcre2_message(error), offset, pattern));
  }
  code_ =
      std::shared_ptr<void>(code, [](void* p) { pcre2_code_free(static_cast<pcre2_code*>(p)); });
  // Where the machine allows no JIT, pcre2_match interprets: slower, the same matches.
  is_jitted_ = pcre2_jit_compile(code, PCRE2_JIT_COMPLETE) == 0;
}

std::string Regex::quote(std::string_view literal) {
  std::string out;
  while (!literal.empty()) {
    const CodePoint c = first_code_point(literal);
    out += fmt::format("\\x{{{:X}}}", c.value);
    literal.remove_prefix(c.size);
  }
  return out;
}

RegexMatcher::RegexMatcher(const Regex& regex) : regex_(regex) {
  auto* code = static_cast<pcre2_code*>(regex_.code_.get());
  match_data_ = std::shared_ptr<void>(
      pcre2_match_data_create_from_pattern(code, nullptr),
      [](void* p) { pcre2_match_data_free(static_cast<pcre2_match_data*>(p)); });
  auto* context = pcre2_match_context_create(nullptr);
  match_context_ = std::shared_ptr<void>(
      context, [](void* p) { pcre2_match_context_free(static_cast<pcre2_match_context*>(p)); });
  auto* stack = pcre2_jit_stack_create(kJitStackStart, kJitStackMax, nullptr);
  jit_stack_ = std::shared_ptr<void>(
      stack, [](void* p) { pcre2_jit_stack_free(static_cast<pcre2_jit_stack*>(p)); });
  pcre2_jit_stack_assign(context, nullptr, stack);
  pcre2_set_match_limit(context, kMatchLimit);
}

bool RegexMatcher::find(std::string_view text, size_t from, Segment& match) {
  auto* data = static_cast<pcre2_match_data*>(match_data_.get());
  const int rc =
      pcre2_match(static_cast<pcre2_code*>(regex_.code_.get()),
                  reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), from, PCRE2_NO_UTF_CHECK,
                  data, static_cast<pcre2_match_context*>(match_context_.get()));
  if (rc == PCRE2_ERROR_NOMATCH) return false;
  if (rc < 0) {
    throw ValueError(fmt::format("{}: pattern gives up on a text of {} bytes: {}", regex_.where_,
                                 text.size(), pcre2_message(rc)));
  }
  const size_t* range = pcre2_get_ovector_pointer(data);
  match = {range[0], range[1], true};
  return true;
}

void RegexMatcher::for_each_segment(std::string_view text,
                                    const std::function<void(Segment)>& sink) {
  size_t done = 0;  // everything before is reported
  size_t from = 0;
  bool had_match = false;
  Segment match{};
  while (from <= text.size() && find(text, from, match)) {
    if (match.begin == match.end && had_match && match.end == done) {
      if (from == text.size()) break;
      from += first_code_point(text.substr(from)).size;
      continue;
    }
    if (match.begin > done) sink({done, match.begin, false});
    sink(match);
    from = done = match.end;
    had_match = true;
  }
  if (done < text.size()) sink({done, text.size(), false});
}

}  // namespace kv
