#pragma once

#include <string>

#include "evaluate/group_tasks.h"

namespace kv {

/// A word problem of 3 to 8 steps on whole numbers, and its solution on one line:
/// " 12 + 7 = 19, 19 - 4 = 15 #### 15". Right is the number after "####".
NeedleGroup word_problem(WordMaker& words, Form form, int64_t most);

/// A short problem with its solution below it, which shows the form.
std::string worked_example(WordMaker& words, Form form);

}  // namespace kv
