#include "cli/served_servers.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstdlib>

#include "checkpoint/hf_config.h"
#include "cli/export_verified.h"
#include "cli/session.h"
#include "kvscale/error.h"
#include "targets/targets.h"

namespace kv::cli {
namespace {

void expect_candidate(const ArmSpec& arm, const std::string& word) {
  if (arm.layout != ArmLayout::kBf16 && arm.math == Math::kBf16 &&
      arm.rounding == Rounding::kNearestEven && arm.scale_file.empty() && arm.sink == 0) {
    return;
  }
  throw ValueError(
      fmt::format("decide: --candidate: expected a layout other than bf16, optionally with "
                  "/bf16=LAYERS (numerics and "
                  "scales are the server's own), found \"{}\"",
                  word));
}

/// "fp8_scale1/bf16=0=http://host:8000".
std::pair<ArmSpec, std::string> candidate_of(const std::string& word) {
  const size_t at = std::min(word.find("=http://"), word.find("=https://"));
  if (at == std::string::npos) {
    throw ValueError(fmt::format(
        "decide: --candidate: expected ARM=URL, as fp8_tensor=http://host:8000, found \"{}\"",
        word));
  }
  const ArmSpec arm = ArmSpec::parse(word.substr(0, at));
  expect_candidate(arm, word);
  return {arm, word.substr(at + 1)};
}

HttpOptions http_options(const DecideArgs& args) {
  HttpOptions http;
  http.api_key = read_api_key("decide", args.api_key_env, args.api_key_file);
  if (args.sends_once) http.attempts = 1;
  return http;
}

std::unique_ptr<ServedArms> url_arms(const DecideArgs& args, const std::string& engine) {
  if (args.control.empty() || args.candidates.empty()) {
    throw ValueError(
        "decide: expected --control URL and --candidate ARM=URL together, or --launch");
  }
  std::vector<std::pair<ArmSpec, std::string>> urls = {{ArmSpec{}, args.control}};
  for (const std::string& word : args.candidates) urls.push_back(candidate_of(word));
  return std::make_unique<UrlArms>(std::move(urls), http_options(args), served_dialect(engine),
                                   args.server_model);
}

LaunchRequest request_of(const ArmSpec& arm) {
  LaunchRequest out;
  out.layout = std::string(name(arm.layout));
  for (const Bf16Side& side : arm.bf16) {
    (side.k && side.v ? out.bf16_layers : out.half_bf16_layers).push_back(side.layer);
  }
  return out;
}

/// A layout that the named backend is known not to run is asked of the engine all the same: what
/// it then does is what the run is to find out.
LaunchFlags flags_for(const ArmSpec& arm, const std::string& target) {
  const TargetRow& row = find_target(target);
  const LaunchRequest request = request_of(arm);
  const bool runs = support(request.layout, row.name).supported;
  return launch_flags(request, runs ? row.name : row.engine);
}

std::string refusal_of(const ArmSpec& arm, const std::string& target) {
  try {
    const LaunchFlags flags = flags_for(arm, target);
    if (flags.can_express) return "";
    return fmt::format("{}: {}", served_key(arm), fmt::join(flags.notes, "; "));
  } catch (const ValueError& error) {
    return error.what();
  }
}

/// The directory that the engine loads for an arm, written first where it holds scales.
std::string directory_of(const ArmSpec& arm, const DecideArgs& args, const std::string& engine,
                         const std::filesystem::path& folder) {
  if (!arm.needs_scales()) return model_path(args.run.model).string();
  ExportArgs request;
  request.model = args.run.model;
  request.target = std::string(find_target(engine).engine);
  request.layout = std::string(name(arm.layout));
  request.scales = (folder / "scales.json").string();
  for (const Bf16Side& side : arm.bf16) request.bf16_layers.push_back(side.layer);
  std::string word = served_key(arm);
  std::ranges::replace_if(
      word, [](char c) { return c == '/' || c == '=' || c == ','; }, '_');
  request.out = (folder / "serve" / word).string();
  if (!std::filesystem::exists(request.out)) {
    std::filesystem::create_directories(folder / "serve");
    if (!export_verified(request).is_kept()) {
      throw Error(fmt::format("{}: the scales do not arrive by {}'s rules", request.out, engine));
    }
  }
  return request.out;
}

std::unique_ptr<ServedArms> launched_arms(const DecideArgs& args, const std::string& engine,
                                          const std::filesystem::path& folder) {
  if (!args.control.empty() || !args.server_model.empty()) {
    throw ValueError(
        "decide: --launch starts the control too: expected no --control, no --server-model");
  }
  std::vector<ArmSpec> candidates;
  for (const std::string& word : args.candidates) {
    candidates.push_back(ArmSpec::parse(word));
    expect_candidate(candidates.back(), word);
  }
  if (candidates.empty()) {
    const TargetRow& row = find_target(engine);
    for (const auto part : {row.layouts, row.own_layouts}) {
      for (const LayoutSupport& one : part) {
        if (one.supported) candidates.push_back(ArmSpec::parse(one.layout));
      }
    }
  }
  LaunchCommand how;
  how.command = args.launch;
  how.log = folder / "serve" / "logs";
  const auto prepare = [args, engine, folder](const ArmSpec& arm) {
    return ArmLaunch{directory_of(arm, args, engine, folder), flags_for(arm, engine).flags,
                     arm.needs_scales() ? "calibrated in this run" : ""};
  };
  const auto refuse = [engine](const ArmSpec& arm) { return refusal_of(arm, engine); };
  return std::make_unique<LaunchedArms>(std::move(candidates), how, http_options(args),
                                        served_dialect(engine), prepare, refuse);
}

}  // namespace

std::string read_api_key(const std::string& command, const std::string& variable,
                         const std::string& file) {
  if (!variable.empty() && !file.empty()) {
    throw ValueError(
        fmt::format("{}: expected --api-key-env or --api-key-file, found both", command));
  }
  if (variable.empty() && file.empty()) return "";
  std::string key;
  if (variable.empty()) {
    key = read_text_file(file);
  } else if (const char* value = std::getenv(variable.c_str())) {
    key = value;
  }
  while (!key.empty() && std::isspace(static_cast<unsigned char>(key.back()))) key.pop_back();
  const bool is_plain =
      std::ranges::all_of(key, [](unsigned char c) { return c > 0x20 && c < 0x7f; });
  if (!key.empty() && is_plain) return key;
  throw ValueError(fmt::format("{}: {}: expected a key of printable characters without blanks",
                               command, variable.empty() ? file : variable));
}

Dialect served_dialect(const std::string& engine) {
  const std::string_view name = find_target(engine).engine;
  if (name == "vllm") return Dialect::kVllm;
  if (name == "sglang") return Dialect::kSglang;
  if (name == "tensorrt-llm") return Dialect::kOpenAi;
  if (name == "llama-server") return Dialect::kLlamaServer;
  throw ValueError(fmt::format(
      "--engine: expected vllm, sglang, tensorrt-llm or llama-server, with a backend or without, "
      "found \"{}\"",
      engine));
}

bool names_servers(const DecideArgs& args) {
  return !args.control.empty() || !args.candidates.empty() || !args.launch.empty();
}

std::string served_engine(const DecideArgs& args) {
  std::string engine = args.engine.empty() ? "vllm" : args.engine;
  if (engine == "trtllm") engine = "tensorrt-llm";
  served_dialect(engine);
  return engine;
}

std::unique_ptr<ServedArms> served_arms(const DecideArgs& args,
                                        const std::filesystem::path& folder) {
  const std::string engine = served_engine(args);
  auto out = args.launch.empty() ? url_arms(args, engine) : launched_arms(args, engine, folder);
  if (args.no_prefix_cache) out->forbid_prefix_cache();
  return out;
}

std::string served_options(const DecideArgs& args) {
  std::string out;
  const auto add = [&](const char* option, const std::string& value) {
    if (!value.empty()) out += fmt::format(" {} {}", option, quoted(value));
  };
  add("--engine", args.engine);
  add("--launch", args.launch);
  add("--control", args.control);
  for (const std::string& one : args.candidates) add("--candidate", one);
  add("--server-model", args.server_model);
  add("--api-key-env", args.api_key_env);
  add("--api-key-file", args.api_key_file);
  if (args.no_prefix_cache) out += " --no-prefix-cache";
  if (args.concurrency != DecideArgs().concurrency) {
    out += fmt::format(" --concurrency {}", args.concurrency);
  }
  return out;
}

}  // namespace kv::cli
