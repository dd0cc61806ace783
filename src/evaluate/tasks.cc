#include <algorithm>
#include <array>
#include <memory>

#include "evaluate/dialogue_task.h"
#include "evaluate/frequency_tasks.h"
#include "evaluate/group_tasks.h"
#include "evaluate/recall_tasks.h"
#include "evaluate/task.h"

namespace kv {

const std::vector<std::string>& generator_tasks() {
  static const std::vector<std::string> tasks = {
      "niah_single", "niah_multikey", "niah_multivalue", "niah_multiquery", "kv_recall",
      "var_track",   "common_words",  "freq_words",      "copy_span",       "mrcr_like",
      "count",       "induction",     "arith_chain"};
  return tasks;
}

const std::vector<std::string>& default_tasks() {
  static const std::vector<std::string> tasks = {"niah_single", "kv_recall", "copy_span"};
  return tasks;
}

int64_t questions_asked(std::string_view task, int64_t wanted) {
  return task == "common_words" || task == "freq_words" ? 1 : wanted;
}

std::unique_ptr<Task> make_task(const GeneratorOptions& options, const FillerMaker& filler) {
  constexpr std::array kFamilies = {make_recall_task, make_group_task, make_frequency_task,
                                    make_dialogue_task};
  for (const auto make : kFamilies) {
    if (auto task = make(options, filler)) return task;
  }
  return nullptr;
}

}  // namespace kv
