#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "calibrate/calibration.h"
#include "checkpoint/hf_config.h"
#include "checkpoint/scales/export_checkpoint.h"
#include "checkpoint/scales/export_scales.h"
#include "cli/export_verified.h"
#include "cli/scale_args.h"
#include "cli/scale_source.h"
#include "cli/scale_text.h"
#include "cli/session.h"
#include "kvscale/error.h"
#include "kvscale/version.h"
#include "text/sha256.h"

namespace kv::cli {
namespace {

// The form that a target reads, unless the user names one; per-head scales have one form only.
ExportForm form_of(const ExportArgs& args, const TargetRow& row, const ScaleSet& model) {
  if (!args.form.empty()) return export_form(args.form);
  if (row.engine == "tensorrt-llm-legacy") return ExportForm::kTensorRtLlmLegacy;
  if (model.declared.family == ScaleFamily::kEdgeOnnx) return ExportForm::kEdgeOnnx;
  if (model.declared.family == ScaleFamily::kModelOpt) return ExportForm::kModelOpt;
  const bool reads_modelopt_only = row.engine == "edge-llm" || row.engine == "tensorrt-llm";
  return reads_modelopt_only ? ExportForm::kModelOpt : ExportForm::kCompressedTensors;
}

// Forms that one engine reads; the others are left to the rules, which say what becomes of them.
void expect_form(ExportForm form, const TargetRow& row) {
  const std::string_view reader = form == ExportForm::kTensorRtLlmLegacy ? "tensorrt-llm-legacy"
                                  : form == ExportForm::kEdgeOnnx        ? "edge-llm"
                                  : form == ExportForm::kSglangJson      ? "sglang"
                                                                         : "";
  if (!reader.empty() && reader != row.engine) {
    throw UnsupportedError(
        fmt::format("export: {} does not read the form {}; {} does", row.name, name(form), reader));
  }
  if (row.engine == "tensorrt-llm-legacy" && form != ExportForm::kTensorRtLlmLegacy) {
    throw UnsupportedError(fmt::format(
        "export: {} does not read the form {}, only tensorrt-llm-legacy; vllm and sglang do",
        row.name, name(form)));
  }
}

bool is_shared(ExportForm form) {
  return form == ExportForm::kSglangJson || form == ExportForm::kTensorRtLlmLegacy;
}

void expect_runs(const ExportArgs& args, const TargetRow& row, const KvGeometry& model) {
  const LayoutSupport layout = support(args.layout, row.name);
  std::string why = layout.supported ? "" : std::string(layout.note);
  if (why.empty() && model.head_dim > 0 && !row.head_dims.take(model.head_dim)) {
    why = fmt::format("head_dim is {}, it takes {}", model.head_dim, row.head_dims.text());
  }
  if (why.empty()) return;
  throw UnsupportedError(fmt::format("export: {} does not run on {}: {}; it runs on {}",
                                     args.layout, row.name, why,
                                     fmt::join(targets_that_run(args.layout), ", ")));
}

// Scale 1.0 needs no numbers; only engines that are switched by the checkpoint need a checkpoint.
void expect_needed(const ExportArgs& args, const TargetRow& row) {
  if (args.layout != "fp8_scale1") {
    if (args.scales.empty()) throw ValueError("export: --scales: expected a file or a directory");
    return;
  }
  if (row.engine == "vllm" || row.engine == "sglang") {
    throw ValueError(
        fmt::format("export: scale 1.0 needs no checkpoint of its own: serve the model "
                    "with {}",
                    launch_flags({args.layout, {}, {}}, row.name).text()));
  }
}

// Scales belong to weights. Returns the hash that the model was found to have; empty when the
// source names none.
std::string expect_model(const ExportArgs& args) {
  if (args.scales.empty() || !is_scale_file(args.scales)) return "";
  const std::string wanted = read_calibration(args.scales).source.model_sha256;
  const auto path = model_path(args.model);
  if (args.any_model) return "";
  const std::string found = Checkpoint::open(path)->content_sha256();
  if (found == wanted) return found;
  throw ValueError(fmt::format(
      "{}: model_sha256: expected {} ({}), found {}: scales of other weights; --any-model accepts "
      "them (a quantized GGUF and the BF16 model it was made from differ, for one)",
      args.scales, found, path.string(), wanted));
}

ExportRecord record_of(const ExportArgs& args, const TargetRow& row, ExportForm form,
                       const ScaleSet& source) {
  ExportRecord record;
  record.tool_version = kVersion;
  record.form = name(form);
  record.target = row.name;
  record.layout = args.layout;
  record.rounding = args.exact ? "none" : "up to BF16";
  record.bf16_layers.assign(args.bf16_layers.begin(), args.bf16_layers.end());
  if (args.layout == "fp8_scale1") {
    record.k_stage = "post_rope";
    record.scale_source = "scale 1.0 (none supplied)";
    return record;
  }
  record.k_stage = k_stage_of(source);
  record.scale_source = std::filesystem::path(args.scales).filename().string();
  if (std::filesystem::is_regular_file(args.scales)) {
    record.scale_sha256 = sha256_hex(read_text_file(args.scales));
  }
  ScaleChoice choice;
  choice.per_head = args.layout == "fp8_head";
  // kvscale's own file says what the scale per tensor is: that of the largest head.
  choice.reduce_max = args.reduce == "max" || is_scale_file(args.scales);
  choice.is_shared = is_shared(form);
  choice.min_scale = static_cast<float>(args.min_scale);
  choice.exact = args.exact;
  record.scales = scales_for_export(source, choice);
  return record;
}

void expect_layers(const ExportRecord& record, const KvGeometry& model, const std::string& from) {
  for (const ExportedScale& scale : record.scales) {
    const auto heads = std::ssize(scale.used);
    if (scale.layer < model.num_layers && (heads == 1 || heads == model.num_kv_heads)) continue;
    throw ValueError(
        fmt::format("{}: layer {} with {} values: the model has {} layers of {} KV heads", from,
                    scale.layer, heads, model.num_layers, model.num_kv_heads));
  }
}

void expect_bf16_layers(const std::vector<int64_t>& layers, const KvGeometry& model) {
  for (const int64_t layer : layers) {
    if (layer >= 0 && layer < model.num_layers) continue;
    throw ValueError(fmt::format("export: --bf16-layers: expected layers 0 to {}, found {}",
                                 model.num_layers - 1, layer));
  }
}

constexpr std::string_view kSharedText =
    " The form has one number for K and V of a layer: the larger of the two, which never "
    "overflows.";

std::string card_of(const ExportRecord& record, const std::string& launch) {
  return fmt::format(
      "## FP8 KV cache\n\n"
      "This directory carries scales for an FP8 (E4M3) KV cache, layout {}, written by kvscale {} "
      "in "
      "the form {} for {}. Stored code = value / scale, K measured {}.{} The weights are those of "
      "the base model; kvscale_export.json says where the scales come from and lists each of "
      "them.\n\n"
      "    {}\n",
      record.layout, record.tool_version, record.form, record.target,
      record.k_stage == "post_rope"  ? "after RoPE"
      : record.k_stage == "pre_rope" ? "before RoPE (engines quantize it after)"
                                     : "at a place that the source does not tell",
      is_shared(export_form(record.form)) ? kSharedText : "", launch);
}

size_t num_rounded(const ExportRecord& record) {
  size_t count = 0;
  for (const ExportedScale& scale : record.scales) {
    for (size_t i = 0; i < scale.raw.size(); ++i) count += scale.raw[i] != scale.used[i] ? 1 : 0;
  }
  return count;
}

void print_result(const ExportArgs& args, const ExportRecord& record, const LaunchLine& launch,
                  const Verification& check, bool is_kept) {
  const size_t rounded = num_rounded(record);
  if (args.json) {
    nlohmann::ordered_json out = {{"out", args.out},
                                  {"kept", is_kept},
                                  {"form", record.form},
                                  {"target", record.target},
                                  {"layout", record.layout},
                                  {"scales", record.scales.size()},
                                  {"changed_values", rounded},
                                  {"bf16_layers", record.bf16_layers},
                                  {"launch", launch.text},
                                  {"notes", launch.notes},
                                  {"warnings", json_warnings(check.findings)},
                                  {"verdict", check.verdict}};
    fmt::print("{}\n", out.dump(1));
    return;
  }
  fmt::print("{}: {} scales, {}, form {}, for {}\n", args.out, record.scales.size(), record.layout,
             record.form, record.target);
  if (rounded > 0) {
    fmt::print("{} values were changed on the way ({}{}{}): raw and written ones are in {}\n",
               rounded, args.exact ? "" : "rounded up to BF16",
               args.min_scale > 0 ? ", --min-scale" : "",
               is_shared(export_form(record.form)) ? ", one number for K and V: the larger" : "",
               kExportRecordFile);
  }
  fmt::print("read back under {}'s rules: {}\n{}", record.target, check.verdict,
             warnings_text(check.findings));
  if (!is_kept) {
    fmt::print("{} is not left behind: it would not serve these scales\n", args.out);
    return;
  }
  fmt::print("serve it with:\n  {}\n", launch.text);
  for (const std::string& note : launch.notes) fmt::print("  note: {}\n", note);
}

// A folder that this command made, removed again unless it is kept.
class MadeFolder {
 public:
  explicit MadeFolder(std::filesystem::path path) : path_(std::move(path)) {}
  ~MadeFolder() {
    std::error_code ignored;
    if (!is_kept_) std::filesystem::remove_all(path_, ignored);
  }
  MadeFolder(const MadeFolder&) = delete;
  MadeFolder& operator=(const MadeFolder&) = delete;

