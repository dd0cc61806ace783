#include <memory>

#include "evaluate/recall_tasks.h"
#include "evaluate/task.h"

namespace kv {

std::unique_ptr<Task> make_task(const GeneratorOptions& options, const FillerMaker& filler) {
  return make_recall_task(options, filler);
}

}  // namespace kv
