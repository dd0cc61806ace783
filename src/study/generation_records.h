#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluate/example.h"
#include "evaluate/record_log.h"
#include "study/runner.h"

namespace kv {

/// What an engine generated, as an attempt.
Attempt attempt_of(const Generation& generated);

/// An attempt's ids as far as a free generation is known to have them, with their margins rounded
/// to a ten-thousandth, in a record that has its sample and nothing else yet. A teacher-forced
/// attempt counts up to its first wrong token.
GenerationRecord generation_of(const Question& question, const Attempt& attempt);

/// What the arms generated for a document's questions, each compared with the control's generation:
/// of this call where the control is among the arms, else the recorded one. Block E1 has those of
/// AA. Only the control's records keep margins. Records that the log has are left out.
std::vector<GenerationRecord> generation_records(const Document& document, const std::string& block,
                                                 std::span<const RunnerArm> arms,
                                                 const std::vector<std::vector<Answer>>& answers,
                                                 const AnswerSampling& sampling,
                                                 const RecordLog& log);

}  // namespace kv
