#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "kvscale/error.h"
#include "study/generation_records.h"
#include "study/runner.h"

namespace kv {
namespace {

/// Answers of generated documents are known in tokens; users' answers are texts.
bool works_on_tokens(const Question& q) { return !q.answer_tokens.empty(); }

/// ln of the softmax at `token`, in double.
double log_probability(std::span<const float> logits, int32_t token) {
  const float largest = *std::ranges::max_element(logits);
  double sum = 0;
  for (const float x : logits) sum += std::exp(static_cast<double>(x) - largest);
  return logits[static_cast<size_t>(token)] - largest - std::log(sum);
}

/// Tokens that an answer may have when it is generated freely.
int64_t budget_of(const Question& question, int64_t max_new_tokens) {
  return question.answer_budget > 0 ? question.answer_budget : max_new_tokens;
}

/// Tokens of cache that a document and the forks of its questions take in one arm.
int64_t tokens_needed(const Document& document, int64_t block_size, int64_t max_new_tokens,
                      int64_t samples) {
  int64_t total = std::ssize(document.context) + block_size;
  for (const Question& q : document.questions) {
    const int64_t tail = std::ssize(q.tokens) + (works_on_tokens(q) ? std::ssize(q.answer_tokens)
                                                                    : budget_of(q, max_new_tokens));
    const int64_t forks = works_on_tokens(q) ? 1 : samples;
    total += forks * (tail + 2 * block_size);  // the copied block, and a last one that is not full
  }
  return total;
}

}  // namespace

/// Arms that run under one batch plan share an engine, so that their matmuls read the weights once.
struct EngineRunner::Lane {
  bool repeat;
  int64_t capacity, sequences;
  Engine engine;
  std::vector<std::string> names;

  Lane(bool is_repeat, int64_t tokens, int64_t at_once, std::shared_ptr<const Model> model,
       const BatchPlan& plan)
      : repeat(is_repeat), capacity(tokens), sequences(at_once), engine(std::move(model), plan) {}

  int number_of(const RunnerArm& arm) {
    const auto found = std::ranges::find(names, arm.name);
    if (found != names.end()) return static_cast<int>(found - names.begin());
    names.push_back(arm.name);
    return engine.add_arm(arm.arm.spec, arm.arm.scales, capacity, sequences);
  }
};

EngineRunner::EngineRunner(std::shared_ptr<const Model> model, BatchPlan plan,
                           std::vector<int32_t> stop_ids, std::vector<int32_t> line_end_ids,
                           int64_t max_new_tokens, const AnswerSampling& sampling)
    : model_(std::move(model)),
      plan_(plan),
      stop_ids_(std::move(stop_ids)),
      line_end_ids_(std::move(line_end_ids)),
      max_new_tokens_(max_new_tokens),
      sampling_(sampling) {
  line_end_ids_.insert(line_end_ids_.end(), stop_ids_.begin(), stop_ids_.end());
}

EngineRunner::~EngineRunner() = default;

EngineRunner::Lane& EngineRunner::lane_for(bool repeat, int64_t tokens, int64_t sequences) {
  // A longer document than any before needs larger caches; the facts of the smaller ones stay.
  for (auto& lane : lanes_) {
    if (lane->repeat == repeat && lane->capacity >= tokens && lane->sequences >= sequences)
      return *lane;
  }
  BatchPlan plan = plan_;
  if (repeat) {
    // The harmless changes that a busy server makes: other cuts, another order of additions.
    plan.rows_per_pass = std::max<int64_t>(1, plan.rows_per_pass * 3 / 8);
    plan.keys_per_split = 256;
  }
  for (auto& lane : lanes_) {
    if (lane->repeat != repeat) continue;
    add_facts(*lane);
    lane = std::make_unique<Lane>(repeat, std::max(tokens, lane->capacity),
                                  std::max(sequences, lane->sequences), model_, plan);
    return *lane;
  }
  return *lanes_.emplace_back(std::make_unique<Lane>(repeat, tokens, sequences, model_, plan));
}

void EngineRunner::add_facts(const Lane& lane) {
  for (int arm = 0; arm < lane.engine.num_arms(); ++arm)
    past_facts_.push_back(lane.engine.facts(arm));
}

namespace {

/// One document in one engine: its context under some arms, then all questions of all arms side by
/// side.
class DocumentRun {
 public:
  DocumentRun(Engine& engine, const Document& document, const AnswerSampling& sampling)
      : engine_(engine), document_(document), sampling_(sampling), picker_(sampling.how) {}

