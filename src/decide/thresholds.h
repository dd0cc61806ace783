#pragma once

#include <cstdint>

/// Every number that a decision compares something with, its reason on the line above. Options
/// (options.h) start from these and may override them; a verdict echoes what was used.
namespace kv::thresholds {

// Two points a bucket are what an engineer notices in a release table; half of that overall,
// because noise of the buckets averages out. (Method 6.2)
inline constexpr double kBucketMarginStandard = 0.02;
inline constexpr double kOverallMarginStandard = 0.01;
// Invalid answers are rare and never wanted, so the margin is a quarter of a bucket's. (Method 6.2)
inline constexpr double kValidityMarginStandard = 0.005;

// A first answer from about 200 questions a bucket: margins that so few can resolve. (Method 6.4)
inline constexpr double kBucketMarginQuick = 0.05;
inline constexpr double kOverallMarginQuick = 0.025;
inline constexpr double kValidityMarginQuick = 0.02;

// One-sided chance of keeping a candidate that lies at the margin. (Method 6.2)
inline constexpr double kAlphaAccept = 0.025;
// Family-wise chance of calling noise a shift. (Method 4.9, 6.2)
inline constexpr double kAlphaShift = 0.05;

// 1,000 questions a bucket at the last look: 250 documents of 4, because independent documents are
// what buys power, and because the look at half of them has the 125 that the bucket's test wants;
// at the first look, with 63, no bucket is judged, and only a shift beyond the margin can end the
// comparison. (Method 4.4, 6.2)
inline constexpr int64_t kDocumentsStandard = 250;
inline constexpr int64_t kQuestionsStandard = 4;
// 200 questions a bucket. (Method 6.4)
inline constexpr int64_t kDocumentsQuick = 50;
inline constexpr int64_t kQuestionsQuick = 4;

// The t interval with clusters is simulated to hold its level from here on. (Method 4.3)
inline constexpr int64_t kMinDocumentsQuick = 30;
// 125 documents x 4 questions keep falsely in 1.2 to 3.4 % instead of 2.5 %; 30 x 17 in up to 25 %.
// (Method 4.4)
inline constexpr int64_t kMinDocumentsStandard = 100;
inline constexpr int64_t kMaxQuestionsStandard = 8;

// The repeat is a check of the harness for gross noise; it has no part in the margin. A harness
// that flips 10 % of the answers exceeds 5 % of 120 (40 questions in each of three buckets) in
// 96 % of the runs.
inline constexpr int64_t kAaDocumentsQuick = 10;
// The first look's documents: 252 questions a bucket.
inline constexpr int64_t kAaDocumentsStandard = 63;

// The control against itself under another batch plan: more flips than this drown a two-point
// margin. (Method 6.2)
inline constexpr double kAaMaxFlip = 0.05;
// Below this two-sided p the control's repeat has shifted, which no harness may do. (Method 6.2)
inline constexpr double kAaMinP = 0.01;

// A served control against kvscale's own engine on the same text, mean nats a token: the same
// weights in another implementation differ by a few thousandths (0.765 both, 2.000 against 1.998),
// another model, or its weights in four bits, by more than this.
inline constexpr double kServedNllDifference = 0.1;

// A bucket whose control does not beat guessing by this many standard errors cannot show a loss.
// (Method 6.4)
inline constexpr double kInsensitiveSe = 2;

// 1.7 times the tokens is the least that pays for a requalification. (Method 6.2, benefit a)
inline constexpr double kCapacityGainMin = 1.7;

// Or a latency or throughput better by 3 %. (Method 6.2, benefit b)
inline constexpr double kLatencyGainMin = 0.03;
// A time to first token, and a time between tokens, worse than this pays for nothing, in any bucket
// with 5 % of the traffic. (Method 6.2)
inline constexpr double kTtftMax = 1.10;
inline constexpr double kItlMax = 1.05;
inline constexpr double kHarmTrafficShare = 0.05;
// A bucket with less of the traffic is not evaluated. (Method 3)
inline constexpr double kLeastTrafficShare = 0.01;
// The control beside itself must show this much steadiness before a difference of 3 % means
// anything, from at least five runs an arm. (Method 5.2)
inline constexpr double kTimingNoise = 0.02;
inline constexpr int64_t kTimingRuns = 5;

// More BF16 layers than this is no longer a repair of a few layers. (Method 6.4, LOCALISE)
inline constexpr double kBf16ShareMax = 0.25;
// Layers are restored until this share of the KLD above the noise floor is gone. (Method 6.4)
inline constexpr double kExcessRemoved = 0.8;

// Score noise in nats, mean over a layer's heads. Harmless layers of four real models lie at 0.04
// to 0.28, the layer that breaks Qwen2.5-Coder-1.5B at 1.4 to 2.8 under every layout. (Method 2.1)
inline constexpr double kDoubtfulNoise = 0.3;
inline constexpr double kBrokenNoise = 1.0;
// With less than this the stored keys differ from one another by little more than their error: an
// offset took the precision. (Method 6.4, OFFSET)
inline constexpr double kOffsetCentredDb = 10;
// A head that gains this much by a scale of its own is starved by the layer's. (Method 6.4)
inline constexpr double kHeadGapDb = 1;
// Values beyond the calibrated range at evaluation: drift that only online scales follow. (6.4)
inline constexpr double kTokenClipFrac = 1e-4;
// log2 of a token's largest magnitude per doubling of its position: any growth that is shown.
// (Method 6.4, TOKEN_DRIFT)
inline constexpr double kTokenSlope = 0;
// E4M3 keeps its precision over 2^15 of range; a static scale that takes 2^8 of that for the
// difference between tokens leaves the small ones to the subnormals. (Method 6.4, TOKEN_DRIFT)
inline constexpr double kTokenSpread = 256;
// A channel that carries more than half of the energy dominates the scores, and a scale per token
// stores just that one exactly. (Method 6.4, TOKEN_DRIFT; 2.1)
inline constexpr double kChannelShare = 0.5;

// Calibration must reach the evaluation's 95th length percentile. (Method 8.2) Generated documents
// end up to 1 % below their target on both sides, and calibration sees the context that a
// document's questions share, not the question: at most 64 tokens, over which a largest magnitude
// cannot grow.
inline constexpr double kCalibrationLengthQuantile = 0.95;
inline constexpr double kCalibrationLengthSlack = 0.98;
inline constexpr double kCalibrationQuestionTokens = 64;

// The calibration set's shares of buckets and of tasks may differ from the evaluation's by this
// total variation. (Method 8.2)
inline constexpr double kCalibrationTv = 0.05;
// Layers that exceed their calibrated amax more often than one population allows, or whose
// magnitudes grow with the position, at this Holm-adjusted p, speak for scales per token; at
// kAlphaShift the first are named. (Method 6.4, 8.4)
inline constexpr double kTokenDriftP = 0.01;

// Power that the sample size printed with an INCONCLUSIVE verdict gives to all buckets jointly.
// (Method 4.11)
inline constexpr double kPlanPower = 0.9;
// Confidence of the upper bound on the flip rate that sample sizes are planned with. (Method 4.11)
inline constexpr double kPlanConfidence = 0.95;

// Without --tasks a pilot of the control alone, before any candidate has run, picks the generated
// tasks that it answers this often. A model at its limit answers by margins that any small error
// overturns: such a task measures the model, and its losses say little about what it is used for.
inline constexpr double kPilotFloor = 0.9;
inline constexpr int64_t kPilotDocuments = 3, kPilotQuestions = 24;  // per length, at least
// Contexts per bucket for ranges and KLD: positions, not documents, are what these average over.
inline constexpr int64_t kContextsPerBucket = 4;
// Twice as many where the predicted share of the excess that goes with a prefix of layers lies this
// near to what must go: the search then hangs on how well KLD is known. (Own choice: a mean over 8
// contexts of one length is known to a third of its value or so, and prefixes share their
// contexts.)
inline constexpr double kNearShare = 0.1;

// The alarm of logits, which asks for more examples and decides nothing: mean KLD above ten times
// the floor of the control's repeat and above this, fewer equal top tokens than this, or one
// position in a thousand beyond this KLD. (Method 2.2)
inline constexpr double kAlarmKld = 0.005, kAlarmFloors = 10;
inline constexpr double kAlarmSameTop = 0.98;
inline constexpr double kAlarmTailKld = 1;

// A generation that leaves the control's where the control's choice led by less than so many nats
// left it at a near tie: that is no evidence of damage. (Method 2.3)
inline constexpr double kNearTie = 0.1;

// Words of a scan. Nats of KLD from which a layout is no longer called safe to try: the harmless
// models of the reference lie at 0.012 to 0.026, the hard case at 0.036 to 0.057, broken ones above
// 0.8.
inline constexpr double kSafeKld = 0.1;
// Below this share of equal top tokens no layout is called safe, however little KLD and perplexity
// move: fluent text over a wrecked distribution was reported at 75 %, harmless arms lie above 90 %.
inline constexpr double kSafeSameTop = 0.9;
// Nats of NLL by which calibrated scales must be worse than scale 1.0 to be called harmful: above
// the 0.02 by which harmless arms scatter, below the 0.16 of a real case.
inline constexpr double kCalibrationHarm = 0.05;
// A repair must remove half of the KLD to be called one.
inline constexpr double kRepairShare = 0.5;

// Mean KLD above which an arm's speed is not the speed of a working model (bench).
inline constexpr double kGateKld = 0.5;

// Heterogeneity of the buckets below this p speaks against a uniform shift. (Method 4.9)
inline constexpr double kHeterogeneityP = 0.05;

}  // namespace kv::thresholds
