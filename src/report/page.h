#pragma once

#include <functional>
#include <string>
#include <vector>

#include "report/markup.h"
#include "report/run_facts_text.h"

namespace kv {

/// One cell of an HTML table.
struct HtmlCell {
  std::string text;
  bool is_number = true;
  std::string record = {};  // id of a record: the cell links to it when `text` is not empty
  bool is_broken = false;   // anywhere, where the table would be too wide: folders, files
};

/// A row; `record` makes it the target of links to that record.
struct HtmlRow {
  std::vector<HtmlCell> cells;
  std::string record = {};
};

/// A table with a caption that scrolls sideways on narrow screens. The first cell of each row is
/// its heading.
void add_table(Markup& html, const std::string& caption, const std::vector<std::string>& heads,
               const std::vector<HtmlRow>& rows);

/// Names and values as a description list.
void add_facts(Markup& html, const FactList& facts);

/// Opens a section with its heading; the caller closes it.
void open_section(Markup& html, const std::string& id, const std::string& heading);

/// Links to sections, as a landmark.
void add_contents(Markup& html, const std::vector<std::pair<std::string, std::string>>& sections);

/// Opens a folded part with its summary; the caller closes it.
void open_details(Markup& html, const std::string& summary);

/// A whole page: one file, no network, no scripts, light and dark, narrow and wide, printable.
std::string make_page(const std::string& title, const std::function<void(Markup&)>& body);

}  // namespace kv