  /// `answers` gets one entry per question.
  void add_arm(int arm, std::vector<Answer>& answers, AttentionObserver* observer) {
    contexts_.push_back(engine_.start(arm));
    observers_.push_back(observer);
    answers_.push_back(&answers);
  }

  void prefill() {
    std::vector<Request> requests;
    for (size_t arm = 0; arm < contexts_.size(); ++arm)
      requests.push_back({&contexts_[arm], document_.context, -1, observers_[arm]});
    engine_.run(requests);
  }

  /// `line_end_ids` hold the stop ids as well.
  void ask(int64_t max_new_tokens, std::span<const int32_t> stop_ids,
           std::span<const int32_t> line_end_ids) {
    for (size_t arm = 0; arm < contexts_.size(); ++arm) {
      for (size_t q = 0; q < document_.questions.size(); ++q) {
        const Question& question = document_.questions[q];
        Answer& answer = (*answers_[arm])[q];
        answer.prompt_tokens = std::ssize(document_.context) + std::ssize(question.tokens);
        answer.attempts.resize(static_cast<size_t>(sampling_.samples));
        add_asked(question, answer, contexts_[arm]);
      }
    }
    ask_forced();
    if (!free_.empty()) ask_free(free_, max_new_tokens, stop_ids);
    if (!lines_.empty()) ask_free(lines_, max_new_tokens, line_end_ids);
    for (size_t arm = 0; arm < contexts_.size(); ++arm) {
      const ArmFacts facts = engine_.facts(contexts_[arm].arm());
      for (Answer& answer : *answers_[arm])
        answer.kernel = fmt::format("{}", fmt::join(facts.kernels.attend, " + "));
    }
  }

 private:
  /// A sequence with the attempts that it makes: all of them where they are teacher-forced, since
  /// their logits are the same, one where it is generated.
  struct Asked {
    const Question* question;
    Answer* answer;
    std::span<Attempt> attempts;
    std::vector<uint64_t> streams;  // of the attempts
    std::vector<int32_t> tokens;
    Sequence sequence;
  };

  void add_asked(const Question& question, Answer& answer, const Sequence& context) {
    std::vector<uint64_t> streams;
    for (int64_t sample = 1; sample <= sampling_.samples; ++sample) {
      streams.push_back(sample_stream(sampling_.seed, document_.id, question.id, sample));
    }
    const std::span<Attempt> attempts(answer.attempts);
    if (works_on_tokens(question)) {
      forced_.push_back({&question, &answer, attempts, streams, question.tokens, context.fork()});
      return;
    }
    for (size_t i = 0; i < attempts.size(); ++i) {
      auto& kind = question.ends_with_line ? lines_ : free_;
      kind.push_back({&question,
                      &answer,
                      attempts.subspan(i, 1),
                      {streams[i]},
                      question.tokens,
                      context.fork()});
    }
  }

  void ask_forced() {
    std::vector<Request> requests;
    for (Asked& asked : forced_) {
      const std::vector<int32_t>& expected = asked.question->answer_tokens;
      asked.tokens.insert(asked.tokens.end(), expected.begin(), expected.end() - 1);
      requests.push_back(
          {&asked.sequence, asked.tokens, std::ssize(asked.question->tokens) - 1, nullptr});
    }
    engine_.run(requests, [&](std::span<const LogitRow> rows) {
      for (const LogitRow& row : rows) judge_row(forced_[row.request], row);
    });
  }

