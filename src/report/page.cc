#include "report/page.h"

#include <fmt/format.h>

#include "report/page_style.h"

namespace kv {
namespace {

void add_cell(Markup& html, const HtmlCell& cell, bool is_heading) {
  Attributes attributes;
  if (is_heading) attributes.emplace_back("scope", "row");
  if (cell.is_number) attributes.emplace_back("class", "n");
  if (cell.is_broken) attributes.emplace_back("class", "b");
  html.open(is_heading ? "th" : "td", attributes);
  if (cell.record.empty()) {
    html.text(cell.text);
  } else {
    html.leaf("a", cell.text, {{"href", "#" + anchor_of(cell.record)}});
  }
  html.close();
}

}  // namespace

void add_table(Markup& html, const std::string& caption, const std::vector<std::string>& heads,
               const std::vector<HtmlRow>& rows) {
  // Not the table's own caption, which would be as wide as the table and scroll away with it.
  html.leaf("p", caption, {{"class", "caption"}});
  html.open("div",
            {{"class", "scroll"}, {"tabindex", "0"}, {"role", "region"}, {"aria-label", caption}});
  html.open("table", {{"aria-label", caption}});
  html.open("thead").open("tr");
  for (size_t c = 0; c < heads.size(); ++c) {
    const bool is_number = !rows.empty() && rows.front().cells[c].is_number;
    Attributes attributes = {{"scope", "col"}};
    if (is_number) attributes.emplace_back("class", "n");
    html.leaf("th", heads[c], attributes);
  }
  html.close().close().open("tbody");
  for (const HtmlRow& row : rows) {
    html.open("tr", row.record.empty() ? Attributes{} : Attributes{{"id", anchor_of(row.record)}});
    for (size_t c = 0; c < row.cells.size(); ++c) add_cell(html, row.cells[c], c == 0);
    html.close();
  }
  html.close().close().close();
}

void add_facts(Markup& html, const FactList& facts) {
  html.open("dl");
  for (const auto& [name, value] : facts) html.leaf("dt", name).leaf("dd", value);
  html.close();
}

void open_section(Markup& html, const std::string& id, const std::string& heading) {
  html.open("section", {{"id", id}, {"aria-labelledby", id + "-h"}});
  html.leaf("h2", heading, {{"id", id + "-h"}});
  html.note_section(id, heading);
}

void add_contents(Markup& html, const std::vector<std::pair<std::string, std::string>>& sections) {
  if (sections.empty()) return;
  html.open("nav", {{"aria-label", "Contents"}}).open("ul");
  for (const auto& [id, heading] : sections) {
    html.open("li").leaf("a", heading, {{"href", "#" + id}}).close();
  }
  html.close().close();
}

void open_details(Markup& html, const std::string& summary) {
  html.open("details").leaf("summary", summary);
}

std::string make_page(const std::string& title, const std::function<void(Markup&)>& body) {
  Markup html;
  html.open("html", {{"lang", "en"}}).open("head");
  html.empty("meta", {{"charset", "utf-8"}});
  html.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  // The page needs nothing but itself: a browser is told to load nothing else.
  html.empty("meta", {{"http-equiv", "Content-Security-Policy"},
                      {"content", "default-src 'none'; style-src 'unsafe-inline'"}});
  html.leaf("title", title).style_sheet(kPageStyle).close();
  html.open("body").open("main");
  body(html);
  html.close().close().close();
  return "<!DOCTYPE html>\n" + html.take();
}

}  // namespace kv
