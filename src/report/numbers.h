#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace kv {

/// "1.350"; non-finite numbers are "nan", "inf", "-inf", and a zero has no sign.
std::string fixed(double value, int decimals);

/// The same with a sign: "+0.014", "-0.006", "0.000".
std::string signed_fixed(double value, int decimals);

/// At most `digits` significant digits and six decimals, without trailing zeros: 1.348 -> "1.35",
/// 0.0170 -> "0.017", 1348 -> "1348".
std::string significant(double value, int digits);

/// The smallest number of one significant digit that is not below a positive value:
/// 0.0187 -> 0.02.
double round_up(double value);

/// Digits in groups of three: 131072 -> "131,072".
std::string grouped(int64_t value);

/// Bytes, never rounded without saying so. Below 1 MiB in bytes ("5,120 B"); else in the largest
/// unit of which they are a whole number of eighths and at least one ("20.625 GiB", "2,047.5 MiB");
/// else with a few bytes apart ("20 GiB + 640 B"), or rounded and exact ("~1.177 MiB (1,234,567
/// B)").
std::string format_bytes(int64_t bytes);

/// 100 * part / whole: exact when four decimals suffice ("3.125 %"), else "~33.3333 %". Throws
/// ValueError unless whole > 0.
std::string format_percent(int64_t part, int64_t whole);

/// A share as percent: 0.927 -> "92.7 %".
std::string percent(double share, int decimals = 1);

/// Numbers as a person lists them, runs of three and more joined: "0, 1 and 8", "0 to 4 and 8".
std::string list_numbers(std::span<const int64_t> ascending);

/// The same for tables: "0,1,8", "0-4,8"; "-" when empty.
std::string compact_numbers(std::span<const int64_t> ascending);

/// Numbers in the order given: "0, 4, 1"; "none" when empty.
std::string list_in_order(std::span<const int> numbers);

}  // namespace kv