  void judge_row(const Asked& asked, const LogitRow& row) {
    const std::vector<int32_t>& expected = asked.question->answer_tokens;
    const auto position = static_cast<size_t>(row.token - std::ssize(asked.question->tokens) + 1);
    for (size_t i = 0; i < asked.attempts.size(); ++i) {
      Attempt& attempt = asked.attempts[i];
      const Pick pick = picker_.pick(row.logits, asked.streams[i], static_cast<int64_t>(position));
      attempt.produced.push_back(pick.token);
      attempt.margins.push_back(pick.margin);
      attempt.finite = attempt.finite && pick.token >= 0;
    }
    if (asked.attempts.front().produced.back() < 0) return;
    asked.answer->logprob +=
        log_probability(row.logits, expected[position]) / static_cast<double>(expected.size());
  }

  void ask_free(std::vector<Asked>& all, int64_t max_new_tokens,
                std::span<const int32_t> stop_ids) {
    std::vector<Request> prefill;
    std::vector<Sequence*> sequences;
    std::vector<int32_t> first;
    std::vector<uint64_t> streams;
    int64_t most = 0;
    for (Asked& asked : all) {
      most = std::max(most, budget_of(*asked.question, max_new_tokens));
      first.push_back(asked.tokens.back());
      asked.tokens.pop_back();
      sequences.push_back(&asked.sequence);
      streams.push_back(asked.streams.front());
      if (!asked.tokens.empty()) prefill.push_back({&asked.sequence, asked.tokens, -1, nullptr});
    }
    engine_.run(prefill);
    const std::vector<Generation> generated =
        engine_.generate(sequences, first, most, stop_ids, sampling_.how, streams);
    for (size_t i = 0; i < all.size(); ++i) {
      take_answer(generated[i], budget_of(*all[i].question, max_new_tokens),
                  all[i].attempts.front());
    }
  }

  /// What stands behind a question's own budget was generated for the sake of others.
  static void take_answer(const Generation& generated, int64_t budget, Attempt& attempt) {
    attempt = attempt_of(generated);
    if (std::ssize(attempt.produced) < budget) return;
    attempt.ended = false;
    attempt.finite = true;
    attempt.stop_id = -1;
    attempt.produced.resize(static_cast<size_t>(budget));
    attempt.margins.resize(static_cast<size_t>(budget));
  }

  Engine& engine_;
  const Document& document_;
  const AnswerSampling& sampling_;
  TokenPicker picker_;
  std::vector<Sequence> contexts_;
  std::vector<AttentionObserver*> observers_;
  std::vector<std::vector<Answer>*> answers_;
  std::vector<Asked> forced_, free_, lines_;
};

}  // namespace

std::vector<std::vector<Answer>> EngineRunner::answer(const Document& document,
                                                      std::span<const RunnerArm> arms) {
  const int64_t tokens =
      tokens_needed(document, plan_.block_size, max_new_tokens_, sampling_.samples);
  const int64_t sequences = 1 + std::ssize(document.questions) * sampling_.samples;
  std::vector<std::vector<Answer>> out(arms.size(), std::vector<Answer>(document.questions.size()));
  for (const bool repeat : {false, true}) {
    if (std::ranges::none_of(arms, [&](const RunnerArm& a) { return a.repeat == repeat; }))
      continue;
    Lane& lane = lane_for(repeat, tokens, sequences);
    DocumentRun run(lane.engine, document, sampling_);
    for (size_t i = 0; i < arms.size(); ++i) {
      if (arms[i].repeat != repeat) continue;
      const bool is_control = !repeat && arms[i].arm.spec.layout == ArmLayout::kBf16;
      run.add_arm(lane.number_of(arms[i]), out[i], is_control ? control_observer_ : nullptr);
    }
    run.prefill();
    run.ask(max_new_tokens_, stop_ids_, line_end_ids_);
  }
  return out;
}

std::vector<ArmFacts> EngineRunner::facts() const {
  std::vector<ArmFacts> out = past_facts_;
  for (const auto& lane : lanes_) {
    for (int arm = 0; arm < lane->engine.num_arms(); ++arm) out.push_back(lane->engine.facts(arm));
  }
  return out;
}

}  // namespace kv
