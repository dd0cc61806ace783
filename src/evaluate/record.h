#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kv {

/// What a run writes down, one JSON object a line: everything a verdict rests on, so that it can be
/// computed again. An arm is spelled as on the command line ("fp8_tensor/bf16=0"); a block is "E1",
/// "E2", "E3" or "AA".
///
/// Record ids are unique within a run and stable between runs of the same configuration.

/// One question under one arm.
struct ExampleRecord {
  std::string record_id;
  std::string block, arm;
  std::string example_id, document, task, bucket;
  int64_t look = 1;  // of the block's planned looks, the one that its document comes in with
  int64_t half = 1;  // replicate half of the block, 1 or 2: a real loss shows in both
  int64_t prompt_tokens = 0;  // attended to when the first answer token was predicted
  double score = 0;           // [0, 1]
  double chance = 0;          // score of a blind guess
  bool finite = true;         // no NaN or infinity among the logits
  // The answer was readable, ended by its stop rule (when it was generated freely), no runaway.
  bool valid = true;
  double answer_logprob =
      0;  // mean nats per answer token, teacher-forced; 0 when there is no answer in tokens
  std::string kernel;  // what ran, from the dispatcher
};

/// What one arm generated for one question, and where it left the control's way. An answer that was
/// judged teacher-forced is known up to its first wrong token, that one included: so far a free
/// generation is the same.
struct GenerationRecord {
  std::string record_id;
  std::string block, arm;
  std::string example_id, document, bucket;
  int64_t sample = 0;        // 0: greedy; else the repetition, from 1 on
  std::vector<int64_t> ids;  // the stop id too; -1 for logits that are not finite; the first 512
  // The control's: by how many nats of logit each choice beat the second.
  std::vector<double> margins;
  // 1-based index of the first id that is not the control's; if none, how far both are known to
  // agree. 0: there is nothing to compare with, as for the control itself.
  int64_t fdi = 0;
  bool diverged = false;
  double margin = 0;  // of the control's choice where they part
};

/// Logit metrics of one document under one arm against the control, in one bucket of positions:
/// sums over n scored positions, so that means and clustered errors can be computed from them.
struct LogitRecord {
  std::string record_id;
  std::string block, arm, document, bucket;
  int64_t n = 0;
  int64_t non_finite = 0;  // positions with a non-finite logit, left out of the sums
  double kld = 0, nll_ctrl = 0, nll_cand = 0, same_top = 0, dp_squared = 0;
  double dp = 0;                              // sum of q_y - p_y
  double delta_nll_squared = 0;               // sum of (nll_cand - nll_ctrl)^2
  double same_sampled = 0, self_sampled = 0;  // sums of sum_v p q and of sum_v p p
  std::vector<float> kld_values;              // per position, for percentiles
};

/// Range health of one layer and side under one layout, from a control pass.
struct RangeRecord {
  std::string record_id;
  int64_t layer = 0;
  std::string side;    // "k", "v", or "kv" (block damage of both together)
  std::string layout;  // "fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head"
  double noise_mean = 0, noise_worst = 0;  // K: score noise in nats; V: value noise, relative
  std::vector<double> noise_heads;         // per query head
  double block_damage = 0;                 // relative to the residual
  double normed_damage = 0;                // both weighted by the norm that follows
  double sqnr_db = 0, centred_sqnr_db = 0;
  double clip_frac = 0, zero_frac = 0;
  double amax = 0;
  // Per KV head. A head's gap to its own scale (spread of heads) is its SQNR under fp8_head less
  // the one here.
  std::vector<double> sqnr_db_heads, clip_frac_heads, amax_heads;
  // Of what is stored, whatever the layout. Per KV head: 99th percentile over median of the tokens'
  // largest magnitudes; slope of their log2 over log2(position + 1), and its one-sided p over
  // contexts; share of the energy in the strongest channel.
  std::vector<double> token_p99_p50_heads, amax_pos_slope_heads, amax_pos_p_heads;
  std::vector<double> channel_share_heads;
  int64_t tokens = 0, queries = 0;
};

/// By how much an answer of the task `count` is off, where it is a number at all.
struct CountErrorRecord {
  std::string record_id;
  std::string block, arm, example_id, bucket;
  double error = 0;  // |number - the right one|
};

