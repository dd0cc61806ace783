#pragma once

#include <string_view>

#include "text/decoder.h"
#include "text/json_fields.h"
#include "text/tokenizer_impl.h"

namespace kv {

/// Reads the components of tokenizer.json. Each throws UnsupportedError naming the field and its
/// value for what is not served, FormatError for what is malformed.
void read_normalizer(const JsonField& field, TokenizerParts& parts);
void read_pre_tokenizer(const JsonField& field, TokenizerParts& parts);
void read_decoder(const JsonField& field, TokenizerParts& parts);

/// The `type` of a component.
const std::string& type_of(const JsonField& component);

/// UnsupportedError "<path>: "<found>" is not served; supported: <supported>".
[[noreturn]] void refuse_component(const JsonField& field, std::string_view found,
                                   std::string_view supported);

}  // namespace kv
