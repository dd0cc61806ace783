#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace kv {

/// What a block has of one example, for telling whether another block has it too.
struct BlockExample {
  std::string block, id;
  std::string cluster;  // document, conversation or seed; empty: nothing is known
  std::span<const int32_t> tokens;
};

/// What two blocks share, the worst of it in one sentence that names the pair: an id, the very
/// tokens (by SHA-256), a cluster, or near-duplicates (near_duplicates.h); empty when they are
/// disjoint. Examples of one block may share anything. (Method 8.1)
std::string shared_by_blocks(std::span<const BlockExample> examples);

}  // namespace kv
