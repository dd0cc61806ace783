#pragma once

#include <string>
#include <vector>

#include "decide/divergence.h"
#include "report/markup.h"
#include "report/text_style.h"

namespace kv {

/// "Divergence from BF16's greedy answers", or of sampled ones.
std::string divergence_heading(const std::vector<DivergenceRow>& rows);

/// What divergence is and what it is not, in two sentences.
std::string divergence_words(const std::vector<DivergenceRow>& rows);

/// Heads of a table, and one row in words.
std::vector<std::string> divergence_heads();
std::vector<std::string> divergence_cells(const DivergenceRow& row);

/// A step chart for every block and bucket, the table of all rows, and the shares that still agree
/// after 1, 2, 4, ... tokens; nothing without rows.
void add_divergence_section(Markup& html, const std::vector<DivergenceRow>& rows);

/// The table on a terminal, at most style.width columns wide; empty without rows.
std::string divergence_text(const std::vector<DivergenceRow>& rows, const TextStyle& style);

}  // namespace kv
