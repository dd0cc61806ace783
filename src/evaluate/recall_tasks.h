#pragma once

#include <memory>

#include "evaluate/task.h"

namespace kv {

/// Tasks that ask for one fact again in the very words in which the context states it, and force
/// the answer: niah_single, niah_multikey, kv_recall, copy_span. Null for another name.
std::unique_ptr<Task> make_recall_task(const GeneratorOptions& options, const FillerMaker& filler);

}  // namespace kv
