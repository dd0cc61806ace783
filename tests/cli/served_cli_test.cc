// `decide` with servers: which options go together, and what a run loses that is killed.

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "tests/checkpoint/writers.h"
#include "tests/endpoint/fake_server.h"

namespace {

using kv::testing::FakeAnswer;
using kv::testing::FakeRequest;

class DecideServers : public testing::Test {
 protected:
  /// What `kvscale decide tiny ARGUMENTS` says on its way out with exit code 1.
  std::string refusal(const std::string& arguments) const {
    const std::string command = "cd " + folder_.path().string() +
                                " && rm -rf kvscale-decide-* && '" + KVSCALE "' decide tiny " +
                                arguments + " >stdout 2>stderr </dev/null";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1) << arguments;
    return kv::fixtures::read_file(folder_ / "stderr");
  }
  void expect_refusal(const std::string& arguments, const std::string& expected) const {
    const std::string found = refusal(arguments);
    EXPECT_NE(found.find(expected), std::string::npos) << arguments << ": " << found;
  }

  kv::fixtures::ScratchFolder folder_;
};

TEST_F(DecideServers, OptionsGoTogether) {
  const std::string both =
      "--control http://127.0.0.1:1 --candidate fp8_scale1=http://127.0.0.1:2 ";
  expect_refusal("--engine vllm", "--engine: expected --control and --candidate, or --launch");
  expect_refusal("--control http://127.0.0.1:1",
                 "expected --control URL and --candidate ARM=URL together, or --launch");
  expect_refusal(both + "--engine edge-llm", "expected vllm, sglang, tensorrt-llm or llama-server");
  expect_refusal(both + "--engine tgi", "target: expected one of");
  expect_refusal(both + "--candidate fp8_scale1=http://127.0.0.1:3",
                 "expected one of fp8_scale1, found two");
  expect_refusal(both + "--candidate fp8_tensor",
                 "expected ARM=URL, as fp8_tensor=http://host:8000");
  expect_refusal(both + "--candidate bf16=http://127.0.0.1:3", "expected a layout other than bf16");
  expect_refusal(both + "--candidate fp8_tensor/round=truncate=http://127.0.0.1:3",
                 "numerics and scales are the server's own");
  expect_refusal("--control ftp://host --candidate fp8_scale1=http://127.0.0.1:2",
                 "expected http://HOST:PORT or https://HOST, found \"ftp://host\"");
  expect_refusal("--launch 'serve {port} {flags}'", "expected the place {model}");
  expect_refusal("--launch 'serve {model} {port}'", "expected the place {flags}");
  expect_refusal(both + "--launch 'serve {model} {port} {flags}'",
                 "--launch starts the control too");
}

/// A llama-server that answers every question with the same wrong token, and can be told to fail.
class ScriptedServer {
 public:
  ScriptedServer() : server_([this](const FakeRequest& request) { return answer(request); }) {}
  std::string url() const { return server_.url(); }
  int answers() const { return answers_; }

  // Called before each answer with its number; what it returns, if anything, is sent instead.
  std::function<std::optional<FakeAnswer>(int number)> before =
      [](int) -> std::optional<FakeAnswer> { return std::nullopt; };

 private:
  FakeAnswer answer(const FakeRequest& request) {
    if (request.route != "/completion") return kv::testing::refused(404, "");
    if (auto instead = before(answers_ + 1)) return *instead;
    ++answers_;
    return kv::testing::ok(R"({"content":"x","tokens":[1],"stop_type":"limit"})");
  }
  std::atomic<int> answers_{0};
  kv::testing::FakeServer server_;
};

