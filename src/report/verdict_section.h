#pragma once

#include "decide/verdict.h"
#include "evaluate/record_log.h"
#include "report/markup.h"

namespace kv {

/// The control run twice, one row a bucket.
void add_control_section(Markup& html, const Verdict& verdict);

/// For every comparison its sentence, a chart of paired differences with margin lines, and its
/// table, one row a bucket.
void add_comparison_section(Markup& html, const Verdict& verdict);

/// KLD against the number of layers kept in BF16, as chart and table. `owns_records`: the table's
/// rows are the targets of links to the points' records.
void add_ablation_section(Markup& html, const Verdict& verdict, bool owns_records);

/// Capacity, support and calibration, one row a record.
void add_system_sections(Markup& html, const Records& records);

/// The walk through the states, and the numbers that it was decided by.
void add_method_section(Markup& html, const Verdict& verdict);

}  // namespace kv
