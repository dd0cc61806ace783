#pragma once

#include <span>
#include <string>

#include "checkpoint/architecture.h"
#include "checkpoint/model_spec.h"
#include "checkpoint/stored_tensor.h"

namespace kv {

/// SHA-256 in hex over the specification (not its name) and over name, encoding, shape and bytes of
/// each tensor, in the order given. [tensors] goes with [required].
std::string content_sha256(const ModelSpec& spec, std::span<const RequiredTensor> required,
                           std::span<const StoredTensor* const> tensors);

}  // namespace kv