/// The first token of every sequence apart, from the pass that the ranges come from: attention
/// often rests on it while it says little, and its keys are often unlike all others.
struct FirstTokenRecord {
  std::string record_id;
  int64_t layer = 0;
  std::string side;        // "k", "v"
  std::string layout;      // as in RangeRecord
  double norm_ratio = 0;   // its length over the rms length of the other tokens'
  double sqnr_db = 0;      // of it alone
  double attention = 0;    // share that goes to it, mean over queries and query heads
  double noise = 0;        // that its rounding alone makes: K score noise in nats, V value noise
  double noise_share = 0;  // of the layer's squared noise
  int64_t sequences = 0, queries = 0;
};

/// Logit cost of one arm over the scan's prompts.
struct ArmRecord {
  std::string record_id;
  std::string arm;
  int64_t tokens = 0;
  double nll = 0, kld = 0, kld_se = 0, same_top = 0;
  int64_t non_finite = 0;  // positions with a non-finite logit, left out of the means
};

/// The largest magnitudes that the control's cache stored of one context: a calibration example's,
/// or an evaluated one's, before its questions.
struct AmaxRecord {
  std::string record_id;
  std::string block;         // "CAL", "E1" (AA's among them), "E2", "E3"
  std::string example_id;    // of the context's first question, or of the prompt
  std::string task, bucket;  // no task: a prompt without answers
  std::string language;      // empty: nobody said
  int64_t tokens = 0, kv_heads = 1;
  std::vector<float> amax;  // [layer][k, v][KV head]
};

/// One static calibration: where the scales came from.
struct CalibrationRecord {
  std::string record_id;
  std::string scale_file, scale_file_sha256;
  int64_t examples = 0, tokens = 0, max_tokens = 0;
  std::vector<std::string> warnings;  // "layer 2 side k head 1: amax 0, scale 1"
};

/// Cache bytes of one arm at one length, as allocated and as planned.
struct CapacityRecord {
  std::string record_id;
  std::string arm;
  int64_t tokens = 0, bf16_bytes = 0, arm_bytes = 0, allocated_bytes = 0, planned_bytes = 0;
  double gain() const {
    return arm_bytes > 0 ? static_cast<double>(bf16_bytes) / static_cast<double>(arm_bytes) : 0;
  }
};

/// How fast an arm was on the engine that serves, at one length of context: one measured run.
struct TimingRecord {
  std::string record_id;
  std::string arm;     // as spelled, "bf16" the control, "bf16#2" the control timed once more
  std::string bucket;  // label of the length
  int64_t context_tokens = 0;  // of its prompts, mean
  int64_t run = 0;  // number of the run within arm and bucket; each is one value of every median
  double ttft_ms = 0, itl_ms = 0;  // medians over the run's requests and gaps
  double output_throughput = 0;    // tokens per second
};

/// Whether the engine that will serve runs a layout, from the table of targets or a probe.
struct SupportRecord {
  std::string record_id;
  std::string layout;
  std::string target;  // "vllm:flash_attn3"
  bool supported = false;
  std::string reason;
};

/// What one arm's server says about itself, and what it thinks of kvscale's own text (prefill
/// lane).
struct ServedRecord {
  std::string record_id;  // by content: what did not change is recorded once
  std::string arm;
  std::string server;       // "vllm 0.32.0, CPU, block size 128"
  std::string cache_dtype;  // as it was declared; "auto" proves nothing
  int64_t block_size = 0, cache_tokens = 0, cache_bytes = 0;  // observed; 0: it does not say
  int64_t expected_tokens = 0;  // that the arithmetic of `plan` gives for these bytes; 0: unknown
  std::vector<std::string> warnings;  // of its log
  double nll = 0;        // mean nats of the tokens that have a logprob; 0: no prefill lane
  double same_top = -1;  // share that is the greedy choice; -1: it does not say
  // Of the text's tokens from the second on; without a prefill lane of what it wrote after the
  // text. Empty: it gives none.
  std::vector<float> logprobs;
};

/// What an arm really was while it ran, from the dispatcher and the allocator: a run that is taken
/// up again still knows it.
struct FactsRecord {
  std::string record_id;  // by content: what did not change is recorded once
  std::string arm;
  std::string machine;               // "AMD EPYC 9654, 2 threads, avx3_bf16"
  std::vector<std::string> kernels;  // ascending
  std::string scale_source;
  int64_t allocated_bytes = 0, planned_bytes = 0;  // of the cache
};

}  // namespace kv
