#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "checkpoint/hf_config.h"
#include "cli/console.h"
#include "cli/scale_args.h"
#include "cli/session.h"
#include "kvscale/error.h"
#include "report/text_table.h"
#include "targets/question.h"
#include "targets/targets.h"

namespace kv::cli {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr std::string_view kLayouts[] = {"fp8_scale1", "fp8_tensor", "fp8_head", "fp8_token_head"};

KvGeometry geometry_of(const std::string& model) {
  const std::filesystem::path path = model_path(model);
  if (std::filesystem::is_directory(path)) {
    const OrderedJson json = parse_json(read_text_file(path / "config.json"), "config.json");
    return read_kv_geometry(JsonFields(json, "config.json"));
  }
  const ModelSpec spec = Checkpoint::open(path)->spec();
  KvGeometry out;
  out.num_layers = spec.num_layers;
  out.num_kv_heads = spec.num_kv_heads;
  out.head_dim = spec.head_dim;
  return out;
}

OrderedJson json_row(const TargetRow& row) {
  OrderedJson layouts = OrderedJson::object();
  for (const auto part : {row.layouts, row.own_layouts}) {
    for (const LayoutSupport& l : part) {
      layouts[std::string(l.layout)] = {{"runs", l.supported}, {"math", l.math}, {"note", l.note}};
    }
  }
  return {{"target", row.name},     {"engine", row.engine},
          {"backend", row.backend}, {"version", row.versions},
          {"devices", row.devices}, {"head_dims", row.head_dims.text()},
          {"round", row.round},     {"layouts", std::move(layouts)},
          {"log", row.log},         {"source", row.source}};
}

int print_matrix(bool json) {
  if (json) {
    OrderedJson rows = OrderedJson::array();
    for (const TargetRow& row : targets()) rows.push_back(json_row(row));
    OrderedJson known = OrderedJson::array();
    for (const DeviceRow& device : devices()) {
      known.push_back({{"device", device.name},
                       {"compute_capability", device.compute_capability / 10.0},
                       {"e4m3_conversion", device.converts_fp8 ? "hardware" : "software"},
                       {"note", device.note}});
    }
    fmt::print("{}\n", OrderedJson({{"targets", rows}, {"devices", known}}).dump(1));
    return kExitAccept;
  }
  std::vector<TextColumn> columns = {{"target", false, false}, {"version", false, false}};
  for (const std::string_view layout : kLayouts)
    columns.push_back({std::string(layout), false, false});
  columns.push_back({"write", false, false});
  columns.push_back({"devices, head sizes", false, true});
  std::vector<std::vector<TextCell>> rows;
  for (const TargetRow& row : targets()) {
    std::vector<TextCell> cells = {{std::string(row.name), 0}, {std::string(row.versions), 0}};
    for (const LayoutSupport& l : row.layouts) {
      cells.push_back({l.supported ? fmt::format("math={}", l.math) : "no", 0});
    }
    cells.push_back({std::string(row.round), 0});
    cells.push_back({fmt::format("{}; {}", row.devices, row.head_dims.text()), 0});
    rows.push_back(std::move(cells));
  }
  TextStyle style = terminal_style();
  style.width = 130;  // eight columns do not fit into 100
  fmt::print("{}", text_table(columns, rows, style));
  return kExitAccept;
}

int print_answers(const std::vector<TargetAnswer>& answers, bool json) {
  const bool runs = !answers.empty() && answers.front().runs;
  if (json) {
    OrderedJson rows = OrderedJson::array();
    for (const TargetAnswer& a : answers) {
      rows.push_back(
          {{"target", a.target}, {"runs", a.runs}, {"math", a.math}, {"reason", a.reason}});
    }
    fmt::print("{}\n", OrderedJson({{"runs", runs}, {"targets", rows}}).dump(1));
    return runs ? kExitAccept : kExitReject;
  }
  fmt::print("{}\n", runs ? "yes" : "no");
  for (const TargetAnswer& a : answers) {
    fmt::print("  {:<24} {}{}{}\n", a.target, a.runs ? "runs, math=" + a.math : "no",
               a.reason.empty() ? "" : ": ", a.reason);
  }
  return runs ? kExitAccept : kExitReject;
}

}  // namespace

int run_targets(const TargetsArgs& args) {
  if (args.layout.empty()) {
    if (!args.model.empty() || !args.gpu.empty() || !args.engine.empty()) {
      throw ValueError("targets: expected --layout beside --model, --gpu or --engine");
    }
    return print_matrix(args.json);
  }
  TargetQuestion question{{}, args.layout, args.gpu, args.engine};
  if (!args.model.empty()) question.model = geometry_of(args.model);
  return print_answers(answer(question), args.json);
}

}  // namespace kv::cli
