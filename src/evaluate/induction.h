#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "evaluate/example.h"
#include "evaluate/generators.h"

namespace kv {

/// The task in token ids: a random sequence, and for each question a few tokens of its second copy
/// that begins at one of `depths` and is to be continued. The questions' copies are as long as the
/// sequence together, so with one question it is the whole second copy.
///
/// pool    ids that are drawn from, uniformly
/// prefix  ids that stand first (BOS)
///
/// Context, question and answer have exactly `target` tokens. Throws UnsupportedError when the
/// length or the pool is too small for beginnings that occur once.
Document induction_document(const GeneratorOptions& options, std::span<const int32_t> pool,
                            std::span<const int32_t> prefix, int64_t target, int64_t index,
                            std::span<const double> depths);

}  // namespace kv
