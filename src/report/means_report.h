#pragma once

#include <string>

#include "decide/compare_means.h"
#include "report/text_style.h"

namespace kv {

/// A table of means with its tests, in points; ends with a newline.
std::string means_text(const BucketMeans& means, const MeansComparison& comparison,
                       const std::string& source, const TextStyle& style);

/// The same as one JSON object. Keys: kind, source, caveat, accepts (always false), buckets[]
/// (bucket, control, candidate, difference), sign, trend, shift, auc.
std::string means_json(const BucketMeans& means, const MeansComparison& comparison,
                       const std::string& source);

}  // namespace kv
