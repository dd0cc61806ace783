#include "cli/session.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <set>

#include "calibrate/fingerprint.h"
#include "checkpoint/load_tokenizer.h"
#include "cpu/attend_rows.h"
#include "evaluate/prompts.h"
#include "kvscale/error.h"
#include "kvscale/version.h"
#include "numeric/simd.h"
#include "study/calibration_pass.h"
#include "study/own_text.h"
#include "tensor/atomic_file.h"
#include "text/sha256.h"

namespace kv::cli {
namespace {

namespace fs = std::filesystem;

std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace

fs::path model_path(const std::string& name) {
  if (name != "tiny" || fs::exists(name)) return name;
  if (const char* folder = std::getenv("KVSCALE_TINY")) return folder;
  const fs::path installed =
      fs::read_symlink("/proc/self/exe").parent_path() / "../share/kvscale/tiny";
  return fs::exists(installed) ? installed : fs::path(KVSCALE_TINY_FOLDER);
}

Session::Session(const RunArgs& args)
    : args_(args),
      checkpoint_(Checkpoint::open(model_path(args.model))),
      tokenizer_(load_tokenizer(*checkpoint_)) {
  apply_machine_options(args.threads, args.backend);
  if (checkpoint_->chat_template().empty()) return;
  try {
    chat_template_ = ChatTemplate::parse(checkpoint_->chat_template(),
                                         load_special_tokens(*checkpoint_, tokenizer_));
  } catch (const Error& error) {
    chat_template_refusal_ = error.what();  // matters only when a prompt has messages
  }
}

std::vector<Prompt> Session::prompts(int64_t new_tokens) const {
  // Enough for the sampled queries of 64, 80, ... to be many, few enough for a scan in a minute.
  constexpr int64_t kOwnTokens = 1088;
  const int64_t context = checkpoint_->spec().max_positions;
  if (args_.prompts.empty()) {
    Prompt own;
    own.id = "kvscale-text";
    own.tokens = tokenizer_.encode(own_text());
    own.tokens.resize(static_cast<size_t>(std::min({std::ssize(own.tokens), kOwnTokens, context})));
    return {own};
  }
  std::vector<Prompt> out = read_prompts(
      args_.prompts,
      {&tokenizer_, chat_template_ ? &*chat_template_ : nullptr, chat_template_refusal_});
  for (const Prompt& prompt : out) {
    const int64_t more = prompt.has_answer() ? new_tokens : 0;
    if (std::ssize(prompt.tokens) + more <= context) continue;
    throw FormatError(fmt::format(
        "{}: prompt \"{}\": expected at most {} tokens (the model's context of {}, less {} for the "
        "answer), found {}",
        args_.prompts, prompt.id, context - more, context, more, prompt.tokens.size()));
  }
  return out;
}

namespace {

/// What makes answers right, beside the tokens of the prompts.
std::string answers_sha256(const std::vector<Prompt>& prompts) {
  Sha256 hash;
  for (const Prompt& prompt : prompts) {
    hash.add_field(prompt.id);
    hash.add_field(std::to_string(static_cast<int>(prompt.check)));
    for (const std::string& answer : prompt.accepted_answers) hash.add_field(answer);
    hash.add_field(prompt.tag);
  }
  return hash.hex();
}

}  // namespace

std::shared_ptr<const Model> Session::model(Progress& progress) {
  if (!model_) {
    model_ = Model::load(checkpoint_, [&](double share) {
      progress.update("load weights", static_cast<int64_t>(share * 100), 100, "%");
    });
  }
  return model_;
}

fs::path Session::run_folder(const std::string& command, const std::string& configuration,
                             const std::vector<Prompt>& prompts) const {
  const std::string text = fmt::format(
      "kvscale {}\ncommand {}\nmodel {}\ntokenizer {}\nprompts {}\nanswers {}\n"
      "backend {}, attention {}\n{}\n",
      kVersion, command, checkpoint_->content_sha256(), tokenizer_.fingerprint(),
      prompts_sha256(prompts), answers_sha256(prompts), active_simd_target(),
      cpu::attend_rows_kernel(), configuration);
  const fs::path folder =
      args_.out.empty()
          ? fs::path(fmt::format("kvscale-{}-{}", command, sha256_hex(text).substr(0, 12)))
          : fs::path(args_.out);
  const fs::path file = folder / "configuration.txt";
  fs::create_directories(folder);
  if (!fs::exists(file)) {
    write_file_atomically(file, text);
  } else if (const std::string found = read_file(file); found != text) {
    throw ValueError(fmt::format(
        "{}: expected this run's configuration, found another's; give another --out\n--- found\n"
        "{}--- this run\n{}",
        file.string(), found, text));
  }
  return folder;
}

CalibrationSource Session::calibration_source() const {
  CalibrationSource source;
  source.model_sha256 = checkpoint_->content_sha256();
  source.tokenizer_sha256 = tokenizer_.fingerprint();
  source.prompts = args_.prompts.empty() ? "kvscale's own text" : args_.prompts;
  add_model_fields(checkpoint_->spec(), source);
  const std::string& chat = checkpoint_->chat_template();
  source.chat_template_sha256 = chat.empty() ? "none" : sha256_hex(chat);
  source.tool_version = kVersion;
  source.attention = cpu::attend_rows_kernel();
  source.machine = cpu_name();
  source.created_utc = utc_now();
  return source;
}

ModelFacts Session::model_facts() const {
  const ModelSpec& spec = checkpoint_->spec();
  return {args_.model,     spec.architecture, checkpoint_->content_sha256(),
          spec.num_layers, spec.num_q_heads,  spec.num_kv_heads,
          spec.head_dim};
}

PromptFacts Session::prompt_facts(const std::vector<Prompt>& prompts) const {
  PromptFacts facts{args_.prompts.empty() ? "kvscale's own text" : args_.prompts,
                    prompts_sha256(prompts), std::ssize(prompts), 0};
  for (const Prompt& prompt : prompts) facts.tokens += std::ssize(prompt.tokens);
  return facts;
}

RunFacts run_facts(const std::vector<FactsRecord>& facts, const std::string& command) {
  RunFacts out;
  std::set<std::string> kernels, machines;
  std::map<std::string, int64_t> bytes;  // of an arm's largest cache
  for (const FactsRecord& arm : facts) {
    kernels.insert(arm.kernels.begin(), arm.kernels.end());
    machines.insert(arm.machine);
    out.scale_sources[arm.arm] = arm.scale_source;
    bytes[arm.arm] = std::max(bytes[arm.arm], arm.allocated_bytes);
  }
  for (const auto& [arm, most] : bytes) out.cache_bytes += most;
  out.kernels.assign(kernels.begin(), kernels.end());
  out.peak_memory_bytes = peak_memory_bytes();
  out.seconds = seconds_since_start();
  // A run that was taken up again may have been on several.
  out.machine = machines.empty() ? machine_name() : fmt::format("{}", fmt::join(machines, "; "));
  out.version = kVersion;
  out.command = command;
  return out;
}

}  // namespace kv::cli
