#include "evaluate/command_check.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <thread>

#include "evaluate/scorers.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using End = CommandResult::End;

CommandLimits quick(int64_t ms = 5000) {
  CommandLimits limits;
  limits.time = std::chrono::milliseconds(ms);
  return limits;
}

CommandResult run(const std::string& command, std::string_view input = "",
                  const CommandLimits& limits = quick()) {
  return run_command(command, input, limits);
}

int exit_status(const std::string& command, std::string_view input = "") {
  const CommandResult result = run(command, input);
  EXPECT_EQ(result.end, End::kExit) << command << ": " << result.reason;
  return result.status;
}

size_t open_descriptors() {
  size_t out = 0;
  for ([[maybe_unused]] const auto& entry : fs::directory_iterator("/proc/self/fd")) ++out;
  return out;
}

/// A file that commands write to.
struct TemporaryFile {
  TemporaryFile() {
    static int number = 0;
    path = fs::temp_directory_path() /
           ("kvscale-command-" + std::to_string(::getpid()) + "-" + std::to_string(number++));
  }
  ~TemporaryFile() { fs::remove(path); }
  std::string text() const {
    std::ifstream file(path);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  fs::path path;
};

bool is_gone(pid_t process) {
  for (int attempt = 0; attempt < 200; ++attempt) {
    if (::kill(process, 0) != 0 && errno == ESRCH) return true;
    std::ifstream status("/proc/" + std::to_string(process) + "/stat");
    std::string number, name, state;
    status >> number >> name >> state;
    if (state == "Z") return true;  // killed; its new parent has not looked yet
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return false;
}

TEST(CommandCheck, TheExitStatusIsTheVerdict) {
  EXPECT_EQ(exit_status("true"), 0);
  EXPECT_EQ(exit_status("exit 3"), 3);
  EXPECT_EQ(exit_status("false"), 1);
}

TEST(CommandCheck, TheAnswerIsTheStandardInput) {
  EXPECT_EQ(exit_status("test \"$(cat)\" = 'f\u00fcnf'", "f\u00fcnf\n"), 0);
  EXPECT_EQ(exit_status("test \"$(wc -c)\" -eq 0", ""), 0);
  const std::string bytes("a\0b\xff\n", 5);
  EXPECT_EQ(exit_status("test \"$(wc -c)\" -eq 5", bytes), 0);
  // To be read again from the front, and by name.
  EXPECT_EQ(exit_status("head -c 1 >/dev/null; test \"$(cat /dev/stdin | wc -c)\" -ge 4", bytes),
            0);
}

TEST(CommandCheck, AnInputThatNobodyReadsIsNoTrouble) {
  const std::string large(8 << 20, 'x');
  EXPECT_EQ(exit_status("exit 0", large), 0);
  EXPECT_EQ(exit_status("head -c 10 >/dev/null", large), 0);
  EXPECT_EQ(exit_status("exec <&-; exit 4", large), 4);
}

TEST(CommandCheck, OutputOfAnySizeIsDropped) {
  EXPECT_EQ(exit_status("head -c 20000000 /dev/zero; head -c 2000000 /dev/zero >&2; exit 5"), 5);
}

TEST(CommandCheck, WhatCannotRunIsNotRun) {
  for (const char* command : {"no-such-program-anywhere", "/no/such/file", "/etc/passwd", "/etc"}) {
    const CommandResult result = run(command);
    EXPECT_EQ(result.end, End::kNotRun) << command;
    EXPECT_FALSE(result.reason.empty()) << command;
  }
}

TEST(CommandCheck, SyntaxErrorsAndCrashesAreWrongAnswers) {
  EXPECT_NE(exit_status("if then ("), 0);
  EXPECT_EQ(run("kill -SEGV $$").end, End::kSignal);
  EXPECT_EQ(run("kill -KILL $$").status, SIGKILL);
}

TEST(CommandCheck, TheWholeGroupEndsAtTheDeadline) {
  const TemporaryFile file;
  const auto before = std::chrono::steady_clock::now();
  const CommandResult result =
      run("(trap '' TERM INT; sleep 60) & echo $! > " + file.path.string() + "; sleep 60", "",
          quick(300));
  const auto took = std::chrono::steady_clock::now() - before;
  EXPECT_EQ(result.end, End::kTimeOut);
  EXPECT_EQ(result.reason, "no end within 0.3 s");
  EXPECT_LT(took, std::chrono::seconds(20));
  const pid_t child = std::stoi(file.text());
  EXPECT_TRUE(is_gone(child)) << child;
}

TEST(CommandCheck, ChildrenLeftBehindAreKilledAndDoNotHoldTheResult) {
  const TemporaryFile file;
  EXPECT_EQ(exit_status("sleep 60 & echo $! > " + file.path.string() + "; exit 7"), 7);
  EXPECT_TRUE(is_gone(std::stoi(file.text())));
}

TEST(CommandCheck, MemoryIsLimited) {
  CommandLimits limits = quick();
  limits.memory_bytes = 16 << 20;
  // A shell variable of 50 MB.
  const CommandResult result =
      run("x=$(head -c 50000000 /dev/zero | tr '\\0' y); test ${#x} -eq 50000000", "", limits);
  EXPECT_FALSE(result.end == End::kExit && result.status == 0);
  EXPECT_NE(result.end, End::kTimeOut);
  limits.memory_bytes = int64_t{4} << 30;
  EXPECT_EQ(
      run("x=$(head -c 200000 /dev/zero | tr '\\0' y); test ${#x} -eq 200000", "", limits).status,
      0);
}

TEST(CommandCheck, FilesAreLimited) {
  const TemporaryFile file;
  CommandLimits limits = quick();
  limits.file_bytes = 10000;
  run("head -c 50000 /dev/zero > " + file.path.string(), "", limits);
  EXPECT_LE(fs::file_size(file.path), 10000u);
}

TEST(CommandCheck, NoZombieAndNoDescriptorIsLeft) {
  const size_t before = open_descriptors();
  for (int i = 0; i < 20; ++i) run(i % 2 == 0 ? "exit 1" : "sleep 60 & exit 0");
  run("sleep 60", "", quick(20));
  EXPECT_EQ(open_descriptors(), before);
  EXPECT_EQ(::waitpid(-1, nullptr, WNOHANG), -1);
  EXPECT_EQ(errno, ECHILD);
}

TEST(CommandCheck, TheChildHasThreeDescriptorsAndNoSignalsBlocked) {
  const int extra = ::dup(1);  // not closed on exec
  ASSERT_GE(extra, 3);
  EXPECT_EQ(exit_status("for n in 3 4 5 6 7 8 9 11 12 13 14 15 " + std::to_string(extra) +
                        "; do test ! -e /proc/$$/fd/$n || exit 1; done"),
            0);
  ::close(extra);
  sigset_t blocked, before;
  ::sigemptyset(&blocked);
  ::sigaddset(&blocked, SIGTERM);
  ::sigprocmask(SIG_BLOCK, &blocked, &before);
  EXPECT_EQ(run("kill -TERM $$; exit 0").end, End::kSignal);
  ::sigprocmask(SIG_SETMASK, &before, nullptr);
}

TEST(CommandCheck, FromManyThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> statuses(8, -1);
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([i, &statuses] {
      for (int round = 0; round < 5; ++round) {
        statuses[static_cast<size_t>(i)] =
            run("exit $(cat)", std::to_string(i), quick(10000)).status;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int i = 0; i < 8; ++i) EXPECT_EQ(statuses[static_cast<size_t>(i)], i);
}

TEST(CommandCheck, ScoresAreRightWrongOrInvalid) {
  const auto scored = [](const std::string& command) {
    return score_text(Check::kCommand, "42", std::vector<std::string>{command});
  };
  EXPECT_EQ(scored("grep -q '^42$'").value, 1);
  EXPECT_TRUE(scored("grep -q 43").valid);
  EXPECT_EQ(scored("grep -q 43").value, 0);
  const Score missing = scored("no-such-program-anywhere --x");
  EXPECT_FALSE(missing.valid);
  EXPECT_EQ(missing.value, 0);
  EXPECT_EQ(missing.reason, "no-such-program-anywhere --x: the command was not found");
}

}  // namespace
}  // namespace kv
