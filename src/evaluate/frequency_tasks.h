#pragma once

#include <memory>

#include "evaluate/task.h"

namespace kv {

/// Tasks that ask which words of a long list are the most frequent: common_words, freq_words. A
/// list has one such question. Null for another name.
std::unique_ptr<Task> make_frequency_task(const GeneratorOptions& options,
                                          const FillerMaker& filler);

}  // namespace kv
