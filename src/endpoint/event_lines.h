#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace kv {

/// Cuts a stream of server-sent events that arrives in pieces into the texts of its "data:" lines.
/// Comments, other fields and empty lines are passed over; a last line without an end does not
/// count.
class EventLines {
 public:
  /// Calls `event` for each whole data line; false from it ends, and is returned.
  bool take(std::string_view piece, const std::function<bool(std::string_view)>& event) {
    size_t begin = 0, from = rest_.size();  // what was there before holds no end of a line
    rest_ += piece;
    for (size_t end; (end = rest_.find('\n', from)) != std::string::npos; from = begin = end + 1) {
      std::string_view line(rest_.data() + begin, end - begin);
      if (line.ends_with('\r')) line.remove_suffix(1);
      if (!line.starts_with("data:")) continue;
      line.remove_prefix(5);
      if (line.starts_with(' ')) line.remove_prefix(1);
      if (!event(line)) return false;
    }
    rest_.erase(0, begin);
    return true;
  }

 private:
  std::string rest_;
};

}  // namespace kv
