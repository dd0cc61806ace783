#pragma once

#include <string_view>

namespace kv {

/// kvscale's own text: what scan and decide run on when the user gives no prompts. Prose, code, a
/// table, numbers and a conversation, about 5,000 characters. Good enough to see which layers
/// break; a verdict on the user's own traffic needs the user's own prompts.
std::string_view own_text();

}  // namespace kv
