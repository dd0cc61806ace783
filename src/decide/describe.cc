#include <fmt/core.h>

#include "decide/quality.h"

namespace kv {
namespace {

std::string points(const Interval& interval) {
  return fmt::format("[{:.2f}, {:.2f}]", 100 * interval.lo, 100 * interval.hi);
}

}  // namespace

std::string describe(const BucketRow& row, double margin, double alpha) {
  return fmt::format(
      "bucket {}: {:+.2f} points {} at {:.4g} %, {} questions on {} documents, {} lost, {} gained: "
      "{} at a margin of {:.4g} points{}{}",
      row.bucket, 100 * row.diff, points(row.interval), 100 * (1 - 2 * alpha), row.n, row.documents,
      row.losses, row.gains, name(row.verdict), 100 * margin, row.note.empty() ? "" : "; ",
      row.note);
}

std::string describe(const OverallRow& row, std::string_view what, double alpha) {
  return fmt::format(
      "{}: {:+.2f} points {} at {:.4g} %, {} questions on {} documents, {} lost, {} gained: {} at "
      "a "
      "margin of {:.4g} points",
      what, 100 * row.diff, points(row.interval), 100 * (1 - 2 * alpha), row.n, row.documents,
      row.losses, row.gains, name(row.verdict), 100 * row.margin);
}

}  // namespace kv
