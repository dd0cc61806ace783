#pragma once

#include <string_view>

#include "kvscale/error.h"

namespace kv {

/// Parses a JSON text into `Json` (one of nlohmann's). What is nested deeper than 64 is refused
/// with a FormatError: parsing it is harmless, printing, comparing or destroying it needs as deep a
/// stack. Passes on what the parser throws.
template <class Json>
Json parse_shallow(std::string_view text) {
  constexpr int kDeepest = 64;
  return Json::parse(text.begin(), text.end(),
                     [](int depth, typename Json::parse_event_t, Json&) -> bool {
                       if (depth <= kDeepest) return true;
                       throw FormatError("JSON nested deeper than 64");
                     });
}

}  // namespace kv
