#include "evaluate/generation.h"

#include <fmt/format.h>

#include <algorithm>

namespace kv {

std::string generation_record_id(const std::string& block, const std::string& arm,
                                 const std::string& example, int64_t sample) {
  return fmt::format("gen/{}/{}/{}{}", block, arm, example,
                     sample > 0 ? fmt::format("#{}", sample) : "");
}

void compare_with_control(GenerationRecord& record, const GenerationRecord& control) {
  const auto shared = std::min(record.ids.size(), control.ids.size());
  if (shared == 0 || control.margins.size() != control.ids.size()) return;
  const auto [own, controls] =
      std::mismatch(record.ids.begin(), record.ids.begin() + static_cast<std::ptrdiff_t>(shared),
                    control.ids.begin());
  const auto agreed = static_cast<size_t>(own - record.ids.begin());
  record.diverged = agreed < shared;
  record.fdi = static_cast<int64_t>(record.diverged ? agreed + 1 : shared);
  record.margin = record.diverged ? control.margins[agreed] : 0;
}

}  // namespace kv
