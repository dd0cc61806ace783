#pragma once

#include <span>
#include <string_view>

/// English words that generated texts are made of: common ones, which every tokenizer knows, and
/// free of digits, so that a number in a text is always a planted one. The order is part of the
/// generators' version.
namespace kv::word_lists {

std::span<const std::string_view> nouns();
std::span<const std::string_view> adjectives();
std::span<const std::string_view> verbs();         // past tense, with an object
std::span<const std::string_view> prepositions();  // of place
std::span<const std::string_view> repeated_sentences();

}  // namespace kv::word_lists
