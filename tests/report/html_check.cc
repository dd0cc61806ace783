#include "tests/report/html_check.h"

#include <algorithm>
#include <cctype>
#include <set>
#include <sstream>
#include <string_view>

namespace kv {
namespace {

class Checker {
 public:
  explicit Checker(std::string_view page) : rest_(page) {}

  std::vector<std::string> run() {
    if (!take("<!DOCTYPE html>")) fail("no doctype");
    while (!rest_.empty() && problems_.size() < 20) step();
    for (const std::string& tag : open_) fail("not closed: " + tag);
    for (const std::string& target : targets_) {
      if (!ids_.contains(target)) fail("no element has the id " + target);
    }
    return problems_;
  }

 private:
  void fail(const std::string& text) { problems_.push_back(text); }

  bool take(std::string_view what) {
    if (!rest_.starts_with(what)) return false;
    rest_.remove_prefix(what.size());
    return true;
  }

  std::string name() {
    size_t n = 0;
    while (n < rest_.size() &&
           (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 || rest_[n] == '-')) {
      ++n;
    }
    std::string out(rest_.substr(0, n));
    rest_.remove_prefix(n);
    return out;
  }

  void step() {
    if (take("</")) return close();
    if (take("<")) return element();
    const size_t end = std::min(rest_.find('<'), rest_.size());
    check_text(rest_.substr(0, end));
    rest_.remove_prefix(end);
  }

  void check_text(std::string_view text) {
    if (text.find('>') != std::string_view::npos) fail("bare > in text");
    for (size_t at = text.find('&'); at != std::string_view::npos; at = text.find('&', at + 1)) {
      const std::string_view entity = text.substr(at, text.find(';', at) - at + 1);
      static constexpr std::string_view kKnown[] = {"&lt;", "&gt;", "&amp;", "&quot;", "&#39;"};
      if (std::find(std::begin(kKnown), std::end(kKnown), entity) == std::end(kKnown)) {
        fail("bare & in text: " + std::string(text.substr(at, 12)));
      }
    }
  }

  void close() {
    const std::string tag = name();
    if (!take(">")) fail("no > after </" + tag);
    if (open_.empty() || open_.back() != tag) {
      return fail("</" + tag + "> closes " + (open_.empty() ? "nothing" : open_.back()));
    }
    open_.pop_back();
  }

  void element() {
    const std::string tag = name();
    static const std::set<std::string> kForbidden = {
        "script", "img", "iframe", "object", "embed", "link", "foreignObject", "base", "form"};
    if (tag.empty()) return fail("< without a name");
    if (kForbidden.contains(tag)) fail("element " + tag);
    std::set<std::string> seen;
    while (take(" ")) attribute(tag, seen);
    if (take("/>")) return;
    if (!take(">")) return fail("no > after <" + tag);
    open_.push_back(tag);
    if (tag == "style") {  // raw text, which must not need escaping
      const size_t end = std::min(rest_.find('<'), rest_.size());
      for (const char* loads : {"url(", "@import", "&"}) {
        if (rest_.substr(0, end).find(loads) != std::string_view::npos) {
          fail(std::string("style sheet with ") + loads);
        }
      }
      rest_.remove_prefix(end);
    }
  }

  void attribute(const std::string& tag, std::set<std::string>& seen) {
    const std::string key = name();
    if (key.empty() || !take("=\"")) return fail("attribute without a quoted value in " + tag);
    const size_t end = std::min(rest_.find('"'), rest_.size());
    const std::string value(rest_.substr(0, end));
    rest_.remove_prefix(std::min(end + 1, rest_.size()));
    check_text(value);
    if (value.find('<') != std::string::npos) fail("bare < in attribute " + key);
    if (!seen.insert(key).second) fail("attribute twice: " + key);
    if (key.starts_with("on")) fail("attribute " + key);
    if (key == "src" || key == "style" || key == "xlink") fail("attribute " + key);
    if (key == "id" && !ids_.insert(value).second) fail("id twice: " + value);
    if (key == "href") {
      if (value.starts_with("#")) {
        targets_.insert(value.substr(1));
      } else if (!value.starts_with("data:") || !seen.contains("download")) {
        fail("link out of the page: " + value);
      }
    }
    if (key == "aria-labelledby") {
      std::istringstream words(value);
      for (std::string word; words >> word;) targets_.insert(word);
    }
  }

  std::string_view rest_;
  std::vector<std::string> open_, problems_;
  std::set<std::string> ids_, targets_;
};

}  // namespace

std::vector<std::string> html_problems(const std::string& page) { return Checker(page).run(); }

}  // namespace kv
