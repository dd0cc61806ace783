#include "evaluate/command_check.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include "kvscale/error.h"

namespace kv {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void fail_command(std::string_view what) {
  throw IoError(fmt::format("check \"command\": {}: {}", what, std::strerror(errno)));
}

/// A descriptor that is closed at the end.
class Descriptor {
 public:
  Descriptor(int number, std::string_view what) : number_(number) {
    if (number_ < 0) fail_command(what);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() { ::close(number_); }
  int number() const { return number_; }

 private:
  int number_;
};

/// A file in memory: a pipe would make a command that ignores its input a case of its own, and one
/// that never reads a long one a deadlock.
void write_input(int file, std::string_view input) {
  while (!input.empty()) {
    const ssize_t written = ::write(file, input.data(), input.size());
    if (written < 0 && errno != EINTR) fail_command("cannot write the answer");
    if (written > 0) input.remove_prefix(static_cast<size_t>(written));
  }
  if (::lseek(file, 0, SEEK_SET) != 0) fail_command("cannot write the answer");
}

/// One more for the hard limit: at the soft one of processor time comes a signal of its own.
void limit(decltype(RLIMIT_AS) what, int64_t value) {
  const auto most = static_cast<rlim_t>(value);
  const rlimit both = {most, most + 1};
  ::setrlimit(what, &both);
}

/// The child between fork and exec, where a program with threads may only call what is safe in a
/// signal handler.
[[noreturn]] void become_shell(const char* command, int input, int nowhere,
                               const CommandLimits& limits) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);  // nobody would stop it after us
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  limit(RLIMIT_CORE, 0);
  limit(RLIMIT_AS, limits.memory_bytes);
  limit(RLIMIT_FSIZE, limits.file_bytes);
  limit(RLIMIT_CPU, limits.processors * (limits.time.count() / 1000 + 1));
  const bool has_streams =
      ::dup2(input, 0) == 0 && ::dup2(nowhere, 1) == 1 && ::dup2(nowhere, 2) == 2;
  if (::close_range(3, ~0u, 0) != 0) {  // a kernel before 5.9
    for (int number = 3; number < 4096; ++number) ::close(number);
  }
  if (has_streams) ::execl("/bin/sh", "sh", "-c", command, static_cast<char*>(nullptr));
  ::_exit(127);
}

/// Waits until the child has ended, without reaping it, so that its number is still its own; false
/// when its time is over.
bool has_ended(pid_t child, Clock::time_point deadline) {
  auto nap = std::chrono::microseconds(100);
  while (true) {
    siginfo_t info = {};
    const int rc = ::waitid(P_PID, static_cast<id_t>(child), &info, WEXITED | WNOWAIT | WNOHANG);
    if (rc != 0 && errno != EINTR) fail_command("cannot wait for the command");
    if (rc == 0 && info.si_pid == child) return true;
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(nap);
    nap = std::min(2 * nap, std::chrono::microseconds(5000));
  }
}

int reap(pid_t child) {
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) {
    if (errno != EINTR) fail_command("cannot wait for the command");
  }
  return status;
}

CommandResult result_of(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    if (number == SIGXCPU) return {CommandResult::End::kTimeOut, number, "out of processor time"};
    return {CommandResult::End::kSignal, number, ""};
  }
  const int code = WEXITSTATUS(status);
  if (code == 126) return {CommandResult::End::kNotRun, code, "the command may not be run"};
  if (code == 127) return {CommandResult::End::kNotRun, code, "the command was not found"};
  return {CommandResult::End::kExit, code, ""};
}

}  // namespace

CommandResult run_command(const std::string& command, std::string_view input,
                          const CommandLimits& limits) {
  const Descriptor file(::memfd_create("answer", MFD_CLOEXEC), "cannot hold the answer");
  write_input(file.number(), input);
  const Descriptor nowhere(::open("/dev/null", O_WRONLY | O_CLOEXEC), "cannot open /dev/null");
  const auto deadline = Clock::now() + limits.time;
  const pid_t child = ::fork();
  if (child < 0) fail_command("cannot start a process");
  if (child == 0) become_shell(command.c_str(), file.number(), nowhere.number(), limits);
  ::setpgid(child, child);  // here as well: whoever comes first
  const bool in_time = has_ended(child, deadline);
  ::kill(-child, SIGKILL);
  const int status = reap(child);
  if (in_time) return result_of(status);
  return {CommandResult::End::kTimeOut, SIGKILL,
          fmt::format("no end within {:g} s", static_cast<double>(limits.time.count()) / 1000)};
}

}  // namespace kv
