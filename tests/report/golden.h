#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>

namespace kv {

/// Holds a text against tests/golden/report/NAME. With KVSCALE_WRITE_GOLDEN set the file is written
/// instead, to be read and committed by a person.
inline void expect_golden(const std::string& name, const std::string& text) {
  const std::string path = std::string(KV_SOURCE_DIR) + "/tests/golden/report/" + name;
  if (std::getenv("KVSCALE_WRITE_GOLDEN") != nullptr) {
    std::ofstream(path, std::ios::binary) << text << '\n';
    GTEST_SKIP() << "wrote " << path;
  }
  std::ifstream file(path, std::ios::binary);
  ASSERT_TRUE(file) << path;
  std::stringstream expected;
  expected << file.rdbuf();
  EXPECT_EQ(text + '\n', expected.str()) << path;
}

}  // namespace kv
