// Holds every #include between rooms against the link lines: a room may include only what it links,
// links only rooms named before it in the root CMakeLists, and links nothing that it does not
// include.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;
const fs::path kSource = KV_SOURCE_DIR;

std::string read(const fs::path& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::vector<std::string> words(std::string text) {
  for (char& c : text) {
    if (c == '(' || c == ')' || c == '\n') c = ' ';
  }
  std::istringstream stream(text);
  return {std::istream_iterator<std::string>(stream), {}};
}

/// The rooms in the root CMakeLists' order.
std::vector<std::string> rooms_in_order() {
  const std::string text = read(kSource / "CMakeLists.txt");
  const size_t begin = text.find("foreach(room ") + 13;
  return words(text.substr(begin, text.find(')', begin) - begin));
}

std::set<std::string> linked_rooms(const std::string& room) {
  std::set<std::string> out;
  for (const std::string& word : words(read(kSource / "src" / room / "CMakeLists.txt"))) {
    if (word.starts_with("kv_") && word.find('.') == std::string::npos && word != "kv_" + room &&
        word != "kv_warnings")
      out.insert(word.substr(3));
  }
  return out;
}

std::set<std::string> included_rooms(const std::string& room,
                                     const std::vector<std::string>& rooms) {
  std::set<std::string> out;
  for (const auto& entry : fs::recursive_directory_iterator(kSource / "src" / room)) {
    if (!entry.is_regular_file()) continue;
    std::istringstream lines(read(entry.path()));
    for (std::string line; std::getline(lines, line);) {
      if (!line.starts_with("#include \"")) continue;
      const std::string target = line.substr(10, line.find('"', 10) - 10);
      const std::string first = target.substr(0, target.find('/'));
      if (first != room && std::find(rooms.begin(), rooms.end(), first) != rooms.end())
        out.insert(first);
    }
  }
  return out;
}

TEST(Layering, EveryIncludeIsOnTheLinkLineAndEveryLinkIsIncluded) {
  const auto rooms = rooms_in_order();
  ASSERT_GT(rooms.size(), 15u);
  size_t checked = 0;
  for (const std::string& room : rooms) {
    if (!fs::exists(kSource / "src" / room / "CMakeLists.txt")) continue;
    EXPECT_EQ(included_rooms(room, rooms), linked_rooms(room)) << "room " << room;
    ++checked;
  }
  EXPECT_GE(checked, 3u);
}

TEST(Layering, ArrowsOnlyPointDown) {
  const auto rooms = rooms_in_order();
  for (size_t i = 0; i < rooms.size(); ++i) {
    if (!fs::exists(kSource / "src" / rooms[i] / "CMakeLists.txt")) continue;
    for (const std::string& used : linked_rooms(rooms[i])) {
      const auto position = std::find(rooms.begin(), rooms.end(), used);
      EXPECT_LT(position - rooms.begin(), static_cast<long>(i)) << rooms[i] << " links " << used;
    }
  }
}

TEST(Layering, EveryFolderUnderSrcIsARoomOfTheList) {
  const auto rooms = rooms_in_order();
  for (const auto& entry : fs::directory_iterator(kSource / "src")) {
    EXPECT_NE(std::find(rooms.begin(), rooms.end(), entry.path().filename().string()), rooms.end())
        << entry.path();
  }
}

}  // namespace
