// Reports about scales that were computed and never reached attention, by their kind.

#include <gtest/gtest.h>

#include "tests/engine/harness.h"

namespace kv {
namespace {

using namespace engine_test;

ScaleTable doubled(const ScaleTable& table) {
  ScaleTable out = table;
  for (int64_t layer = 0; layer < table.num_layers(); ++layer) {
    for (const Side side : kSides) {
      for (int64_t head = 0; head < table.num_kv_heads(); ++head) {
        out.set(layer, side, head, 2 * table.heads(layer, side)[static_cast<size_t>(head)]);
      }
    }
  }
  return out;
}

Logits run_with(Engine& engine, int arm, std::span<const int32_t> tokens) {
  Sequence sequence = engine.start(arm);
  return run(engine, sequence, tokens);
}

// An arm takes its scales once, when it is added, and nothing can change them in place afterwards:
// what runs later cannot have kept an older number. Other scales are another arm, whose bits are
// those of an engine that never knew the first.
TEST(CalibCases, Case29ScalesCannotChangeUnderAnArmThatHasRun) {
  const std::vector<int32_t> tokens = some_tokens(129, 80);
  ScaleTable table = tiny_scales(true);
  Engine engine(tiny_model());
  const int first = engine.add_arm(ArmSpec::parse("fp8_head"), table, 256);
  const Logits before = run_with(engine, first, tokens);
  table = doubled(table);
  EXPECT_EQ(difference(before, run_with(engine, first, tokens)), "") << "the caller's table only";
  const int second = engine.add_arm(ArmSpec::parse("fp8_head"), table, 256);
  const Logits other = run_with(engine, second, tokens);
  EXPECT_NE(difference(before, other), "") << "the new scales reach attention";
  Engine fresh(tiny_model());
  EXPECT_EQ(difference(other, run_with(fresh, fresh.add_arm(ArmSpec::parse("fp8_head"), table, 256),
                                       tokens)),
            "");
}

}  // namespace
}  // namespace kv
