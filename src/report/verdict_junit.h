#pragma once

#include <string>

#include "report/verdict_report.h"

namespace kv {

/// The verdict as JUnit XML for a CI gate: one suite for the gates (verdict, control, capacity),
/// one for every comparison with BF16, in which each bucket, `overall`, `validity` and the
/// persistent shift is a test case.
///
///   passed    shown: not worse by more than the margin
///   failure   shown to be worse: a loss, a persistent shift, too little capacity, REJECT_FP8
///   error     not shown either way: UNRESOLVED, INCONCLUSIVE. Not `skipped`, which CI takes for
///             good; a job that accepts an open question reads exit code 10
///   skipped   what the verdict does not rest on: comparisons of arms that were tried and left when
///             another one was accepted, buckets in which the control cannot show a loss
///
/// Failures and errors carry the rule as their type, and interval, margin and n in their message.
/// Valid XML 1.0 for any names; no times, so the same verdict gives the same bytes.
std::string verdict_junit(const VerdictReport& report);

}  // namespace kv
