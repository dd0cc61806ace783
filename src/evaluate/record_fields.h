#pragma once

#include <string_view>
#include <type_traits>

#include "evaluate/record.h"

namespace kv {

/// Lists a record's fields by the names that the file has: visit(name, member) for each. Writing
/// and reading go through the same list. kind_of names the record in the file.
template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, ExampleRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("block", r.block);
  visit("arm", r.arm);
  visit("example_id", r.example_id);
  visit("document", r.document);
  visit("task", r.task);
  visit("bucket", r.bucket);
  visit("look", r.look);
  visit("half", r.half);
  visit("prompt_tokens", r.prompt_tokens);
  visit("score", r.score);
  visit("chance", r.chance);
  visit("finite", r.finite);
  visit("valid", r.valid);
  visit("answer_logprob", r.answer_logprob);
  visit("kernel", r.kernel);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, GenerationRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("block", r.block);
  visit("arm", r.arm);
  visit("example_id", r.example_id);
  visit("document", r.document);
  visit("bucket", r.bucket);
  visit("sample", r.sample);
  visit("ids", r.ids);
  visit("margins", r.margins);
  visit("fdi", r.fdi);
  visit("diverged", r.diverged);
  visit("margin", r.margin);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, LogitRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("block", r.block);
  visit("arm", r.arm);
  visit("document", r.document);
  visit("bucket", r.bucket);
  visit("n", r.n);
  visit("non_finite", r.non_finite);
  visit("kld", r.kld);
  visit("nll_ctrl", r.nll_ctrl);
  visit("nll_cand", r.nll_cand);
  visit("same_top", r.same_top);
  visit("dp", r.dp);
  visit("dp_squared", r.dp_squared);
  visit("delta_nll_squared", r.delta_nll_squared);
  visit("same_sampled", r.same_sampled);
  visit("self_sampled", r.self_sampled);
  visit("kld_values", r.kld_values);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, RangeRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("layer", r.layer);
  visit("side", r.side);
  visit("layout", r.layout);
  visit("noise_mean", r.noise_mean);
  visit("noise_worst", r.noise_worst);
  visit("noise_heads", r.noise_heads);
  visit("block_damage", r.block_damage);
  visit("normed_damage", r.normed_damage);
  visit("sqnr_db", r.sqnr_db);
  visit("centred_sqnr_db", r.centred_sqnr_db);
  visit("clip_frac", r.clip_frac);
  visit("zero_frac", r.zero_frac);
  visit("amax", r.amax);
  visit("sqnr_db_heads", r.sqnr_db_heads);
  visit("clip_frac_heads", r.clip_frac_heads);
  visit("amax_heads", r.amax_heads);
  visit("token_p99_p50_heads", r.token_p99_p50_heads);
  visit("amax_pos_slope_heads", r.amax_pos_slope_heads);
  visit("amax_pos_p_heads", r.amax_pos_p_heads);
  visit("channel_share_heads", r.channel_share_heads);
  visit("tokens", r.tokens);
  visit("queries", r.queries);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, CountErrorRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("block", r.block);
  visit("arm", r.arm);
  visit("example_id", r.example_id);
  visit("bucket", r.bucket);
  visit("error", r.error);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, FirstTokenRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("layer", r.layer);
  visit("side", r.side);
  visit("layout", r.layout);
  visit("norm_ratio", r.norm_ratio);
  visit("sqnr_db", r.sqnr_db);
  visit("attention", r.attention);
  visit("noise", r.noise);
  visit("noise_share", r.noise_share);
  visit("sequences", r.sequences);
  visit("queries", r.queries);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, ArmRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("arm", r.arm);
  visit("tokens", r.tokens);
  visit("nll", r.nll);
  visit("kld", r.kld);
  visit("kld_se", r.kld_se);
  visit("same_top", r.same_top);
  visit("non_finite", r.non_finite);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, AmaxRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("block", r.block);
  visit("example_id", r.example_id);
  visit("task", r.task);
  visit("bucket", r.bucket);
  visit("language", r.language);
  visit("tokens", r.tokens);
  visit("kv_heads", r.kv_heads);
  visit("amax", r.amax);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, CalibrationRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("scale_file", r.scale_file);
  visit("scale_file_sha256", r.scale_file_sha256);
  visit("examples", r.examples);
  visit("tokens", r.tokens);
  visit("max_tokens", r.max_tokens);
  visit("warnings", r.warnings);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, CapacityRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("arm", r.arm);
  visit("tokens", r.tokens);
  visit("bf16_bytes", r.bf16_bytes);
  visit("arm_bytes", r.arm_bytes);
  visit("allocated_bytes", r.allocated_bytes);
  visit("planned_bytes", r.planned_bytes);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, TimingRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("arm", r.arm);
  visit("bucket", r.bucket);
  visit("context_tokens", r.context_tokens);
  visit("run", r.run);
  visit("ttft_ms", r.ttft_ms);
  visit("itl_ms", r.itl_ms);
  visit("output_throughput", r.output_throughput);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, SupportRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("layout", r.layout);
  visit("target", r.target);
  visit("supported", r.supported);
  visit("reason", r.reason);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, FactsRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("arm", r.arm);
  visit("machine", r.machine);
  visit("kernels", r.kernels);
  visit("scale_source", r.scale_source);
  visit("allocated_bytes", r.allocated_bytes);
  visit("planned_bytes", r.planned_bytes);
}

template <class Record, class Visit>
requires std::is_same_v<std::remove_const_t<Record>, ServedRecord>
void visit_fields(Record& r, Visit&& visit) {
  visit("record_id", r.record_id);
  visit("arm", r.arm);
  visit("server", r.server);
  visit("cache_dtype", r.cache_dtype);
  visit("block_size", r.block_size);
  visit("cache_tokens", r.cache_tokens);
  visit("cache_bytes", r.cache_bytes);
  visit("expected_tokens", r.expected_tokens);
  visit("warnings", r.warnings);
  visit("nll", r.nll);
  visit("same_top", r.same_top);
  visit("logprobs", r.logprobs);
}

constexpr std::string_view kind_of(const ExampleRecord&) { return "example"; }
constexpr std::string_view kind_of(const GenerationRecord&) { return "generation"; }
constexpr std::string_view kind_of(const LogitRecord&) { return "logit"; }
constexpr std::string_view kind_of(const RangeRecord&) { return "range"; }
constexpr std::string_view kind_of(const CountErrorRecord&) { return "count_error"; }
constexpr std::string_view kind_of(const FirstTokenRecord&) { return "first_token"; }
constexpr std::string_view kind_of(const ArmRecord&) { return "arm"; }
constexpr std::string_view kind_of(const AmaxRecord&) { return "amax"; }
constexpr std::string_view kind_of(const CalibrationRecord&) { return "calibration"; }
constexpr std::string_view kind_of(const CapacityRecord&) { return "capacity"; }
constexpr std::string_view kind_of(const TimingRecord&) { return "timing"; }
constexpr std::string_view kind_of(const SupportRecord&) { return "support"; }
constexpr std::string_view kind_of(const FactsRecord&) { return "facts"; }
constexpr std::string_view kind_of(const ServedRecord&) { return "served"; }

}  // namespace kv
