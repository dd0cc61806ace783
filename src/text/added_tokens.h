#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace kv {

/// A token that is recognised in the text itself, before it is split into words.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool is_special = false;
  bool is_single_word = false;  // only where no word character touches it
  bool strips_left = false;     // takes the white space before it along
  bool strips_right = false;
  bool is_normalized = false;  // looked for in the normalized text
};

/// Cuts a text at the added tokens: at every position the longest one, leftmost first.
class AddedTokenMatcher {
 public:
  AddedTokenMatcher();

  /// Where two have the same content, the first one added counts. Empty contents never match.
  void add(const AddedToken& token);

  /// Gives what lies between added tokens to `on_text` (never empty) and their ids to `on_token`.
  void scan(std::string_view text, const std::function<void(std::string_view)>& on_text,
            const std::function<void(int32_t)>& on_token) const;

 private:
  struct Node {
    int32_t token = -1;                                  // index into tokens_
    std::vector<std::pair<uint8_t, uint32_t>> children;  // byte -> node
  };

  /// The longest token at `at`, or nullptr.
  const AddedToken* longest_at(std::string_view text, size_t at) const;
  const Node* child(const Node& node, uint8_t byte) const;

  std::vector<AddedToken> tokens_;
  std::vector<Node> nodes_;
  std::array<bool, 256> begins_token_{};
};

}  // namespace kv
