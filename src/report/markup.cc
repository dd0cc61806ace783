#include "report/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "kvscale/error.h"
#include "report/plain_text.h"

namespace kv {
namespace {

/// A newline after these would show up as a space in running text.
bool is_inline(std::string_view tag) {
  static constexpr std::array<std::string_view, 7> kInline = {"a",      "code",  "em",  "span",
                                                              "strong", "tspan", "abbr"};
  return std::find(kInline.begin(), kInline.end(), tag) != kInline.end();
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string out;
  for (const char c : printable(text)) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      case '\'':
        out += "&#39;";
        break;
      default:
        out += c;
    }
  }
  return out;
}

std::string anchor_of(std::string_view record_id) {
  if (record_id.empty()) return "~";
  std::string out;
  for (const char c : record_id) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte < 0x80 &&
        (std::isalnum(byte) != 0 || std::string_view("-._:/").find(c) != std::string_view::npos)) {
      out += c;
    } else {
      out += fmt::format("~{:02x}", byte);
    }
  }
  return out;
}

void Markup::start(std::string_view tag, const Attributes& attributes) {
  out_ += fmt::format("<{}", tag);
  for (const auto& [name, value] : attributes) {
    out_ += fmt::format(" {}=\"{}\"", name, escape_html(value));
  }
}

Markup& Markup::open(std::string_view tag, const Attributes& attributes) {
  start(tag, attributes);
  out_ += '>';
  open_.emplace_back(tag);
  return *this;
}

Markup& Markup::close() {
  if (open_.empty()) throw ValueError("markup: close() without an open element");
  out_ += fmt::format("</{}>", open_.back());
  if (!is_inline(open_.back())) out_ += '\n';
  open_.pop_back();
  return *this;
}

Markup& Markup::text(std::string_view text) {
  out_ += escape_html(text);
  return *this;
}

Markup& Markup::leaf(std::string_view tag, std::string_view content, const Attributes& attributes) {
  return open(tag, attributes).text(content).close();
}

Markup& Markup::empty(std::string_view tag, const Attributes& attributes) {
  start(tag, attributes);
  out_ += is_inline(tag) ? "/>" : "/>\n";
  return *this;
}

Markup& Markup::style_sheet(std::string_view css) {
  if (css.find_first_of("<&") != std::string_view::npos) {
    throw ValueError("markup: a style sheet with < or & is not well-formed XML");
  }
  out_ += fmt::format("<style>\n{}</style>\n", css);
  return *this;
}

std::string Markup::take() {
  if (!open_.empty()) {
    throw ValueError(fmt::format("markup: element <{}> is still open", open_.back()));
  }
  return std::move(out_);
}

}  // namespace kv