class KilledRuns : public testing::Test {
 protected:
  /// The exit code of `kvscale decide`, -1 when it was killed.
  int decide(const ScriptedServer& control, const ScriptedServer& candidate, const char* out) {
    const std::string folder = (folder_ / out).string();
    const std::string urls[] = {control.url(), "q8_0=" + candidate.url()};
    const char* words[] = {KVSCALE,
                           "decide",
                           "tiny",
                           "--engine",
                           "llama-server",
                           "--control",
                           urls[0].c_str(),
                           "--candidate",
                           urls[1].c_str(),
                           "--out",
                           folder.c_str(),
                           "--margin",
                           "quick",
                           "--buckets",
                           "128",
                           "--tasks",
                           "kv_recall",
                           "--documents",
                           "30",
                           "--questions",
                           "3",
                           "--concurrency",
                           "1",
                           nullptr};
    const pid_t child = ::fork();
    if (child == 0) {
      const int log = ::open((folder + ".log").c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
      ::dup2(log, 1);
      ::dup2(log, 2);
      ::execv(KVSCALE, const_cast<char**>(words));
      ::_exit(126);
    }
    child_ = child;
    int status = 0;
    ::waitpid(child, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  /// The verdict, ports left out.
  std::string decision(const char* out) const {
    std::string text = kv::fixtures::read_file(folder_ / out / "decision.json");
    const std::string host = "127.0.0.1:";
    for (size_t at = 0; (at = text.find(host, at)) != std::string::npos;) {
      at += host.size();
      text.erase(at, text.find_first_not_of("0123456789", at) - at);
    }
    return text;
  }

  /// Ids of answers in the run's records; each may be there once.
  size_t answers_on_record(const char* out) const {
    std::set<std::string> ids;
    std::ifstream file(folder_ / out / "records.jsonl");
    for (std::string line; std::getline(file, line);) {
      const auto json = nlohmann::json::parse(line);
      if (json.at("kind") != "example") continue;
      EXPECT_TRUE(ids.insert(json.at("record_id")).second) << line;
    }
    return ids.size();
  }

  kv::fixtures::ScratchFolder folder_;
  std::atomic<pid_t> child_{0};
};

constexpr int kProbes = 2;  // of the control: what it writes after kvscale's own text, twice

TEST_F(KilledRuns, LoseAtMostTheRequestInFlight) {
  ScriptedServer whole, candidate;
  ASSERT_EQ(decide(whole, candidate, "whole"), 10);  // CONTROL_FLOOR: nothing is right
  const int asked = whole.answers();
  ASSERT_GT(asked, 30);
  EXPECT_EQ(answers_on_record("whole"), static_cast<size_t>(asked - kProbes));

  // kvscale itself, in the middle of a document's questions.
  ScriptedServer killed;
  killed.before = [&](int number) -> std::optional<FakeAnswer> {
    if (number == 20) ::kill(child_.exchange(0), SIGKILL);
    if (number == 20) killed.before = [](int) { return std::optional<FakeAnswer>(); };
    return std::nullopt;
  };
  ASSERT_EQ(decide(killed, candidate, "killed"), -1);
  EXPECT_EQ(answers_on_record("killed"), 20u - 1 - kProbes);
  ASSERT_EQ(decide(killed, candidate, "killed"), 10);
  EXPECT_EQ(killed.answers(), asked + 1 + kProbes);  // the one in flight, and a new look
  EXPECT_EQ(answers_on_record("killed"), answers_on_record("whole"));
  EXPECT_TRUE(decision("killed") == decision("whole"));
}

TEST_F(KilledRuns, ADroppedConnectionIsAskedAgainAndCountsOnce) {
  ScriptedServer whole, candidate, dropping;
  ASSERT_EQ(decide(whole, candidate, "whole"), 10);
  std::atomic<int> drops{0};
  dropping.before = [&](int number) -> std::optional<FakeAnswer> {
    if ((number != 9 && number != 30) || drops++ % 2 == 1) return std::nullopt;
    return FakeAnswer{"HTTP/1.1 200 OK\r\nContent-Length: 900\r\n\r\n{\"con", true, ""};
  };
  ASSERT_EQ(decide(dropping, candidate, "dropping"), 10);
  EXPECT_EQ(drops, 4);
  EXPECT_EQ(dropping.answers(), whole.answers());
  EXPECT_EQ(answers_on_record("dropping"), answers_on_record("whole"));
  EXPECT_TRUE(decision("dropping") == decision("whole"));
}

TEST_F(KilledRuns, AServerThatIsGoneEndsTheRunAndItGoesOn) {
  ScriptedServer whole, candidate, broken;
  ASSERT_EQ(decide(whole, candidate, "whole"), 10);
  bool is_up = false;
  broken.before = [&](int number) -> std::optional<FakeAnswer> {
    if (is_up || number < 25) return std::nullopt;
    return kv::testing::refused(500, "out of order");
  };
  ASSERT_EQ(decide(broken, candidate, "broken"), 1);
  EXPECT_EQ(answers_on_record("broken"), 24u - kProbes);
  is_up = true;
  ASSERT_EQ(decide(broken, candidate, "broken"), 10);
  EXPECT_EQ(broken.answers(), whole.answers() + kProbes);
  EXPECT_TRUE(decision("broken") == decision("whole"));
}

TEST_F(DecideServers, TheKeyIsNeverTold) {
  const std::string both =
      "--control http://127.0.0.1:1 --candidate fp8_scale1=http://127.0.0.1:2 ";
  expect_refusal(both + "--api-key-env KVSCALE_NO_SUCH_KEY", "KVSCALE_NO_SUCH_KEY: expected a key");
  expect_refusal(both + "--api-key-env A --api-key-file B", "found both");
  std::ofstream(folder_ / "key") << "secret word\n";
  const std::string found = refusal(both + "--api-key-file key");
  EXPECT_NE(found.find("key: expected a key of printable characters without blanks"),
            std::string::npos)
      << found;
  EXPECT_EQ(found.find("secret"), std::string::npos);
}

}  // namespace
