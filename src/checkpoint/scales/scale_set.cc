#include "checkpoint/scales/scale_set.h"

namespace kv {

std::string_view name(ScaleSide side) {
  switch (side) {
    case ScaleSide::kK:
      return "k";
    case ScaleSide::kV:
      return "v";
    case ScaleSide::kQ:
      return "q";
    case ScaleSide::kProb:
      return "prob";
  }
  return "";
}

const StoredScale* ScaleSet::find(int layer, ScaleSide side, int rank) const {
  for (const StoredScale& scale : scales) {
    const bool holds = scale.rank < 0 || scale.rank == rank;
    if (scale.layer == layer && scale.side == side && holds) return &scale;
  }
  return nullptr;
}

int ScaleSet::cache_layer(int layer) const { return kv::cache_layer(geometry, layer); }

ScaleShape scale_shape(const StoredScale& scale, const KvGeometry& geometry) {
  const auto count = std::ssize(scale.values);
  if (count == 1) return ScaleShape::kPerTensor;
  if (count == geometry.num_kv_heads) return ScaleShape::kPerKvHead;
  return count == geometry.num_q_heads ? ScaleShape::kPerQHead : ScaleShape::kOther;
}

}  // namespace kv
