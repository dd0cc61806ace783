#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "decide/thresholds.h"
#include "report/arm_table.h"
#include "report/numbers.h"
#include "report/range_grid.h"
#include "report/scan_report.h"

namespace kv {
namespace {

using thresholds::kCalibrationHarm;
using thresholds::kRepairShare;
using thresholds::kSafeKld;
using thresholds::kSafeSameTop;

using Rows = std::vector<const RangeRow*>;

struct Findings {
  RangeGrid grid;
  std::vector<ArmRow> arms;
  Rows broken_everywhere, broken_somewhere, doubtful;

  const ArmRow* plain_arm(const std::string& layout) const {
    const auto found = std::find_if(arms.begin(), arms.end(), [&](const ArmRow& arm) {
      return arm.spec.bf16.empty() && arm.base() == layout;
    });
    return found == arms.end() ? nullptr : &*found;
  }
  const ArmRow* repaired_arm(const std::string& layout) const {
    const auto found = std::find_if(arms.begin(), arms.end(), [&](const ArmRow& arm) {
      return !arm.spec.bf16.empty() && arm.base() == layout;
    });
    return found == arms.end() ? nullptr : &*found;
  }
  Rows rows_of(size_t layout, LayerFlag flag) const {
    Rows out;
    for (const RangeRow& row : grid.rows) {
      if (row.flag(layout) == flag) out.push_back(&row);
    }
    return out;
  }
  Rows flagged(size_t layout) const {
    Rows out = rows_of(layout, LayerFlag::kBroken);
    const Rows doubtful_rows = rows_of(layout, LayerFlag::kDoubtful);
    out.insert(out.end(), doubtful_rows.begin(), doubtful_rows.end());
    return out;
  }
};

Findings find(const ScanReport& report) {
  Findings out;
  out.grid = make_range_grid(report.ranges);
  out.arms = make_arm_rows(report.arms, report.capacities);
  for (const RangeRow& row : out.grid.rows) {
    switch (row.worst_flag()) {
      case LayerFlag::kBroken:
        (row.is_broken_everywhere() ? out.broken_everywhere : out.broken_somewhere).push_back(&row);
        break;
      case LayerFlag::kDoubtful:
        out.doubtful.push_back(&row);
        break;
      case LayerFlag::kHealthy:
        break;
    }
  }
  return out;
}

/// "layer 0", "layers 0, 1 and 8".
std::string layers(const Rows& rows) {
  std::vector<int64_t> numbers;
  for (const RangeRow* row : rows) numbers.push_back(row->layer);
  return fmt::format("layer{} {}", numbers.size() == 1 ? "" : "s", list_numbers(numbers));
}

std::string capital(std::string text) {
  text.front() = static_cast<char>(std::toupper(static_cast<unsigned char>(text.front())));
  return text;
}

const char* plural(const Rows& rows, const char* one, const char* many) {
  return rows.size() == 1 ? one : many;
}

/// KLD of the arms that keep no layer in BF16, as far as they were run.
Extent kld_extent(const Findings& f) {
  Extent out;
  for (const std::string& layout : f.grid.layouts) {
    if (const ArmRow* arm = f.plain_arm(layout)) out.add(arm->record->kld);
  }
  return out;
}

/// Worst clip share of the keys of some layers under one layout.
double clipping(const Rows& rows, size_t layout) {
  double worst = 0;
  for (const RangeRow* row : rows) {
    if (row->k[layout] != nullptr) worst = std::max(worst, row->k[layout]->clip_frac);
  }
  return worst;
}

/// Why the keys of some layers lose their meaning: "; its keys carry ..." or nothing.
std::string cause(const Rows& rows) {
  double centred = INFINITY, plain = INFINITY, clipped = 0;
  for (const RangeRow* row : rows) {
    for (const RangeRecord* record : row->k) {
      if (record == nullptr) continue;
      centred = std::min(centred, record->centred_sqnr_db);
      plain = std::min(plain, record->sqnr_db);
      clipped = std::max(clipped, record->clip_frac);
    }
  }
  const char* whose = plural(rows, "its", "their");
  if (clipped > thresholds::kTokenClipFrac) {
    return fmt::format("; up to {} of {} keys clip", percent(clipped), whose);
  }
  if (centred < thresholds::kOffsetCentredDb && centred < plain) {
    return fmt::format("; {} keys carry a constant offset: centred SQNR {} dB", whose,
                       fixed(centred, 0));
  }
  return "";
}

/// "; layer 1 is doubtful (0.35 to 0.47 nats)".
std::string doubtful_clause(const Findings& f, const char* lead) {
  if (f.doubtful.empty()) return "";
  return fmt::format("{}{} {} doubtful ({} nats)", lead, layers(f.doubtful),
                     plural(f.doubtful, "is", "are"), noise_extent(f.doubtful).text());
}

std::string where_broken(const Findings& f) {
  return f.grid.layouts.size() == 1 ? "under " + layout_label(f.grid.layouts.front())
                                    : "under every FP8 layout";
}

/// What keeping the shortlist in BF16 did, for the first layout that was run both ways.
std::string repair_clause(const Findings& f) {
  for (const std::string& layout : f.grid.layouts) {
    const ArmRow* before = f.plain_arm(layout);
    const ArmRow* after = f.repaired_arm(layout);
    if (before == nullptr || after == nullptr) continue;
    const std::string from = significant(before->record->kld, 3);
    const std::string to = significant(after->record->kld, 3);
    if (after->record->kld <= kRepairShare * before->record->kld) {
      return fmt::format("that brings KLD from {} to {} nats under {}", from, to,
                         layout_label(layout));
    }
    return fmt::format("that alone does not repair it, KLD goes from {} to {} nats under {}", from,
                       to, layout_label(layout));
  }
  return "";
}

std::string broken_sentence(const Findings& f) {
  const Rows& rows = f.broken_everywhere;
  std::string out =
      fmt::format("{} {} {} (score noise {} nats{}): keep {} in BF16", capital(layers(rows)),
                  plural(rows, "breaks", "break"), where_broken(f), noise_extent(rows).text(),
                  cause(rows), plural(rows, "it", "them"));
  const std::string repair = repair_clause(f);
  if (!repair.empty()) out += "; " + repair;
  if (!f.broken_somewhere.empty()) {
    out += fmt::format("; {} {} under some layouts", layers(f.broken_somewhere),
                       plural(f.broken_somewhere, "breaks", "break"));
  }
  return out + doubtful_clause(f, "; ") + ".";
}

/// "every layout costs less than 0.02 nats of KLD", if all are safe; else what this one costs.
std::string cost_clause(const Findings& f, const ArmRow& base) {
  const Extent kld = kld_extent(f);
  if (kld.high < kSafeKld) {
    return fmt::format("every layout costs less than {} nats of KLD",
                       significant(round_up(kld.high), 1));
  }
  return fmt::format("it costs {} nats of KLD, other layouts up to {}",
                     significant(base.record->kld, 2), significant(kld.high, 2));
}

std::string clean_sentence(const Findings& f, size_t layout) {
  const std::string label = layout_label(f.grid.layouts[layout]);
  const ArmRow* arm = f.plain_arm(f.grid.layouts[layout]);
  Rows all;
  for (const RangeRow& row : f.grid.rows) all.push_back(&row);
  if (arm == nullptr) {
    return fmt::format(
        "No layer is above {} nats of score noise under FP8 with {}; what that costs was not run.",
        thresholds::kDoubtfulNoise, label);
  }
  if (arm->record->kld < kSafeKld && arm->record->same_top < kSafeSameTop) {
    return fmt::format(
        "No layer's keys stand out, and KLD under FP8 with {} is {} nats, yet only {} of the top "
        "tokens are those of BF16: the text may stay fluent and its content not, let `kvscale "
        "decide` judge it.",
        label, significant(arm->record->kld, 2), percent(arm->record->same_top));
  }
  if (!(arm->record->kld < kSafeKld)) {
    return fmt::format(
        "No layer's keys stand out (score noise at most {} nats), yet FP8 with {} costs {} nats of "
        "KLD: look at the values and at many small errors adding up, and let `kvscale decide` "
        "judge it.",
        significant(noise_extent(all, layout).high, 2), label, significant(arm->record->kld, 3));
  }
  return fmt::format(
      "FP8 with {} is safe to try on this model: no layer above {} nats of score noise; {}.", label,
      thresholds::kDoubtfulNoise, cost_clause(f, *arm));
}

/// The first layout breaks layers that a finer one leaves alone.
std::string finer_sentence(const Findings& f, size_t coarse, size_t finer) {
  const Rows rows = f.flagged(coarse);
  const ArmRow* before = f.plain_arm(f.grid.layouts[coarse]);
  const ArmRow* after = f.plain_arm(f.grid.layouts[finer]);
  const double clip = clipping(rows, coarse);
  std::string out =
      fmt::format("{} {} under {} (score noise {} nats{}), none under {}: use that",
                  capital(layers(rows)), plural(rows, "breaks", "break"),
                  layout_label(f.grid.layouts[coarse]), noise_extent(rows, coarse).text(),
                  clip > 0 ? fmt::format("; up to {} of the keys clip", percent(clip)) : "",
                  layout_label(f.grid.layouts[finer]));
  if (before != nullptr && after != nullptr) {
    out += fmt::format("; KLD goes from {} to {} nats", significant(before->record->kld, 3),
                       significant(after->record->kld, 3));
  }
  return out + ".";
}

/// "; calibration harms: per tensor costs 0.155 nats of NLL, scale 1.0 -0.006".
std::string harm_clause(const Findings& f) {
  const ArmRow* base = f.plain_arm("fp8_scale1");
  if (base == nullptr) return "";
  const ArmRow* worst = nullptr;
  for (const char* layout : {"fp8_tensor", "fp8_head"}) {
    const ArmRow* arm = f.plain_arm(layout);
    if (arm == nullptr || !(arm->delta_nll > base->delta_nll + kCalibrationHarm)) continue;
    if (worst == nullptr || arm->delta_nll > worst->delta_nll) worst = arm;
  }
  if (worst == nullptr) return "";
  return fmt::format("; calibrated scales harm: NLL {} nats {}, {} with scale 1.0",
                     signed_fixed(worst->delta_nll, 3), layout_label(worst->base()),
                     signed_fixed(base->delta_nll, 3));
}

std::string doubt_sentence(const Findings& f) {
  std::string out;
  if (f.broken_somewhere.empty()) {
    out = "No layer breaks" + doubtful_clause(f, ", but ");
  } else {
    out = fmt::format("{} {} under some FP8 layouts (score noise {} nats){}",
                      capital(layers(f.broken_somewhere)),
                      plural(f.broken_somewhere, "breaks", "break"),
                      noise_extent(f.broken_somewhere).text(), doubtful_clause(f, ", "));
  }
  const Extent kld = kld_extent(f);
  if (!kld.is_empty) out += fmt::format("; KLD is {} nats", kld.text());
  return out + harm_clause(f) +
         ": neither safe nor lost, let `kvscale decide` judge it on your "
         "prompts.";
}

}  // namespace

std::string scan_sentence(const ScanReport& report) {
  const Findings f = find(report);
  if (!f.broken_everywhere.empty()) return broken_sentence(f);
  if (f.flagged(0).empty()) return clean_sentence(f, 0);
  if (!f.rows_of(0, LayerFlag::kBroken).empty()) {
    for (size_t layout = 1; layout < f.grid.layouts.size(); ++layout) {
      if (f.flagged(layout).empty()) return finer_sentence(f, 0, layout);
    }
  }
  return doubt_sentence(f);
}

}  // namespace kv
