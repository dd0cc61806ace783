#pragma once

#include <string>
#include <string_view>

#include "text/pre_tokenizer.h"
#include "text/tokenizer_impl.h"

namespace kv {

/// The regular expressions of the families, in Oniguruma's syntax as their tokenizer.json files
/// have them.
extern const std::string_view kGpt2Pattern;
extern const std::string_view kLlama3Pattern;
extern const std::string_view kQwen2Pattern;

/// Each adds one step to parts.steps and its words to parts.pipeline. `where` is for messages.
void add_split(TokenizerParts& parts, std::string_view pattern, bool is_regex,
               SplitBehavior behavior, bool is_inverted, const std::string& where);
void add_digits(TokenizerParts& parts, bool individual);
void add_byte_level(TokenizerParts& parts, bool adds_prefix_space, bool uses_regex);
void add_metaspace(TokenizerParts& parts, const std::string& replacement, PrependScheme scheme,
                   bool splits);
void add_whitespace(TokenizerParts& parts);
void add_whitespace_split(TokenizerParts& parts);
void add_punctuation(TokenizerParts& parts, SplitBehavior behavior);

/// Adds a normalizer; `words` tell it from all others.
void add_normalizer(TokenizerParts& parts, NormalizerStep step, const std::string& words);

/// Normalizer and decoder of SentencePiece as GGUF's "llama" has it: spaces spelled U+2581, one put
/// before each text where `adds_prefix_space`, characters beyond the vocabulary spelled in bytes.
void add_sentencepiece(TokenizerParts& parts, bool adds_prefix_space);

}  // namespace kv
