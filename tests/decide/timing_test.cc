// The gates of speed, on timing records made up for the purpose.

#include "decide/timing.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/decide/simulated_study.h"

namespace kv {
namespace {

using test::SimulatedStudy;
using test::World;

struct Speed {
  double ttft = 1, itl = 1;  // times the control's
};

/// Five runs an arm at each length, the control's ITL a straight line over it; the runs of an arm
/// differ by up to `spread`.
void add_arm(std::vector<TimingRecord>& out, const std::string& arm,
             const std::function<Speed(double)>& speed, double spread = 0.002, int64_t runs = 5) {
  for (const int64_t length : {512, 1024, 2048}) {
    const auto context = static_cast<double>(length);
    for (int64_t run = 0; run < runs; ++run) {
      const double wobble =
          1 + spread * (static_cast<double>(run) / static_cast<double>(runs - 1) - 0.5);
      const double itl = (6 + 0.001 * context) * speed(context).itl * wobble;
      out.push_back({arm + "/" + std::to_string(length) + "/" + std::to_string(run) + "/timing",
                     arm, std::to_string(length), length, run,
                     0.1 * context * speed(context).ttft * wobble, itl, 1000 / itl});
    }
  }
}

std::vector<TimingRecord> timed(const std::function<Speed(double)>& speed,
                                double control_spread = 0.002, int64_t runs = 5) {
  std::vector<TimingRecord> out;
  const auto same = [](double) { return Speed{}; };
  add_arm(out, "bf16", same, control_spread);
  add_arm(out, "bf16#2", same, control_spread);
  add_arm(out, "fp8_scale1", speed, 0.002, runs);
  return out;
}

Verdict decided(const std::vector<TimingRecord>& timings, double capacity_gain,
                bool capacity_needed = true) {
  World world;
  world.capacity = [=](CapacityRecord& record) {
    record.bf16_bytes = 1000000;
    record.arm_bytes = record.allocated_bytes = record.planned_bytes =
        static_cast<int64_t>(1e6 / capacity_gain);
  };
  SimulatedStudy study(world);
  study.records().timings = timings;
  DecideOptions options = DecideOptions::quick();
  options.capacity_needed = capacity_needed;
  return study.run(options);
}

TEST(Timing, AFasterArmNeedsNoMoreTokens) {
  const Verdict verdict = decided(timed([](double) { return Speed{1, 0.9}; }), 1.2);
  EXPECT_EQ(name(verdict.outcome), "KEEP_SCALE_ONE") << verdict.sentence;
  for (const std::string& notice : verdict.notices) {
    EXPECT_EQ(notice.find("only capacity was judged"), std::string::npos);
  }
  EXPECT_EQ(decided({}, 1.2).sub_reason, "NO_SYSTEMS_GAIN: CAPACITY") << "without any record";
  // 2 % are no benefit.
  EXPECT_EQ(decided(timed([](double) {
                      return Speed{1, 0.98};
                    }),
                    1.2)
                .sub_reason,
            "NO_SYSTEMS_GAIN: CAPACITY");
}

TEST(Timing, HarmRejectsWhateverFits) {
  const Verdict slow_start = decided(timed([](double) { return Speed{1.2, 0.9}; }), 2);
  EXPECT_EQ(name(slow_start.outcome), "REJECT_FP8");
  EXPECT_EQ(slow_start.sub_reason, "NO_SYSTEMS_GAIN: PREFILL_HEAVY");
  EXPECT_EQ(slow_start.exit_code, 20);
  const Verdict slow = decided(timed([](double c) { return Speed{1, c > 2000 ? 1.08 : 0.9}; }), 2);
  EXPECT_EQ(slow.sub_reason, "NO_SYSTEMS_GAIN: KERNEL");
  // Within the limits it is kept for its capacity.
  EXPECT_EQ(name(decided(timed([](double) {
                           return Speed{1.09, 1.04};
                         }),
                         2)
                     .outcome),
            "KEEP_SCALE_ONE");
}

TEST(Timing, HarmCountsOnlyWhereThereIsTraffic) {
  SimulatedStudy study(World{});
  study.records().timings = timed([](double c) { return Speed{1, c > 2000 ? 1.5 : 0.9}; });
  DecideOptions options = DecideOptions::quick();
  options.traffic = {{"512", 0.48}, {"1024", 0.48}, {"2048", 0.04}};
  EXPECT_EQ(name(study.run(options).outcome), "KEEP_SCALE_ONE");
}

TEST(Timing, AControlThatDiffersFromItselfProvesNothing) {
  const Verdict noisy = decided(timed([](double) { return Speed{1, 0.9}; }, 0.2), 2);
  EXPECT_EQ(name(noisy.outcome), "INCONCLUSIVE");
  EXPECT_EQ(noisy.sub_reason, "SYSTEMS_NOISY");
  EXPECT_NE(noisy.sentence.find("passed the tests of quality"), std::string::npos);
  const Verdict few = decided(timed([](double) { return Speed{1, 0.9}; }, 0.002, 4), 2);
  EXPECT_EQ(few.sub_reason, "SYSTEMS_NOISY");
  EXPECT_NE(few.sentence.find("4 timed runs of fp8_scale1, 5 are needed"), std::string::npos)
      << few.sentence;
  for (const int64_t repeats : {0, 1, 4}) {
    std::vector<TimingRecord> records = timed([](double) { return Speed{1, 0.9}; });
    std::erase_if(records,
                  [&](const TimingRecord& r) { return r.arm == "bf16#2" && r.run >= repeats; });
    EXPECT_EQ(decided(records, 2).sub_reason, "SYSTEMS_NOISY") << repeats << " repeats";
  }
}

// The plant "no gain": contexts far below break-even, and capacity that nobody needs.
TEST(Timing, ShortContextsWithoutNeedOfCapacityGainNothing) {
  // Slope 0.0005 instead of 0.001, intercept 8 instead of 6: equal at 4,000 tokens.
  const auto later = [](double c) { return Speed{1, (8 + 0.0005 * c) / (6 + 0.001 * c)}; };
  DecideOptions options = DecideOptions::quick();
  options.capacity_needed = false;
  options.itl_max = 2;  // harm is another gate
  SimulatedStudy study(World{});
  study.records().timings = timed(later);
  const Verdict verdict = study.run(options);
  EXPECT_EQ(name(verdict.outcome), "REJECT_FP8");
  EXPECT_EQ(verdict.sub_reason, "NO_SYSTEMS_GAIN: SHORT_CONTEXT") << verdict.sentence;
  const auto judged =
      judge_timing(options, study.records().timings, "fp8_scale1", {"512", "1024", "2048"});
  ASSERT_TRUE(judged && judged->break_even);
  EXPECT_NEAR(*judged->break_even, 4000, 1e-6 * 4000);
  EXPECT_EQ(judged->median_context, 1024);
}

// The same runs under new ids are not more runs.
TEST(Timing, ARunThatIsRecordedTwiceCountsOnce) {
  std::vector<TimingRecord> records = timed([](double) { return Speed{1, 0.9}; }, 0.002, 4);
  for (TimingRecord copy : std::vector<TimingRecord>(records)) {
    copy.record_id += "/again";
    records.push_back(copy);
  }
  const Verdict verdict = decided(records, 2);
  EXPECT_EQ(verdict.sub_reason, "SYSTEMS_NOISY");
  EXPECT_NE(verdict.sentence.find("4 timed runs of fp8_scale1"), std::string::npos)
      << verdict.sentence;
}

// A sweep beyond the traffic's lengths says where the lines meet; what is judged is the traffic.
TEST(Timing, TheBreakEvenComesFromEveryLengthThatWasTimed) {
  const auto later = [](double c) { return Speed{1, (8 + 0.0005 * c) / (6 + 0.001 * c)}; };
  const auto judged = judge_timing(DecideOptions::quick(), timed(later), "fp8_scale1", {"512"});
  ASSERT_TRUE(judged && judged->break_even);
  EXPECT_NEAR(*judged->break_even, 4000, 1e-6 * 4000);
  EXPECT_EQ(judged->rows.size(), 1u);
  EXPECT_EQ(judged->median_context, 512);
}

// Windowed layers hold little and cost time: an arm that is slow is tried once more without them.
TEST(Timing, WindowedLayersAreLeftInBf16WhereTheArmIsSlow) {
  World world;
  world.windows = {128, 128, 128, 128, 128, 0};
  const std::string without = "fp8_scale1/bf16=0,1,2,3,4";
  SimulatedStudy study(world);
  study.records().timings = timed([](double) { return Speed{1, 1.2}; });
  const Verdict untimed = study.run(DecideOptions::quick());
  EXPECT_EQ(untimed.sub_reason, "TIMING_MISSING") << untimed.sentence;
  EXPECT_NE(untimed.sentence.find(without), std::string::npos) << untimed.sentence;
  EXPECT_FALSE(study.records().calibrations.empty()) << "E3 holds the calibrated arm too";

  add_arm(study.records().timings, without, [](double) { return Speed{1, 0.9}; });
  const Verdict fast = study.run(DecideOptions::quick());
  EXPECT_EQ(fast.layout, without) << fast.sentence;
  EXPECT_EQ(name(fast.outcome), "SELECTIVE_BF16");

  // Still slow: once is enough.
  std::erase_if(study.records().timings, [&](const TimingRecord& r) { return r.arm == without; });
  add_arm(study.records().timings, without, [](double) { return Speed{1, 1.1}; });
  EXPECT_EQ(study.run(DecideOptions::quick()).sub_reason, "NO_SYSTEMS_GAIN: KERNEL");
}

// A gate that was asked for does not open because a name differs.
TEST(Timing, TimesOfAnotherArmOrNoneAreNotAPass) {
  std::vector<TimingRecord> others = timed([](double) { return Speed{1, 0.9}; });
  for (TimingRecord& record : others) {
    if (record.arm == "fp8_scale1") record.arm = "fp8_scale1/math=fp8";
  }
  const Verdict renamed = decided(others, 2);
  EXPECT_EQ(name(renamed.outcome), "INCONCLUSIVE");
  EXPECT_EQ(renamed.sub_reason, "TIMING_MISSING");
  EXPECT_NE(renamed.sentence.find("fp8_scale1/math=fp8"), std::string::npos) << renamed.sentence;
  EXPECT_EQ(decided({}, 2, false).sub_reason, "TIMING_MISSING");
}

TEST(Timing, WithoutRecordsOfTheArmNothingIsJudged) {
  EXPECT_FALSE(judge_timing(DecideOptions::quick(), timed([](double) { return Speed{}; }),
                            "fp8_tensor", {"512"}));
}

}  // namespace
}  // namespace kv
