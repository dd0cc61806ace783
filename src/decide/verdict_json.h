#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "decide/verdict.h"

namespace kv {

/// The verdict as one JSON object, indented by two spaces, ending in a newline; the same verdict
/// always gives the same bytes. Keys: margin, outcome, sub_reason, layout (null unless accepted),
/// bf16_layers, sentence, reasons[] (rule, record, text), launch (engine -> flags, notes), next[]
/// (command, text), state_trace[], tables[], ablation[], dropped_buckets, notices, thresholds,
/// exit_code and more. Numbers that are not finite are written as null.
std::string verdict_json(const Verdict& verdict);

/// One of its tables.
nlohmann::ordered_json table_json(const ArmTable& table);

/// Its "divergence": near_tie in nats, and rows[] with their curves.
nlohmann::ordered_json divergence_json(const std::vector<DivergenceRow>& rows);

}  // namespace kv
