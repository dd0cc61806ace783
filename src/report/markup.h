#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace kv {

/// Text made safe for HTML, inside elements and inside attributes: < > & " ' are escaped,
/// ill-formed UTF-8 and control characters become U+FFFD.
std::string escape_html(std::string_view text);

/// A record's id as the id of an element and the target of a link: letters, digits and - . _ : /
/// stay, every other byte becomes ~XX, so that different ids stay different. "" -> "~".
std::string anchor_of(std::string_view record_id);

using Attributes = std::vector<std::pair<std::string_view, std::string>>;

/// Writes HTML that is well formed as XML too: everything that was opened is closed in order, all
/// text and attribute values are escaped.
class Markup {
 public:
  /// Opens an element.
  Markup& open(std::string_view tag, const Attributes& attributes = {});
  /// Closes the innermost open element. Throws ValueError when there is none.
  Markup& close();
  Markup& text(std::string_view text);
  /// An element with text in it.
  Markup& leaf(std::string_view tag, std::string_view text, const Attributes& attributes = {});
  /// An element without content: <br/>.
  Markup& empty(std::string_view tag, const Attributes& attributes = {});
  /// A style sheet of the program's own, which must not contain '<' or '&'.
  Markup& style_sheet(std::string_view css);

  /// Remembers a section for a list of contents.
  void note_section(const std::string& id, const std::string& heading) {
    sections_.emplace_back(id, heading);
  }
  /// Ids and headings, in order.
  const std::vector<std::pair<std::string, std::string>>& sections() const { return sections_; }

  /// The document. Throws ValueError naming the innermost element that is still open.
  std::string take();

 private:
  void start(std::string_view tag, const Attributes& attributes);

  std::string out_;
  std::vector<std::string> open_;
  std::vector<std::pair<std::string, std::string>> sections_;
};

}  // namespace kv
