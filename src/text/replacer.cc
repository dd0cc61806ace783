#include "text/replacer.h"

namespace kv {

std::string Replacer::apply(std::string_view text, RegexMatcher* matcher) const {
  std::string out;
  out.reserve(text.size());
  if (matcher != nullptr) {
    matcher->for_each_segment(text, [&](Segment s) {
      out += s.is_match ? std::string_view(with) : text.substr(s.begin, s.end - s.begin);
    });
    return out;
  }
  for (size_t at = text.find(literal); at != std::string_view::npos; at = text.find(literal)) {
    out.append(text.substr(0, at)).append(with);
    text.remove_prefix(at + literal.size());
  }
  return out.append(text);
}

}  // namespace kv
