#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv::cli {

struct RecomputeArgs {
  std::string folder;
  std::string out;    // folder for the rebuilt files; empty = only missing ones are written
  std::string junit;  // file
  bool report = false;
  bool json = false;
};

struct ReportArgs {
  std::vector<std::string> folders;
  std::string out;  // file; empty = report.html in the run, or kvscale-runs.html
};

struct CompareArgs {
  std::string control, candidate, repeat;  // files or folders with scores of examples
  std::string table;                       // or one CSV file of bucket means
  std::string unit = "auto";               // of the table: percent, share
  std::string control_arm = "bf16", candidate_arm, block;  // of kvscale's records
  std::string metric, filter;                              // of sample logs
  std::string bucket_field, cluster_field;                 // likewise, as doc.length
  std::vector<int64_t> buckets;                            // edges for a bucket field of numbers
  std::string margin;                                      // empty: the runs' own, else standard
  double bucket_points = 0, overall_points = 0;            // 0 = those of `margin`
  bool json = false;
};

int run_recompute(const RecomputeArgs& args);
int run_report(const ReportArgs& args);
int run_compare(const CompareArgs& args);

}  // namespace kv::cli
