#include "tests/text/golden.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text/utf8.h"

namespace kv {

std::string read_golden(const std::string& name) {
  const std::string path = std::string(KV_SOURCE_DIR) + "/tests/golden/text/" + name;
  std::ifstream in(path, std::ios::binary);
  std::stringstream content;
  content << in.rdbuf();
  if (!in || content.str().empty()) throw std::runtime_error(path + ": cannot be read");
  return content.str();
}

nlohmann::json load_golden(const std::string& name) {
  return nlohmann::json::parse(read_golden(name));
}

std::string bytes_of(const std::string& latin1) {
  std::string out;
  for (std::string_view rest = latin1; !rest.empty();) {
    const CodePoint c = first_code_point(rest);
    out.push_back(static_cast<char>(c.value));
    rest.remove_prefix(c.size);
  }
  return out;
}

const std::vector<std::string>& golden_strings() {
  static const std::vector<std::string> strings = [] {
    std::vector<std::string> out;
    for (const auto& text : load_golden("strings.json")) {
      out.push_back(bytes_of(text.get<std::string>()));
    }
    return out;
  }();
  return strings;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const auto byte = static_cast<uint8_t>(c);
    out += byte >= 0x20 && byte < 0x7F ? std::string(1, c) : fmt::format("\\x{:02x}", byte);
  }
  return out;
}

}  // namespace kv
