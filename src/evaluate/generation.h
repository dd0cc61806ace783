#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "evaluate/record.h"

namespace kv {

/// A generation beyond this is recorded up to here, and censored here.
inline constexpr size_t kMostRecordedIds = 512;

/// "gen/BLOCK/ARM/EXAMPLE", with "#SAMPLE" behind it where answers are sampled.
std::string generation_record_id(const std::string& block, const std::string& arm,
                                 const std::string& example, int64_t sample);

/// Sets fdi, diverged and margin from the ids of both. Nothing is said when one of them has no ids,
/// or the control no margins.
void compare_with_control(GenerationRecord& record, const GenerationRecord& control);

}  // namespace kv
