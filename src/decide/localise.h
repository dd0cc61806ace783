#pragma once

#include <string>
#include <vector>

#include "cache/capacity.h"
#include "decide/evidence.h"
#include "decide/options.h"
#include "decide/verdict.h"
#include "engine/arm.h"

namespace kv {

/// What range health suggests. Orders the trials, accepts nothing.
struct RangeFindings {
  std::vector<int> offset_layers;  // no scale helps there; ascending
  bool has_head_dispersion = false, has_token_drift = false;
  std::vector<Reason> reasons;
};

/// Whether `ranges` has sides k and v of every layer under every layout.
bool is_complete(const std::vector<RangeRecord>& ranges, const std::vector<std::string>& layouts,
                 int64_t num_layers);

/// Reads the suggestions of LOCALISE off a pass of the control under `layouts`.
RangeFindings read_ranges(const DecideOptions& options, const std::vector<RangeRecord>& ranges,
                          const std::vector<std::string>& layouts);

/// The order in which layers are restored to BF16 under `layout`: those with doubtful score noise
/// first, worst first, then the others by value noise, worst first.
std::vector<int> restore_order(const std::vector<RangeRecord>& ranges, const std::string& layout,
                               int64_t num_layers);

/// `base` with that side of each listed layer in BF16 which its noise blames: K where the score
/// noise is doubtful, else V. By this the layer got its place in restore_order().
ArmSpec blamed_sides(const std::vector<RangeRecord>& ranges, const ArmSpec& base,
                     const std::vector<int>& layers);

/// Layers of one geometry.
struct LayerType {
  std::string what;  // "with a window of 512 tokens"
  std::vector<int> layers;
};

/// The model's types of layers by their first layer; empty where all are of one type.
std::vector<LayerType> layer_types(const std::vector<LayerGeometry>& layers);

/// Bytes in BF16 over bytes of the arm, for `tokens` tokens.
double capacity_gain(const std::vector<LayerGeometry>& layers, const ArmSpec& arm, int64_t tokens);

/// The longest prefix of `order` that may be kept in BF16: at most bf16_share_max of the layers,
/// and the capacity gain stays at least capacity_gain_min.
size_t longest_prefix(const DecideOptions& options, const std::vector<LayerGeometry>& layers,
                      const ArmSpec& base, const std::vector<int>& order, int64_t tokens);

/// The last record of the arm, or null.
const ArmRecord* find_arm(const std::vector<ArmRecord>& records, const std::string& arm);

/// Share of the KLD above the floor that the restored arm lacks.
double share_removed(double base, double restored, double floor);

/// The search for the shortest prefix that removes enough of the excess KLD, taking it that a
/// longer one removes no less. Measured are none, `guess` layers and one less; where these do not
/// suffice, groups of doubling size above, and where less suffices, the middle of what is left. So
/// a good guess takes three arms, and one of 1 measures none and 1, 2 to 3, 4 to 7, ...
struct Ablation {
  std::vector<std::string> missing;   // arms whose KLD is needed next; empty when done
  std::vector<AblationPoint> points;  // measured so far
  std::vector<int> layers;            // the shortest prefix; empty if there is none
};

/// kld_floor: the mean KLD of the control's repeat.
Ablation ablate(const DecideOptions& options, const std::vector<ArmRecord>& records,
                const ArmSpec& base, const std::vector<int>& order, size_t longest,
                double kld_floor, size_t guess = 1);

/// The shortest prefix that will do if KLD goes as the damage that one pass of the control saw
/// (evaluate/predicted_kld.h; the share needs no factor); all of `longest` if none is expected to,
/// 1 where a layer was not seen. Says what is measured first, no more.
size_t predicted_prefix(const DecideOptions& options, const std::vector<RangeRecord>& ranges,
                        const ArmSpec& base, const std::vector<int>& order, size_t longest);

}  // namespace kv
