#include "study/served_fingerprint.h"

#include <algorithm>

#include "evaluate/logit_metrics.h"
#include "kvscale/error.h"

namespace kv {
namespace {

constexpr size_t kLeastPiece = 32;

std::vector<double> logprobs_of(std::span<const ScoredToken> scored) {
  std::vector<double> out;
  for (const ScoredToken& one : scored) out.push_back(one.logprob);
  return out;
}

}  // namespace

std::vector<std::vector<int32_t>> fingerprint_pieces(std::span<const std::vector<int32_t>> texts,
                                                     std::span<const int32_t> prefix,
                                                     int64_t piece_tokens, int64_t budget) {
  std::vector<std::vector<int32_t>> out;
  const auto room = static_cast<size_t>(piece_tokens) - std::min(prefix.size(), kLeastPiece);
  auto left = static_cast<size_t>(budget);
  for (const std::vector<int32_t>& text : texts) {
    const bool has_prefix =
        text.size() >= prefix.size() && std::equal(prefix.begin(), prefix.end(), text.begin());
    for (size_t first = has_prefix ? prefix.size() : 0; first < text.size() && left >= kLeastPiece;
         first += room) {
      const size_t count = std::min({room, text.size() - first, left});
      if (count < kLeastPiece) break;
      std::vector<int32_t>& piece = out.emplace_back(prefix.begin(), prefix.end());
      const auto begin = text.begin() + static_cast<std::ptrdiff_t>(first);
      piece.insert(piece.end(), begin, begin + static_cast<std::ptrdiff_t>(count));
      left -= count;
    }
  }
  return out;
}

std::vector<std::vector<double>> emulate(const std::shared_ptr<const Model>& model,
                                         std::span<const int32_t> tokens,
                                         std::span<const Hypothesis> hypotheses,
                                         std::span<const size_t> chosen, const BatchPlan& plan) {
  Engine engine(model, plan);
  engine.add_arm(ArmSpec{}, std::nullopt, std::ssize(tokens));
  for (const size_t h : chosen) {
    const Hypothesis& one = hypotheses[h];
    engine.add_arm(one.arm, one.scales, std::ssize(tokens), 0, one.values);
  }
  std::vector<Sequence> sequences;
  for (int arm = 0; arm < engine.num_arms(); ++arm) sequences.push_back(engine.start(arm));
  std::vector<Request> requests;
  for (Sequence& one : sequences) requests.push_back({&one, tokens, 0, nullptr});
  std::vector<std::vector<double>> out(sequences.size());
  ControlRow row_metrics;
  engine.run(requests, [&](std::span<const LogitRow> rows) {
    for (const LogitRow& row : rows) {
      const auto next = static_cast<size_t>(row.token) + 1;
      if (next == tokens.size()) continue;
      row_metrics.prepare(row.logits.data(), std::ssize(row.logits));
      out[row.request].push_back(row_metrics.logprob(tokens[next]));
    }
  });
  return out;
}

Fingerprint take_fingerprint(CompletionClient& control, CompletionClient& candidate,
                             const std::shared_ptr<const Model>& model,
                             std::span<const std::vector<int32_t>> pieces,
                             std::span<const Hypothesis> hypotheses,
                             const FingerprintOptions& options, Progress& progress) {
  if (pieces.empty()) throw ValueError("fingerprint: expected a text of 32 tokens or more");
  if (model->spec().latent) {
    throw UnsupportedError(
        "fingerprint: needed a cache of keys and values of heads, which the hypotheses are about; "
        "this model stores latents (MLA)");
  }
  FingerprintEvidence evidence(hypotheses.size());
  Fingerprint out;
  for (size_t i = 0; i < pieces.size(); ++i) {
    progress.update("fingerprint", static_cast<int64_t>(i), std::ssize(pieces), "texts");
    progress.check();
    FingerprintPiece piece;
    piece.control = logprobs_of(control.score(pieces[i]));
    piece.candidate = logprobs_of(candidate.score(pieces[i]));
    if (i == 0) evidence.add_repeat(piece.control, logprobs_of(control.score(pieces[i])));
    piece.own_by_index = emulate(model, pieces[i], hypotheses, evidence.live(), BatchPlan{});
    piece.own_control = std::move(piece.own_by_index.front());
    piece.own_by_index.erase(piece.own_by_index.begin());
    evidence.add(piece);
    if (options.seen) options.seen(pieces[i], piece, evidence.live());
    out = evidence.judge(i + 1 == pieces.size());
    if (options.is_full) continue;
    if (out.end == Fingerprint::End::kNamed || out.end == Fingerprint::End::kNotQuantized) break;
    evidence.drop_hopeless(out);
  }
  return out;
}

}  // namespace kv