  void keep() { is_kept_ = true; }

 private:
  std::filesystem::path path_;
  bool is_kept_ = false;
};

int exit_code(const std::string& verdict) {
  if (verdict == "proven") return kExitAccept;
  return verdict == "not_provable" ? kExitInconclusive : kExitReject;
}

}  // namespace

LaunchLine launch_of(const ExportArgs& args, const ExportRecord& record) {
  // SGLang's scales are a file beside the model, which is served from where it lies.
  const bool serves_model = record.form == name(ExportForm::kSglangJson);
  return launch_line(find_target(args.target), {args.layout, record.bf16_layers, {}}, record.form,
                     serves_model ? model_path(args.model).string() : args.out, args.out);
}

Exported export_verified(const ExportArgs& args) {
  const TargetRow& row = find_target(args.target);
  const std::filesystem::path path = model_path(args.model);
  if (!std::filesystem::is_directory(path)) {
    throw UnsupportedError(fmt::format(
        "{}: expected a directory: of Hugging Face safetensors, of a legacy TensorRT-LLM "
        "checkpoint or of Edge-LLM graphs; engines read no KV scales from other files",
        path.string()));
  }
  const ScaleSet model = read_scales(path);
  expect_runs(args, row, model.geometry);
  expect_bf16_layers(args.bf16_layers, model.geometry);
  expect_needed(args, row);
  const ExportForm form = form_of(args, row, model);
  expect_form(form, row);
  const std::string hash = expect_model(args);
  const ScaleSet source = args.scales.empty() ? ScaleSet{} : read_scale_source(args.scales);

  ExportRequest request{path,
                        args.out,
                        form,
                        record_of(args, row, form, source),
                        "",
                        args.copy,
                        static_cast<int>(args.tp)};
  // A legacy checkpoint has a file per rank.
  if (form == ExportForm::kTensorRtLlmLegacy) {
    request.tp = std::max(1, static_cast<int>(model.files.read.size()));
  }
  request.record.model_sha256 = hash;
  expect_layers(request.record, model.geometry, args.scales);
  const LaunchLine launch = launch_of(args, request.record);
  request.record.launch = launch.words;
  request.card = card_of(request.record, launch.text);
  export_checkpoint(request);
  MadeFolder made(args.out);

  const ScaleSet written = read_scales(args.out);
  Exported out{request.record, launch,
               verify(written, written.record->scales, {std::string(row.name), "", request.tp})};
  if (out.is_kept()) made.keep();
  return out;
}

int run_export(const ExportArgs& args) {
  const Exported result = export_verified(args);
  print_result(args, result.record, result.launch, result.check, result.is_kept());
  return exit_code(result.check.verdict);
}

}  // namespace kv::cli
