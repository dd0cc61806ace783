#include "text/added_tokens.h"

#include <algorithm>

#include "text/regex.h"
#include "text/utf8.h"
#include "text/white_space.h"

namespace kv {
namespace {

/// \w as Unicode TR18 has it: Alphabetic, marks, decimal digits, connectors and joiners.
bool is_word(CodePoint c) {
  static const Regex kWord("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200C}\\x{200D}]", "word class");
  std::string text;
  append_utf8(text, c.value);
  bool matched = false;
  RegexMatcher(kWord).for_each_segment(text, [&](Segment s) { matched |= s.is_match; });
  return matched;
}

bool touches_word(std::string_view text, size_t begin, size_t end) {
  return (begin > 0 && is_word(code_point_before(text, begin))) ||
         (end < text.size() && is_word(first_code_point(text.substr(end))));
}

}  // namespace

AddedTokenMatcher::AddedTokenMatcher() : nodes_(1) {}

void AddedTokenMatcher::add(const AddedToken& token) {
  if (token.content.empty()) return;
  uint32_t at = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<uint8_t>(c);
    const Node* next = child(nodes_[at], byte);
    if (next == nullptr) {
      nodes_[at].children.emplace_back(byte, static_cast<uint32_t>(nodes_.size()));
      nodes_.emplace_back();
      next = &nodes_.back();
    }
    at = static_cast<uint32_t>(next - nodes_.data());
  }
  if (nodes_[at].token >= 0) return;
  nodes_[at].token = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  begins_token_[static_cast<uint8_t>(token.content[0])] = true;
}

const AddedTokenMatcher::Node* AddedTokenMatcher::child(const Node& node, uint8_t byte) const {
  for (const auto& [label, index] : node.children) {
    if (label == byte) return &nodes_[index];
  }
  return nullptr;
}

const AddedToken* AddedTokenMatcher::longest_at(std::string_view text, size_t at) const {
  const AddedToken* longest = nullptr;
  const Node* node = &nodes_[0];
  for (; at < text.size(); ++at) {
    node = child(*node, static_cast<uint8_t>(text[at]));
    if (node == nullptr) break;
    if (node->token >= 0) longest = &tokens_[node->token];
  }
  return longest;
}

void AddedTokenMatcher::scan(std::string_view text,
                             const std::function<void(std::string_view)>& on_text,
                             const std::function<void(int32_t)>& on_token) const {
  size_t done = 0;  // bytes already given away; a right strip may carry it past the next match
  size_t at = 0;
  while (at < text.size()) {
    const AddedToken* token = nullptr;
    if (begins_token_[static_cast<uint8_t>(text[at])]) token = longest_at(text, at);
    if (token == nullptr) {
      ++at;
      continue;
    }
    size_t begin = at, end = at + token->content.size();
    at = end;
    if (token->is_single_word && touches_word(text, begin, end)) continue;
    if (token->strips_left) begin = skip_white_space_back(text, begin, std::min(done, begin));
    if (token->strips_right) end = skip_white_space(text, end);
    if (done < begin) on_text(text.substr(done, begin - done));
    on_token(token->id);
    done = end;
  }
  if (done < text.size()) on_text(text.substr(done));
}

}  // namespace kv
