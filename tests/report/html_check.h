#pragma once

#include <string>
#include <vector>

namespace kv {

/// What is wrong with a page, one line each: elements that are not closed in order, attributes
/// without quotes or repeated, bare < & in text, unknown entities, ids that are there twice, links
/// and aria references to ids that are not there, anything that would be loaded from elsewhere, and
/// scripts. Strict: HTML that is no XML fails.
std::vector<std::string> html_problems(const std::string& page);

}  // namespace kv
