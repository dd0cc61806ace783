#include <fmt/core.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>

#include "checkpoint/scales/export_scales.h"
#include "cli/scale_args.h"
#include "cli/scale_source.h"
#include "cli/served_servers.h"
#include "cli/session.h"
#include "endpoint/server_facts.h"
#include "kvscale/error.h"
#include "study/calibration_pass.h"
#include "study/served_fingerprint.h"

namespace kv::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kPieceTokens = 128;

struct KnownScales {
  ExpectedScales scales;
  std::string source;
};

ScaleTable table_of(const ScaleSet& set, bool per_head, const ModelSpec& model,
                    const std::string& source) {
  ScaleChoice choice;
  choice.per_head = per_head;
  choice.reduce_max = !per_head;
  ScaleTable out(model.num_layers, model.num_kv_heads, source);
  for (const ExportedScale& one : scales_for_export(set, choice)) {
    const Side side = one.side == 'k' ? Side::kK : Side::kV;
    for (int64_t head = 0; head < model.num_kv_heads; ++head) {
      out.set(one.layer, side, head, one.used.at(one.used.size() == 1 ? 0 : head));
    }
  }
  return out;
}

/// Those of a file or directory; nothing when it holds none.
std::optional<KnownScales> stored_scales(const std::filesystem::path& path,
                                         const ModelSpec& model) {
  const ScaleSet set = read_scale_source(path);
  if (set.scales.empty()) return std::nullopt;
  KnownScales out;
  out.source = path.string();
  out.scales.is_collapsed =
      std::ranges::any_of(set.scales, [](const StoredScale& one) { return one.values.size() > 1; });
  out.scales.tensor = table_of(set, false, model, out.source);
  if (out.scales.is_collapsed) out.scales.head = table_of(set, true, model, out.source);
  return out;
}

KnownScales scales_of(const VerifyArgs& args, Session& session, std::span<const Prompt> texts,
                      Progress& progress) {
  const ModelSpec& model = session.checkpoint().spec();
  std::optional<KnownScales> stored;
  if (!args.scales.empty()) {
    stored = stored_scales(args.scales, model);
    if (!stored) throw FormatError(fmt::format("{}: expected scales, found none", args.scales));
  } else if (std::filesystem::is_directory(model_path(args.path))) {
    stored = stored_scales(model_path(args.path), model);
  }
  if (stored) return *stored;
  const Calibration found = calibrate(session.model(progress), texts, session.calibration_source(),
                                      BatchPlan{}, progress);
  return {{found.scales(false), found.scales(true), true}, "of the texts that were sent"};
}

std::string sentence(const Fingerprint& found, const std::vector<Hypothesis>& hypotheses) {
  const auto name = [&](size_t row) { return hypotheses[found.rows.at(row).hypothesis].name; };
  switch (found.end) {
    case Fingerprint::End::kNotQuantized:
      return "not quantized: the candidate differs from the control no more than it does from "
             "itself";
    case Fingerprint::End::kNamed:
      return "the candidate runs: " + name(0);
    case Fingerprint::End::kUndecided:
      return fmt::format("undecided between \"{}\" and \"{}\"", name(0), name(1));
    case Fingerprint::End::kNoneOfThese:
      break;
  }
  return "none of these: the differences are not those of any hypothesis";
}

OrderedJson to_json(const Fingerprint& found, const std::vector<Hypothesis>& hypotheses) {
  OrderedJson rows = OrderedJson::array();
  for (const FingerprintRow& row : found.rows) {
    rows.push_back({{"hypothesis", hypotheses[row.hypothesis].name},
                    {"log_likelihood", row.log_likelihood},
                    {"correlation", row.correlation},
                    {"gain", row.gain},
                    {"share", row.share},
                    {"is_dropped", row.is_dropped}});
  }
  return rows;
}

void print_json(const Fingerprint& found, const std::vector<Hypothesis>& hypotheses,
                const ServerFacts& facts, const std::string& scales) {
  const OrderedJson out = {
      {"declared", {{"server", facts.text()}, {"cache_dtype", facts.cache_dtype}}},
      {"observed",
       {{"bytes_per_token", facts.bytes_per_token()},
        {"rms", found.rms},
        {"noise_rms", found.noise_rms}}},
      {"scales", scales},
      {"tokens", found.tokens},
      {"fingerprint", to_json(found, hypotheses)},
      {"verdict", sentence(found, hypotheses)}};
  fmt::print("{}\n", out.dump(1));
}

