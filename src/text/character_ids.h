#pragma once

#include <cstdint>
#include <vector>

namespace kv {

/// Code point -> id, in pages of 256.
class CharacterIds {
 public:
  CharacterIds() : page_of_(kPages, 0), ids_(kPageSize, -1) {}

  /// -1: none.
  int32_t find(uint32_t code_point) const {
    return ids_[page_of_[code_point / kPageSize] * kPageSize + code_point % kPageSize];
  }

  void insert(uint32_t code_point, int32_t id) {
    uint32_t& page = page_of_[code_point / kPageSize];
    if (page == 0) {  // the page of those that have none
      page = static_cast<uint32_t>(ids_.size() / kPageSize);
      ids_.resize(ids_.size() + kPageSize, -1);
    }
    ids_[page * kPageSize + code_point % kPageSize] = id;
  }

 private:
  static constexpr uint32_t kPageSize = 256, kPages = 0x110000 / kPageSize;
  std::vector<uint32_t> page_of_;
  std::vector<int32_t> ids_;
};

}  // namespace kv
