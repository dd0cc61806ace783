#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "engine/arm.h"
#include "evaluate/record.h"
#include "report/text_style.h"

namespace kv {

/// "0.0162 ± 0.0012", without the error when it is not finite or not positive.
std::string mean_with_error(double mean, double se, int decimals, bool unicode);

/// One arm beside the control.
struct ArmRow {
  const ArmRecord* record = nullptr;
  ArmSpec spec;
  double delta_nll = 0;                 // to the control, nats
  std::optional<double> gain;           // capacity, control bytes / arm bytes
  std::optional<double> predicted_kld;  // before it was run, where a scan did that

  bool is_control() const { return spec.layout == ArmLayout::kBf16; }
  /// The arm without its list of BF16 layers: "fp8_scale1/math=fp8".
  std::string base() const;
  /// "0,3k,7v"; "all" for the control, "-" for none.
  std::string bf16_layers() const;
  /// KLD with its standard error where it has one, and how many tokens it lacks; empty for the
  /// control.
  std::string kld_text(bool unicode = true) const;
  std::string predicted_text() const;  // empty where nothing is predicted
};

/// Arms with what they are compared to. Points into the records. Throws ValueError when no record
/// is the control ("bf16") or an arm's spelling is not understood.
std::vector<ArmRow> make_arm_rows(std::span<const ArmRecord> arms,
                                  std::span<const CapacityRecord> capacities);

/// Fills in what one pass of the control expects of the arms, where it can (predicted_kld.h).
void add_predictions(std::span<const RangeRecord> ranges, std::vector<ArmRow>& arms);

/// What the column of kld_text() is called: with "± se" where some arm has an error.
std::string kld_head(const std::vector<ArmRow>& arms, bool unicode = true);

bool has_predictions(const std::vector<ArmRow>& arms);

/// The arms as a table on a terminal, with a line that says what its columns are.
std::string arm_text(const std::vector<ArmRow>& arms, const TextStyle& style);

}  // namespace kv