void print_text(const Fingerprint& found, const std::vector<Hypothesis>& hypotheses,
                const ServerFacts& facts, const std::string& scales) {
  constexpr size_t kShown = 12;
  fmt::print("{}\n", sentence(found, hypotheses));
  fmt::print("declared: {}\n", facts.text());
  fmt::print(
      "observed: {} tokens; differences of {:.3g} nats rms, the control from itself {:.3g}; "
      "scales: {}\n",
      found.tokens, found.rms, found.noise_rms, scales);
  if (found.end == Fingerprint::End::kNotQuantized) return;
  fmt::print("\n{:<74} {:>11} {:>6} {:>9} {:>7}\n", "hypothesis", "correlation", "gain", "nats",
             "leads");
  for (size_t i = 0; i < std::min(kShown, found.rows.size()); ++i) {
    const FingerprintRow& row = found.rows[i];
    fmt::print("{:<74} {:>11.2f} {:>6.2f} {:>9.1f} {:>5.1f} %\n", hypotheses[row.hypothesis].name,
               row.correlation, row.gain, row.log_likelihood, 100 * row.share);
  }
  fmt::print("{:<74} {:>11} {:>6} {:>9.1f}\n", "none of these", "", "", 0.0);
}

/// One line a text: its tokens, what both servers and the emulation said.
auto recorder(std::ofstream& file, const std::vector<Hypothesis>& hypotheses) {
  return [&](std::span<const int32_t> tokens, const FingerprintPiece& piece,
             std::span<const size_t> live) {
    OrderedJson emulated = OrderedJson::object();
    for (size_t i = 0; i < live.size(); ++i) {
      emulated[hypotheses[live[i]].name] = piece.own_by_index[i];
    }
    const OrderedJson line = {{"tokens", std::vector<int32_t>(tokens.begin(), tokens.end())},
                              {"control", piece.control},
                              {"candidate", piece.candidate},
                              {"own_control", piece.own_control},
                              {"emulated", emulated}};
    file << line.dump() << std::endl;  // what was compared survives a crash
  };
}

}  // namespace

int run_fingerprint(const VerifyArgs& args) {
  if (args.control.empty() || args.candidate.empty()) {
    throw ValueError("verify: expected --control URL and --candidate URL together");
  }
  HttpOptions http;
  http.api_key = read_api_key("verify", args.api_key_env, args.api_key_file);
  const Dialect dialect = served_dialect(args.engine);
  const auto client_of = [&](const std::string& url) {
    http.url = url;
    return CompletionClient(http, dialect, args.server_model);
  };
  CompletionClient control = client_of(args.control), candidate = client_of(args.candidate);
  const ServerFacts facts = read_server_facts(candidate);
  RunArgs run;
  run.model = args.path;
  run.prompts = args.prompts;
  Session session(run);
  ConsoleProgress progress("the same command begins again");
  const std::vector<Prompt> prompts = session.prompts();
  std::vector<std::vector<int32_t>> texts;
  for (const Prompt& prompt : prompts) texts.push_back(prompt.tokens);
  const auto pieces =
      fingerprint_pieces(texts, session.tokenizer().prefix_ids(), kPieceTokens, args.tokens);
  const KnownScales known = scales_of(args, session, prompts, progress);
  const std::vector<Hypothesis> hypotheses = fingerprint_hypotheses(known.scales);
  std::ofstream record;
  FingerprintOptions options;
  options.is_full = args.full;
  if (!args.record.empty()) {
    record.open(args.record);
    if (!record) throw IoError(fmt::format("{}: cannot be written", args.record));
    options.seen = recorder(record, hypotheses);
  }
  const Fingerprint found = take_fingerprint(control, candidate, session.model(progress), pieces,
                                             hypotheses, options, progress);
  progress.finish_line();
  if (args.json) {
    print_json(found, hypotheses, facts, known.source);
  } else {
    print_text(found, hypotheses, facts, known.source);
  }
  const bool is_known =
      found.end == Fingerprint::End::kNamed || found.end == Fingerprint::End::kNotQuantized;
  return is_known ? kExitAccept : kExitInconclusive;
}

}  // namespace kv::cli
