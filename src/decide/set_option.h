#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "decide/options.h"

namespace kv {

/// Sets one number of a decision by the name that the verdict echoes: "alpha.accept=0.01",
/// "looks=0.5,1", "traffic=512:0.7,2048:0.3", "strict=true". Throws ValueError with the option,
/// what was expected and what was found. check_options() judges the value.
void set_option(DecideOptions& options, std::string_view assignment);

/// Every number of a decision as set_option() reads it back, bit for bit: what set_option() knows
/// is in it.
std::vector<std::string> option_assignments(const DecideOptions& options);

/// The names that set_option() knows, in the order of the verdict's list.
std::vector<std::string> option_names();

}  // namespace kv
