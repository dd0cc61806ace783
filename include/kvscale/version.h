#pragma once

namespace kv {

inline constexpr const char* kVersion = "0.1.0";

}  // namespace kv
