#include "cli/sampling_args.h"

#include <fmt/core.h>

#include "kvscale/error.h"

namespace kv::cli {

AnswerSampling answer_sampling(const std::string& command, const SamplingArgs& args,
                               uint64_t seed) {
  const Sampling how{args.temperature, args.top_p};
  try {
    check_sampling(how);
  } catch (const ValueError& error) {
    throw ValueError(fmt::format("{}: {}", command, error.what()));
  }
  if (how.is_greedy() && (args.samples > 0 || args.top_p < 1)) {
    throw ValueError(fmt::format(
        "{}: {}: expected --temperature above 0 beside it: greedy decoding draws nothing", command,
        args.samples > 0 ? "--samples" : "--top-p"));
  }
  if (how.is_greedy()) return {};
  return {how, args.samples > 0 ? args.samples : kSamples, seed};
}

std::string sampling_options(const AnswerSampling& sampling) {
  if (sampling.how.is_greedy()) return "";
  return fmt::format(" --temperature {}{} --samples {}", sampling.how.temperature,
                     sampling.how.top_p < 1 ? fmt::format(" --top-p {}", sampling.how.top_p) : "",
                     sampling.samples);
}

std::string sampling_configuration(const AnswerSampling& sampling) {
  if (sampling.how.is_greedy()) return "";
  return fmt::format("\nsampling temperature {} top-p {} samples {} seed {}",
                     sampling.how.temperature, sampling.how.top_p, sampling.samples, sampling.seed);
}

}  // namespace kv::cli
