#pragma once

#include "engine/engine.h"
#include "evaluate/record.h"

namespace kv {

/// Cache bytes of an arm for one sequence of `tokens` tokens, in whole blocks of 16 as servers
/// allocate them, beside BF16's. Allocates one block of the arm and checks that it takes what the
/// formula says: throws Error when it does not.
CapacityRecord capacity_of(const ArmSpec& arm, const Model& model, int64_t tokens);

}  // namespace kv
