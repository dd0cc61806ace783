#pragma once

#include <memory>

#include "evaluate/task.h"

namespace kv {

/// mrcr_like: a dialogue in which the same request comes several times among similar ones, each
/// time with another answer; one of the answers is asked for again, behind a given tag. Null for
/// another name.
std::unique_ptr<Task> make_dialogue_task(const GeneratorOptions& options,
                                         const FillerMaker& filler);

}  // namespace kv
