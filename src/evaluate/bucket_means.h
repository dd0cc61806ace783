#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// A published table of means: what is left of an evaluation when nobody has the examples.
struct BucketMeans {
  std::vector<std::string> buckets;
  std::vector<double> lengths;  // tokens of the buckets; empty unless every label is a length
  std::vector<double> control, candidate;  // shares, 0 to 1
  bool was_percent = false;
};

/// "percent" and "share" say what the numbers are; "auto": share when none is above 1 and none has
/// a percent sign.
enum class MeansUnit { kAuto, kPercent, kShare };
MeansUnit means_unit(std::string_view word);

/// Reads CSV with a header that names bucket, control and candidate in any order; columns of other
/// names are refused, since they could hold what the means hide. Fields may be quoted; "95.4 %" is
/// a number. With lengths as labels ("8192", "8k", "1M") the rows come out ascending. Throws
/// IoError, and FormatError naming file, line, column, expected and found: at least 2 buckets, none
/// twice.
BucketMeans read_bucket_means(const std::filesystem::path& path, MeansUnit unit);

/// Tokens of a label that is a length: "8192" -> 8192, "8k" and "8K" -> 8192, "1M" -> 1048576.
std::optional<double> length_of_label(std::string_view label);

}  // namespace kv
