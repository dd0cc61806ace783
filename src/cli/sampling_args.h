#pragma once

#include <cstdint>
#include <string>

#include "cli/args.h"
#include "study/runner.h"

namespace kv::cli {

/// Samples of a question when nobody says how many: the spread between them is then a quarter.
inline constexpr int64_t kSamples = 4;

/// What the options ask for. Throws ValueError naming the command for numbers outside their range,
/// and for --top-p or --samples without a temperature, which greedy decoding would pass over.
AnswerSampling answer_sampling(const std::string& command, const SamplingArgs& args, uint64_t seed);

/// The options again as on a command line, with a space before each; empty when greedy.
std::string sampling_options(const AnswerSampling& sampling);

/// A line of a run's configuration; empty when greedy.
std::string sampling_configuration(const AnswerSampling& sampling);

}  // namespace kv::cli
