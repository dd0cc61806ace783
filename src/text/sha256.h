#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kv {

/// SHA-256 of what is added piece by piece; every piece's length is part of it when it is added by
/// `add_field`, so that neighbouring fields cannot run into each other.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view bytes);
  void add_field(std::string_view bytes);

  /// The digest in lower-case hexadecimal; ends the use of this object.
  std::string hex();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::string_view bytes);

}  // namespace kv
