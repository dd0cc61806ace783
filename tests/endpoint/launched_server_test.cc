#include "endpoint/launched_server.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <thread>

#include "endpoint/http_client.h"

namespace kv {
namespace {

// A server in a shell that has a child: what it serves is in its folder.
constexpr const char* kServe =
    "echo starting {flags}; python3 -m http.server --bind 127.0.0.1 --directory {model} {port} & "
    "wait";

class LaunchedServerTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    folder_ = std::filesystem::temp_directory_path() /
              (std::string("kvscale_launch_") + test->name() + std::to_string(::getpid()));
    std::filesystem::create_directories(folder_ / "it's here");
    std::ofstream(folder_ / "it's here" / "health") << "fine";
    launch_.command = kServe;
    launch_.model = (folder_ / "it's here").string();
    launch_.flags = {"--a", "b c"};
    launch_.log = folder_ / "logs" / "server.log";
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path folder_;
  LaunchCommand launch_;
};

bool is_group_alive(pid_t group) { return ::kill(-group, 0) == 0; }

TEST_F(LaunchedServerTest, RunsUntilItsEnd) {
  pid_t group = 0;
  {
    LaunchedServer server(launch_, [] {});
    group = server.pid();
    HttpOptions options;
    options.url = server.url();
    EXPECT_EQ(HttpClient(options).get("/health").body, "fine");
    EXPECT_NO_THROW(server.expect_running());
    EXPECT_TRUE(server.log().starts_with("starting --a b c\n")) << server.log();
  }
  // Killed processes of the group are reaped by init; that is soon.
  for (int i = 0; i < 200 && is_group_alive(group); ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  EXPECT_FALSE(is_group_alive(group));
}

TEST_F(LaunchedServerTest, ExitBeforeHealthShowsTheLog) {
  launch_.command = "echo no cache for you; : {model} {port} {flags}; exit 3";
  try {
    LaunchedServer server(launch_, [] {});
    FAIL();
  } catch (const IoError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("the server has exited"), std::string::npos) << text;
    EXPECT_NE(text.find("no cache for you"), std::string::npos) << text;
  }
}

TEST_F(LaunchedServerTest, NeverHealthyEnds) {
  launch_.command = "sleep 100; : {model} {port} {flags}";
  launch_.start_time = std::chrono::milliseconds(300);
  try {
    LaunchedServer server(launch_, [] {});
    FAIL();
  } catch (const IoError& error) {
    FAIL() << "an engine that is slow has not refused: " << error.what();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("not healthy within 0 s"), std::string::npos);
  }
}

TEST_F(LaunchedServerTest, WhoeverWaitsMayGiveUp) {
  launch_.command = "sleep 100; : {model} {port} {flags}";
  int calls = 0;
  const auto give_up = [&] {
    if (++calls == 2) throw ValueError("enough");
  };
  EXPECT_THROW(LaunchedServer(launch_, give_up), ValueError);
}

TEST_F(LaunchedServerTest, PlacesAreQuotedAndExpected) {
  launch_.command = "serve {model} {port} ${HOME} {flags}";
  EXPECT_EQ(filled_in(launch_, 80),
            "serve '" + folder_.string() + "/it'\\''s here' 80 ${HOME} '--a' 'b c'");
  launch_.command = "serve {model} {port}";
  EXPECT_THROW(filled_in(launch_, 80), ValueError);  // flags without a place
  launch_.flags.clear();
  EXPECT_NO_THROW(filled_in(launch_, 80));
  launch_.command = "serve {port}";
  EXPECT_THROW(filled_in(launch_, 80), ValueError);
  launch_.command = "serve {model}";
  EXPECT_THROW(filled_in(launch_, 80), ValueError);
}

}  // namespace
}  // namespace kv
