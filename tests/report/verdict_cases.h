#pragma once

#include "decide/verdict.h"
#include "evaluate/record_log.h"
#include "report/verdict_report.h"

namespace kv {

/// A verdict with the records that it names.
struct VerdictCase {
  Verdict verdict;
  Records records;
};

/// The case as reported on, with the model, prompts and run of smollm2_scan(). Must not outlive the
/// case.
VerdictReport report_of(const VerdictCase& one);

/// Scale 1.0 passes at the quick margin.
VerdictCase keep_case();
/// Layer 0 breaks; kept in BF16 the rest passes. With ranges, ablation and a calibration.
VerdictCase selective_case();
/// Too few questions.
VerdictCase inconclusive_case();

}  // namespace kv
