#include "text/normal_form.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "kvscale/error.h"
#include "text/utf8.h"

namespace kv {
namespace {

// Below it, code points neither reorder nor combine with what comes before them.
constexpr uint32_t kFirstMark = 0x300;
constexpr uint8_t kFirstMarkLead = 0xCC;  // lead byte of U+0300

struct Range {
  uint32_t first, last;
};

// Combining marks younger than Unicode 9, and U+11930, whose composition is. The peer leaves them
// in place like letters. Found by normalizing every code point between marks of classes 1, 220 and
// 230.
constexpr Range kYoungMarks[] = {
    {0x7FD, 0x7FD},     {0x898, 0x89F},     {0x8CA, 0x8D3},     {0x9FE, 0x9FE},
    {0xC3C, 0xC3C},     {0xD3B, 0xD3C},     {0xEBA, 0xEBA},     {0x1715, 0x1715},
    {0x1ABF, 0x1ACE},   {0x1DF6, 0x1DFA},   {0xA82C, 0xA82C},   {0x10D24, 0x10D27},
    {0x10EAB, 0x10EAC}, {0x10EFD, 0x10EFF}, {0x10F46, 0x10F50}, {0x10F82, 0x10F85},
    {0x11070, 0x11070}, {0x1133B, 0x1133B}, {0x1145E, 0x1145E}, {0x11839, 0x1183A},
    {0x11930, 0x11930}, {0x1193D, 0x1193E}, {0x11943, 0x11943}, {0x119E0, 0x119E0},
    {0x11A34, 0x11A34}, {0x11A47, 0x11A47}, {0x11A99, 0x11A99}, {0x11D42, 0x11D42},
    {0x11D44, 0x11D45}, {0x11D97, 0x11D97}, {0x11F41, 0x11F42}, {0x16FF0, 0x16FF1},
    {0x1E08F, 0x1E08F}, {0x1E130, 0x1E136}, {0x1E2AE, 0x1E2AE}, {0x1E2EC, 0x1E2EF},
    {0x1E4EC, 0x1E4EF}};

// Decompositions younger than Unicode 9, found by decomposing every code point.
constexpr Range kYoungDecompositions[] = {
    {0x32FF, 0x32FF},   {0xA7F2, 0xA7F4},   {0xAB69, 0xAB69},   {0x10781, 0x10785},
    {0x10787, 0x107B0}, {0x107B2, 0x107BA}, {0x11938, 0x11938}, {0x1E030, 0x1E06D},
    {0x1F16C, 0x1F16C}, {0x1FBF0, 0x1FBF9}};

template <size_t n>
bool is_within(const Range (&ranges)[n], uint32_t code_point) {
  if (code_point < ranges[0].first) return false;
  for (const Range& range : ranges) {
    if (code_point <= range.last) return code_point >= range.first;
  }
  return false;
}

bool composes(NormalForm form) { return form == NormalForm::kNfc || form == NormalForm::kNfkc; }

bool is_young(uint32_t code_point, NormalForm form) {
  return is_within(kYoungMarks, code_point) ||
         (form != NormalForm::kNfc && is_within(kYoungDecompositions, code_point));
}

utf8proc_option_t options_of(NormalForm form) {
  const bool is_compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE |
                                        (composes(form) ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (is_compatible ? UTF8PROC_COMPAT : 0));
}

int combining_class(int32_t code_point) {
  return utf8proc_get_property(code_point)->combining_class;
}

[[noreturn]] void throw_failed(utf8proc_ssize_t error) {
  throw ValueError(fmt::format("normalization: {}", utf8proc_errmsg(error)));
}

/// The decomposition, marks not yet in order.
std::vector<int32_t> decomposed(std::string_view run, NormalForm form) {
  constexpr size_t kLongest = 32;  // code points that one can become; Unicode 15 has 18
  std::vector<int32_t> out;
  while (!run.empty()) {
    const CodePoint c = first_code_point(run);
    run.remove_prefix(c.size);
    const size_t size = out.size();
    out.resize(size + kLongest);
    int boundary = 0;
    const utf8proc_ssize_t n =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.value), out.data() + size, kLongest,
                                options_of(form), &boundary);
    if (n < 0) throw_failed(n);
    out.resize(size + static_cast<size_t>(n));
  }
  return out;
}

/// Sorts every run of marks by class. utf8proc_map would do it too, in quadratic time for long
/// runs.
void order_marks(std::vector<int32_t>& code_points) {
  for (auto at = code_points.begin(); at != code_points.end();) {
    if (combining_class(*at) == 0) {
      ++at;
      continue;
    }
    const auto end =
        std::find_if(at, code_points.end(), [](int32_t c) { return combining_class(c) == 0; });
    std::stable_sort(at, end,
                     [](int32_t a, int32_t b) { return combining_class(a) < combining_class(b); });
    at = end;
  }
}

void append_normal(std::string& out, std::string_view run, NormalForm form) {
  if (is_plainly_normal(run, form)) {
    out.append(run);
    return;
  }
  std::vector<int32_t> code_points = decomposed(run, form);
  order_marks(code_points);
  auto n = static_cast<utf8proc_ssize_t>(code_points.size());
  if (composes(form)) n = utf8proc_normalize_utf32(code_points.data(), n, options_of(form));
  if (n < 0) throw_failed(n);
  for (utf8proc_ssize_t i = 0; i < n; ++i) append_utf8(out, static_cast<uint32_t>(code_points[i]));
}

}  // namespace

bool is_plainly_normal(std::string_view text, NormalForm form) {
  const uint8_t first_lead = form == NormalForm::kNfc ? kFirstMarkLead : 0x80;
  for (const char c : text) {
    if (static_cast<uint8_t>(c) >= first_lead) return false;
  }
  return true;
}

std::string to_normal_form(std::string_view text, NormalForm form) {
  std::string out;
  out.reserve(text.size());
  // A run begins at a code point that never joins what is before it, so runs are independent.
  size_t run = 0, at = 0;
  while (at < text.size()) {
    const CodePoint c = first_code_point(text.substr(at));
    const bool is_alone = c.value >= kFirstMark && is_young(c.value, form);
    if (c.value < kFirstMark || is_alone) {
      append_normal(out, text.substr(run, at - run), form);
      run = at;
    }
    at += c.size;
    if (is_alone) {
      out.append(text.substr(run, at - run));
      run = at;
    }
  }
  append_normal(out, text.substr(run), form);
  return out;
}

}  // namespace kv
