#pragma once

#include <string>
#include <vector>

#include "report/arm_table.h"
#include "report/eval_report.h"
#include "report/markup.h"
#include "report/range_grid.h"

namespace kv {

/// Heat map of score noise by layer and layout with its table, folded heat maps by query head, and
/// a folded table of everything that was measured, one row a record.
void add_range_section(Markup& html, const RangeGrid& grid);

/// Folded heat maps of SQNR and clipping by layer, side and KV head, with their tables; nothing when
/// the records have no numbers by head.
void add_head_health(Markup& html, const RangeGrid& grid);

/// Chart of KLD by arm with standard errors, and the table of arms, one row a record.
void add_arm_section(Markup& html, const std::vector<ArmRow>& arms);

}  // namespace kv
