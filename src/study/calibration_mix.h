#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "evaluate/example.h"

namespace kv {

/// `count` of the documents, from the middles of so many equal parts.
std::vector<const Document*> spread(const std::vector<const Document*>& from, int64_t count);

/// At least `least` documents of a bucket, as many as it takes to have the tasks in the bucket's
/// proportions (total variation at most kCalibrationTv).
std::vector<const Document*> share_of_tasks(std::vector<const Document*> bucket, int64_t least);

/// The most examples of each bucket, of those available, that have the wanted proportions to the
/// nearest whole number.
std::map<std::string, int64_t> in_proportion(const std::map<std::string, int64_t>& available,
                                             const std::map<std::string, int64_t>& wanted);

}  // namespace kv
