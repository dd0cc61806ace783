#include "cli/parse_scales.h"

#include <CLI/CLI.hpp>

#include "cli/scale_args.h"

namespace kv::cli {
namespace {

constexpr const char* kTargetHelp =
    "engine or engine:backend, optionally @device, as vllm, vllm:cpu, sglang, tensorrt-llm, "
    "tensorrt-llm-legacy, edge-llm";

void add_inspect(CLI::App& app, InspectArgs& args) {
  CLI::App* c = app.add_subcommand(
      "inspect", "the scale doctor: what scales a checkpoint holds and what is wrong with them");
  c->add_option(
       "path", args.path,
       "a model directory, a .safetensors, .onnx or SGLang .json file, or kvscale's scale file")
      ->required();
  c->add_option("--for", args.target,
                std::string("what an engine would do with it: ") + kTargetHelp);
  c->add_option("--version", args.version, "of the engine (default: the newest one that is known)");
  c->add_option("--backend", args.backend,
                "attention backend, as flash_attn3, flashinfer, triton, cpu");
  c->add_option("--tp", args.tp, "tensor-parallel ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_flag("--hash", args.hash, "read the weights too, and hold them against the export record");
  c->add_flag("--json", args.json, "one JSON object on standard output");
}

void add_export(CLI::App& app, ExportArgs& args) {
  CLI::App* c = app.add_subcommand(
      "export", "a model directory with scales for an engine; weights are linked, not changed");
  c->add_option("model", args.model,
                "a Hugging Face directory, or tiny (built in); for tensorrt-llm-legacy a converted "
                "checkpoint, for edge-llm also a directory of its graphs")
      ->required();
  c->add_option("--scales", args.scales,
                "kvscale's scale file, or anything that inspect reads (not for fp8_scale1)");
  c->add_option("--out", args.out, "the directory to make; it must not exist yet")->required();
  c->add_option("--for", args.target, kTargetHelp)->capture_default_str();
  c->add_option("--layout", args.layout, "how the cache is stored")
      ->capture_default_str()
      ->check(CLI::IsMember({"fp8_scale1", "fp8_tensor", "fp8_head"}));
  c->add_option("--form", args.form, "how the scales are written (default: what the target reads)")
      ->check(CLI::IsMember(
          {"compressed-tensors", "modelopt", "sglang-json", "tensorrt-llm-legacy", "edge-onnx"}));
  c->add_option("--bf16-layers", args.bf16_layers, "layers kept in BF16, as 0,1")->delimiter(',');
  c->add_option("--reduce", args.reduce, "make one scale per tensor of scales per head")
      ->check(CLI::IsMember({"max"}));
  c->add_option("--min-scale", args.min_scale, "lift smaller scales to this one");
  c->add_option("--tp", args.tp, "tensor-parallel ranks (sglang-json writes one entry each)")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_flag("--exact", args.exact, "write the numbers as they are, not rounded up to BF16");
  c->add_flag("--copy", args.copy, "copy files instead of hard-linking them");
  c->add_flag("--any-model", args.any_model, "accept a scale file that another model's hash is in");
  c->add_flag("--json", args.json, "one JSON object on standard output");
}

void add_verify_servers(CLI::App& c, VerifyArgs& args) {
  const std::string group = "A running server, by the errors of its cache (docs/fingerprint.md)";
  const auto add = [&](const char* option, std::string& value, const char* help) {
    return c.add_option(option, value, help)->group(group);
  };
  add("--control", args.control, "URL of a server with a 16-bit cache");
  add("--candidate", args.candidate, "URL of the server in question");
  add("--scales", args.scales,
      "that it ought to have, as inspect reads them (default: the model's own, else those of the "
      "texts that are sent)");
  add("--prompts", args.prompts, "texts to send (default: kvscale's own)");
  c.add_option("--tokens", args.tokens, "of the texts, at most")
      ->capture_default_str()
      ->check(CLI::Range(128, 1 << 20))
      ->group(group);
  add("--engine", args.engine, "of the servers: vllm, sglang or tensorrt-llm")
      ->capture_default_str();
  add("--server-model", args.server_model, "name of the model, when a server serves several");
  add("--api-key-env", args.api_key_env, "environment variable that holds the servers' key");
  add("--api-key-file", args.api_key_file, "file that holds the servers' key");
  add("--record", args.record, "file for the logprobs that were compared, one text a line");
  c.add_flag("--full", args.full, "goes on to the last text and gives up no hypothesis")
      ->group(group);
}

void add_verify(CLI::App& app, VerifyArgs& args) {
  CLI::App* c = app.add_subcommand(
      "verify",
      "prove that exported scales arrive, by reading them back under the engine's rules; with "
      "--control, name what a running server does with its cache");
  c->add_option("path", args.path, "the exported directory; with --control the model")->required();
  c->add_option("--against", args.against,
                "scale file or directory that it must equal (default: the export record)");
  c->add_option("--for", args.target, std::string("default: the record's target; ") + kTargetHelp);
  c->add_option("--version", args.version, "of the engine");
  c->add_option("--tp", args.tp, "tensor-parallel ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 1024));
  c->add_option(
      "--engine-python", args.engine_python,
      "a Python in which the engine can be imported: its own loader reads the directory too");
  c->add_flag("--hash", args.hash, "read the weights too, and hold them against the export record");
  c->add_flag("--json", args.json, "one JSON object on standard output");
  add_verify_servers(*c, args);
}

void add_targets(CLI::App& app, TargetsArgs& args) {
  CLI::App* c = app.add_subcommand(
      "targets", "engines, backends and devices: which layouts run, with which numerics");
  c->add_option("--model", args.model, "a model directory, a .gguf file, or tiny");
  c->add_option("--layout", args.layout, "asks whether this layout runs, and answers yes or no")
      ->check(CLI::IsMember(
          {"bf16", "fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head", "fp8_ds_mla"}));
  c->add_option("--gpu", args.gpu, "device, as h100, l4, a100, cpu");
  c->add_option("--engine", args.engine, "engine or engine:backend");
  c->add_flag("--json", args.json, "one JSON object on standard output");
}

}  // namespace

struct ScaleCommands::State {
  CLI::App& app;
  InspectArgs inspect;
  ExportArgs exporting;
  VerifyArgs verify;
  TargetsArgs targets;
};

ScaleCommands::ScaleCommands(CLI::App& app) : state_(new State{app, {}, {}, {}, {}}) {
  add_inspect(app, state_->inspect);
  add_export(app, state_->exporting);
  add_verify(app, state_->verify);
  add_targets(app, state_->targets);
}

ScaleCommands::~ScaleCommands() = default;

std::optional<int> ScaleCommands::run() const {
  if (state_->app.got_subcommand("inspect")) return run_inspect(state_->inspect);
  if (state_->app.got_subcommand("export")) return run_export(state_->exporting);
  if (state_->app.got_subcommand("verify")) {
    const VerifyArgs& args = state_->verify;
    const bool names_servers = !args.control.empty() || !args.candidate.empty();
    return names_servers ? run_fingerprint(args) : run_verify(args);
  }
  if (state_->app.got_subcommand("targets")) return run_targets(state_->targets);
  return std::nullopt;
}

}  // namespace kv::cli
