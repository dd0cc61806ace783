#pragma once

#include <string>
#include <vector>

#include "cache/capacity.h"
#include "decide/evidence.h"
#include "endpoint/server_facts.h"
#include "engine/arm.h"
#include "evaluate/record.h"

namespace kv {

/// Tokens that `arm` fits into the memory that the server names, in whole blocks of its size, by
/// the arithmetic of `plan`; 0 when memory or block size is not known, or when layers keep windows
/// only, which engines group in ways of their own.
int64_t expected_tokens(const std::vector<LayerGeometry>& layers, const ArmSpec& arm,
                        const ServerFacts& facts);

/// What a server says against what was asked of it, one fact that does not hold for each
/// contradiction, with both values:
///
///   declared   its cache dtype, its list of layers without quantization
///   observed   tokens that fit: of another format than the arm's
///   known      what this engine's backend is known to do with the layout
///   log        that scales were not found
///
/// For a candidate BACKEND_FALLBACK or SCALES_NOT_APPLIED, for the control CONTROL_BROKEN.
std::vector<PreflightFact> contradictions(const std::vector<LayerGeometry>& layers,
                                          const ArmSpec& arm, const ServerFacts& facts);

/// The same of each of several replicas behind one address, with the one that it is about.
std::vector<PreflightFact> contradictions_of_replicas(const std::vector<LayerGeometry>& layers,
                                                      const ArmSpec& arm,
                                                      const std::vector<ServerFacts>& replicas);

/// The same from the prefill lane on one text, of a candidate and of what ran before it: logprobs
/// that equal the control's to the last bit say that nothing is quantized, calibrated ones that
/// equal those of scale 1.0 that the scales did not arrive, and those of heads that equal those of
/// tensors that only the largest head's counts. `served` holds the latest record of each arm.
std::vector<PreflightFact> contradictions(const std::vector<LayerGeometry>& layers,
                                          const ArmSpec& arm, const ServedRecord& record,
                                          const std::vector<ServedRecord>& served);

/// Mean of the finite logprobs' negatives, over the first `count`, or all.
double mean_nll(const std::vector<float>& logprobs, size_t count = SIZE_MAX);

}  // namespace kv
