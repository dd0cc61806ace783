#pragma once

#include "checkpoint/checkpoint.h"
#include "text/tokenizer.h"

namespace kv {

/// The tokenizer that the checkpoint brings: the metadata of a GGUF file, or tokenizer.json of a
/// directory. Throws IoError when there is no tokenizer.json, FormatError and UnsupportedError as
/// Tokenizer does, and FormatError when it has ids that the model's embedding has no row for.
Tokenizer load_tokenizer(const Checkpoint& checkpoint);

}  // namespace kv
