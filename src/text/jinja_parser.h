#pragma once

#include <string_view>

#include "text/jinja_ast.h"

namespace kv::jinja {

/// A template's tree. Throws FormatError for what is no Jinja and UnsupportedError for what Jinja
/// has and kvscale does not (include, import, extends, block, ...), both with the line.
Body parse_template(std::string_view source);

}  // namespace kv::jinja
