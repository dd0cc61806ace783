#include "study/generation_records.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "decide/evidence.h"
#include "evaluate/generation.h"

namespace kv {
namespace {

/// By question and sample.
using ByQuestion = std::map<std::pair<std::string, int64_t>, const GenerationRecord*>;

ByQuestion recorded_control(const RecordLog& log, const Document& document,
                            const std::string& block) {
  ByQuestion out;
  for (const GenerationRecord& record : log.generations()) {
    const bool is_here = record.block == block || (block == "E1" && record.block == "AA");
    if (is_here && record.arm == kControlArm && record.document == document.id) {
      out[{record.example_id, record.sample}] = &record;
    }
  }
  return out;
}

/// All generations of one arm for the document's questions.
std::vector<GenerationRecord> of_arm(const Document& document, const std::string& block,
                                     const std::string& arm, const std::vector<Answer>& answers,
                                     bool is_sampled) {
  std::vector<GenerationRecord> out;
  for (size_t q = 0; q < document.questions.size(); ++q) {
    const Question& question = document.questions[q];
    for (size_t i = 0; i < answers[q].attempts.size(); ++i) {
      GenerationRecord record = generation_of(question, answers[q].attempts[i]);
      record.block = block;
      record.arm = arm;
      record.example_id = question.id;
      record.document = document.id;
      record.bucket = document.bucket;
      record.sample = is_sampled ? static_cast<int64_t>(i) + 1 : 0;
      record.record_id = generation_record_id(block, arm, question.id, record.sample);
      out.push_back(std::move(record));
    }
  }
  return out;
}

}  // namespace

Attempt attempt_of(const Generation& generated) {
  return {generated.tokens, generated.margins, generated.stop_id,
          generated.end != Generation::End::kNonFinite, generated.end == Generation::End::kStopId};
}

GenerationRecord generation_of(const Question& question, const Attempt& attempt) {
  GenerationRecord out;
  out.ids.assign(attempt.produced.begin(), attempt.produced.end());
  if (question.answer_tokens.empty()) {
    if (attempt.stop_id >= 0) out.ids.push_back(attempt.stop_id);
    if (!attempt.finite) out.ids.push_back(-1);
  } else {
    const auto [expected, produced] =
        std::mismatch(question.answer_tokens.begin(), question.answer_tokens.end(), out.ids.begin(),
                      out.ids.end());
    const auto right = static_cast<size_t>(produced - out.ids.begin());
    out.ids.resize(std::min(out.ids.size(), right + 1));
  }
  out.ids.resize(std::min(out.ids.size(), kMostRecordedIds));
  for (size_t i = 0; i < out.ids.size(); ++i) {
    out.margins.push_back(std::round(attempt.margins[i] * 1e4) / 1e4);
  }
  return out;
}

std::vector<GenerationRecord> generation_records(const Document& document, const std::string& block,
                                                 std::span<const RunnerArm> arms,
                                                 const std::vector<std::vector<Answer>>& answers,
                                                 const AnswerSampling& sampling,
                                                 const RecordLog& log) {
  const bool is_sampled = !sampling.how.is_greedy();
  const auto control_arm = std::ranges::find(arms, kControlArm, &RunnerArm::name);
  std::vector<GenerationRecord> controls, out;
  ByQuestion control;
  if (control_arm != arms.end()) {
    controls = of_arm(document, block, control_arm->name,
                      answers[static_cast<size_t>(control_arm - arms.begin())], is_sampled);
    for (const GenerationRecord& record : controls) {
      control[{record.example_id, record.sample}] = &record;
    }
  } else {
    control = recorded_control(log, document, block);
  }
  for (size_t arm = 0; arm < arms.size(); ++arm) {
    for (GenerationRecord& record :
         of_arm(document, block, arms[arm].name, answers[arm], is_sampled)) {
      if (log.has(record.record_id)) continue;
      if (arms[arm].name != kControlArm) {
        record.margins.clear();
        const auto found = control.find({record.example_id, record.sample});
        if (found != control.end()) compare_with_control(record, *found->second);
      }
      out.push_back(std::move(record));
    }
  }
  return out;
}

}  // namespace kv
