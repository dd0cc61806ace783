#pragma once

#include <string>

#include "report/numbers.h"

namespace kv {

/// Width of every drawing in user units; the style sheet shows them 1 to 1.5 times as large, so a
/// phone shows 10 px text.
inline constexpr double kSvgWidth = 340;

/// A coordinate, to a tenth of a unit.
inline std::string svg_number(double value) { return fixed(value, 1); }

}  // namespace kv
