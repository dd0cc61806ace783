#include <fmt/format.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <vector>

#include "cache/layout.h"
#include "report/numbers.h"
#include "report/plain_text.h"
#include "report/plan_report.h"
#include "report/run_facts_text.h"
#include "report/text_table.h"

namespace kv {
namespace {

/// Layers that are equal in geometry and format, as one term of the sum.
struct Term {
  LayerGeometry geometry;
  LayerFormat format;
  int64_t layers = 0;
};

bool is_same(const Term& a, const LayerGeometry& g, const LayerFormat& f) {
  return std::tie(a.geometry.num_kv_heads, a.geometry.head_dim, a.geometry.window,
                  a.geometry.latent_values, a.format.k, a.format.v) ==
         std::tie(g.num_kv_heads, g.head_dim, g.window, g.latent_values, f.k, f.v);
}

std::vector<Term> terms_of(const PlanInput& input, const PlanRow& row) {
  std::vector<Term> terms;
  for (size_t i = 0; i < input.layers.size(); ++i) {
    const auto known = std::find_if(terms.begin(), terms.end(), [&](const Term& term) {
      return is_same(term, input.layers[i], row.formats[i]);
    });
    if (known != terms.end()) {
      ++known->layers;
    } else {
      terms.push_back({input.layers[i], row.formats[i], 1});
    }
  }
  return terms;
}

int64_t kept_tokens(const PlanInput& input, const Term& term) {
  const int64_t window = term.geometry.window;
  return window > 0 ? std::min(window, input.context) : input.context;
}

std::string layers_text(int64_t layers) {
  return fmt::format("{} layer{}", layers, layers == 1 ? "" : "s");
}

/// "80 layers x 131,072 tokens x 8 heads", what codes and inline scales have in common.
std::string vectors_text(const PlanInput& input, const Term& term) {
  return fmt::format("{} x {} tokens x {} head{}", layers_text(term.layers),
                     grouped(kept_tokens(input, term)), term.geometry.num_kv_heads,
                     term.geometry.num_kv_heads == 1 ? "" : "s");
}

/// "27 layers x 32,768 tokens".
std::string latents_text(const PlanInput& input, const Term& term) {
  return fmt::format("{} x {} tokens", layers_text(term.layers), grouped(kept_tokens(input, term)));
}

/// "576 x 1 B", or with a part in BF16 "(512 x 1 + 64 x 2) B".
std::string latent_bytes_text(const Term& term) {
  const int64_t latent = term.geometry.latent_values, all = term.geometry.head_dim;
  if (term.format.k != Format::kE4m3PerTokenTile)
    return fmt::format("{} x {} B", all, value_bytes(term.format.k));
  return fmt::format("({} x 1 + {} x 2) B", latent, all - latent);
}

std::string joined(const std::vector<std::string>& parts) {
  return fmt::format("{}", fmt::join(parts, " + "));
}

std::string code_terms(const PlanInput& input, const PlanRow& row) {
  std::vector<std::string> parts;
  for (const Term& term : terms_of(input, row)) {
    if (term.geometry.latent_values > 0) {
      parts.push_back(latents_text(input, term) + " x " + latent_bytes_text(term));
      continue;
    }
    parts.push_back(fmt::format("{} x {} x ({} + {}) B", vectors_text(input, term),
                                term.geometry.head_dim, value_bytes(term.format.k),
                                value_bytes(term.format.v)));
  }
  return joined(parts);
}

std::string inline_terms(const PlanInput& input, const PlanRow& row) {
  std::vector<std::string> parts;
  for (const Term& term : terms_of(input, row)) {
    if (term.format.k == Format::kE4m3PerTokenTile) {
      parts.push_back(fmt::format("{} x {} tiles x 4 B", latents_text(input, term),
                                  term.geometry.latent_values / kLatentTile));
      continue;
    }
    const int sides = has_inline_scales(term.format.k) + has_inline_scales(term.format.v);
    if (sides > 0)
      parts.push_back(fmt::format("{} x {} sides x 4 B", vectors_text(input, term), sides));
  }
  return joined(parts);
}

std::string static_terms(const PlanInput& input, const PlanRow& row) {
  std::vector<std::string> parts;
  for (const Term& term : terms_of(input, row)) {
    for (const Format format : {Format::kE4m3PerTensor, Format::kE4m3PerHead}) {
      const int sides = (term.format.k == format) + (term.format.v == format);
      if (sides == 0) continue;
      if (term.geometry.latent_values > 0) {
        parts.push_back(layers_text(term.layers) + " x 4 B");
        continue;
      }
      const int64_t heads = format == Format::kE4m3PerHead ? term.geometry.num_kv_heads : 1;
      parts.push_back(fmt::format("{} x {} sides{} x 4 B", layers_text(term.layers), sides,
                                  heads == 1 ? "" : fmt::format(" x {} heads", heads)));
    }
  }
  return joined(parts);
}

/// One layout's terms, each with its value.
std::string formula_of(const PlanInput& input, const PlanRow& row, const TextStyle& style) {
  std::string out = paragraph(fmt::format("{}: codes = {} = {}", row.name, code_terms(input, row),
                                          format_bytes(row.bytes.code_bytes)),
                              style, 2);
  if (row.bytes.scale_bytes > 0) {
    out += "  ";
    out += paragraph(fmt::format("inline scales = {} = {}, {} of the codes",
                                 inline_terms(input, row), format_bytes(row.bytes.scale_bytes),
                                 format_percent(row.bytes.scale_bytes, row.bytes.code_bytes)),
                     {.width = style.width - 2}, 2);
  }
  if (row.bytes.static_scale_bytes > 0) {
    out += "  ";
    out += paragraph(fmt::format("static scales = {} = {}", static_terms(input, row),
                                 format_bytes(row.bytes.static_scale_bytes)),
                     {.width = style.width - 2}, 2);
  }
  return out;
}

std::string table_of(const PlanInput& input, const std::vector<PlanRow>& rows,
                     const TextStyle& style) {
  const std::vector<TextColumn> columns = {{"layout", false, true},
                                           {"codes", true, true},
                                           {"inline scales", true, true},
                                           {"static scales", true, true},
                                           {"total", true, true},
                                           {"B a token"},
                                           {"capacity"},
                                           {"fitting"}};
  std::vector<std::vector<TextCell>> cells;
  for (const PlanRow& row : rows) {
    cells.push_back({{row.name},
                     {format_bytes(row.bytes.code_bytes)},
                     {format_bytes(row.bytes.scale_bytes)},
                     {format_bytes(row.bytes.static_scale_bytes)},
                     {format_bytes(row.bytes.total_bytes())},
                     {grouped(row.bytes_per_token)},
                     {fixed(plan_gain(input, row, input.context), 5) + "x"},
                     {grouped(row.tokens_that_fit)}});
  }
  return text_table(columns, cells, style);
}

std::string block_text(const PlanInput& input, const std::vector<PlanRow>& rows) {
  const int64_t rounded = rows[0].blocks * input.block_size - input.context;
  return fmt::format(
      "Blocks of {} tokens: {} of them hold the {} tokens, {} slots stay empty. Tokens that fit: "
      "whole blocks in {}{}, static scales taken off first{}.",
      input.block_size, grouped(rows[0].blocks), grouped(input.context), grouped(rounded),
      format_bytes(plan_budget(input)),
      input.budget_bytes > 0 ? "" : " (what BF16 takes for this context)",
      std::any_of(input.layers.begin(), input.layers.end(),
                  [](const LayerGeometry& layer) { return layer.window > 0; })
          ? "; a pool allocates layers with a window in full, so windows are not applied to it"
          : "");
}

/// What a recurrent state leaves of the gain, by length.
std::string state_text(const PlanInput& input, const std::vector<PlanRow>& rows,
                       const TextStyle& style) {
  if (input.state_bytes == 0) return "";
  std::string out =
      "\n" +
      paragraph(
          fmt::format(
              "{} more keep a recurrent state of {} a sequence, which no layout changes; it is "
              "counted in the capacity above. Capacity by length:",
              layers_text(input.state_layers), format_bytes(input.state_bytes)),
          style);
  std::vector<TextColumn> columns = {{"layout", false, true}};
  std::vector<int64_t> lengths = {1024, 8192, 32768};
  for (const int64_t length : lengths) columns.push_back({grouped(length)});
  std::vector<std::vector<TextCell>> cells;
  for (const PlanRow& row : rows) {
    cells.push_back({{row.name}});
    for (const int64_t length : lengths)
      cells.back().push_back({fixed(plan_gain(input, row, length), 3) + "x"});
  }
  return out + text_table(columns, cells, style);
}

/// Where layers differ in size, the bytes of a page of each kind, and whether they divide.
std::string kinds_text(const PlanInput& input, const std::vector<PlanRow>& rows,
                       const TextStyle& style) {
  std::string out;
  for (const PlanRow& row : rows) {
    const std::vector<int64_t> kinds = page_kinds(input, row);
    if (kinds.size() < 2 || !row.is_uniform()) continue;
    const bool divides =
        std::ranges::all_of(kinds, [&](int64_t bytes) { return bytes % kinds.front() == 0; });
    std::vector<std::string> sizes;
    for (const int64_t bytes : kinds) sizes.push_back(grouped(bytes) + " B");
    out += paragraph(
        fmt::format("{}: blocks take {} by kind of layer{}", row.name, fmt::join(sizes, " and "),
                    divides ? ""
                            : ", which do not divide: an engine that keeps all layers in "
                              "pages of one size refuses them or pads"),
        style, 2);
  }
  return out.empty() ? "" : "\n" + out;
}

}  // namespace

std::string plan_text(const PlanInput& input, const TextStyle& style) {
  check_style(style);
  const std::vector<PlanRow> rows = plan_rows(input);
  std::string out = paragraph(
      fmt::format("KV cache of {}: {}, one sequence of {} tokens", printable(input.model),
                  layers_text(static_cast<int64_t>(input.layers.size())), grouped(input.context)),
      style);
  out += '\n';
  const bool has_latents = std::ranges::any_of(
      input.layers, [](const LayerGeometry& layer) { return layer.latent_values > 0; });
  out += paragraph(
      has_latents
          ? "bytes = sum over layers of tokens x (bytes of one vector, latent and turned key, "
            "whose "
            "beginning is V + inline scales) + static scales"
          : "bytes = sum over layers of min(tokens, window) x KV heads x (head_dim x (bytes of K + "
            "bytes of V) + inline scales) + static scales",
      style, 2);
  for (const PlanRow& row : rows) out += formula_of(input, row, style);
  out += '\n' + table_of(input, rows, style) + '\n' + paragraph(block_text(input, rows), style);
  out += state_text(input, rows, style) + kinds_text(input, rows, style);
  out.pop_back();
  return out;
}

}  // namespace kv
