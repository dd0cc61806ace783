#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/task.h"
#include "evaluate/words.h"

namespace kv {

/// What one question rests on: lines that stand in this order all over the context.
struct NeedleGroup {
  std::vector<std::string> lines;
  AskedText asked;
};

/// Tasks whose questions rest on a group of lines each.
struct GroupKind {
  std::string_view task;
  /// A group none of whose words an earlier one has. `most` is how many lines there may be where
  /// their number is free.
  NeedleGroup (*next)(WordMaker& words, Form form, int64_t most);
  int64_t least_groups = 1;  // in a context, asked for or not
  int64_t spare = 8;         // tokens of an answer beyond half as much again as the shortest one
  int64_t least_most = 0;    // below it the answer would be easy to guess
  /// The first lines of a context, if there are any.
  std::string (*preamble)(WordMaker& words, Form form) = nullptr;
};

/// niah_multivalue, niah_multiquery, var_track, count, arith_chain. Null for another name.
std::unique_ptr<Task> make_group_task(const GeneratorOptions& options, const FillerMaker& filler);

}  // namespace kv
