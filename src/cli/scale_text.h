#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "checkpoint/scales/diagnose.h"
#include "targets/dry_run.h"

namespace kv::cli {

/// Scales as numbers of a JSON document; what JSON has no number for becomes "nan", "inf", "-inf".
nlohmann::ordered_json json_values(const std::vector<float>& values);

nlohmann::ordered_json json_warnings(const std::vector<ScaleWarning>& warnings);
nlohmann::ordered_json json_inspection(const ScaleSet& set, const Diagnosis& diagnosis);
nlohmann::ordered_json json_dry_run(const DryRun& run);

/// One number, or "least .. most (n)".
std::string short_values(const std::vector<float>& values);

std::string inspection_text(const ScaleSet& set, const Diagnosis& diagnosis);
std::string warnings_text(const std::vector<ScaleWarning>& warnings);
std::string dry_run_text(const DryRun& run);

}  // namespace kv::cli
