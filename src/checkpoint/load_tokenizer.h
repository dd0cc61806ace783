#pragma once

#include "checkpoint/checkpoint.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace kv {

/// The tokenizer that the checkpoint brings: the metadata of a GGUF file, or tokenizer.json of a
/// directory. Throws IoError when there is no tokenizer.json, FormatError and UnsupportedError as
/// Tokenizer does, and FormatError when it has ids that the model's embedding has no row for.
Tokenizer load_tokenizer(const Checkpoint& checkpoint);

/// What a chat template of the checkpoint sees as bos_token, eos_token, unk_token, pad_token, ...:
/// from tokenizer_config.json (a string, or an object with "content"), or the ids of a GGUF file.
/// Throws FormatError for a value of another form.
SpecialTokens load_special_tokens(const Checkpoint& checkpoint, const Tokenizer& tokenizer);

}  // namespace kv
