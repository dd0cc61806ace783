#include "endpoint/launched_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <thread>

#include "endpoint/http_client.h"
#include "kvscale/error.h"

namespace kv {
namespace {

using SteadyClock = std::chrono::steady_clock;

std::string shell_quoted(const std::string& word) {
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

/// All of `place` in `text`; how often it was there.
int replace_all(std::string& text, const std::string& place, const std::string& by) {
  int count = 0;
  for (size_t at = 0; (at = text.find(place, at)) != std::string::npos; at += by.size()) {
    text.replace(at, place.size(), by);
    ++count;
  }
  return count;
}

/// A failure with what the server printed last.
std::string with_log(const std::string& line, const std::string& what,
                     const std::filesystem::path& log) {
  constexpr size_t kTail = 1500;
  std::ifstream file(log, std::ios::binary | std::ios::ate);
  const auto size = static_cast<size_t>(std::max<std::streamoff>(file.tellg(), 0));
  const size_t from = size > kTail ? size - kTail : 0;
  file.seekg(static_cast<std::streamoff>(from));
  std::string tail(size - from, '\0');
  file.read(tail.data(), std::ssize(tail));
  return fmt::format("launch: {}: {}\n  log: {}, which ends with:\n{}", line, what, log.string(),
                     tail);
}

/// The child between fork and exec: only what is safe in a signal handler.
[[noreturn]] void become_server(const char* line, int log, int nothing) {
  ::setpgid(0, 0);
  ::prctl(PR_SET_PDEATHSIG, SIGTERM);  // nobody would stop it after us
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &standard, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  const bool has_streams = ::dup2(nothing, 0) == 0 && ::dup2(log, 1) == 1 && ::dup2(log, 2) == 2;
  if (has_streams) ::execl("/bin/sh", "sh", "-c", line, static_cast<char*>(nullptr));
  ::_exit(127);
}

}  // namespace

std::string filled_in(const LaunchCommand& launch, int port) {
  std::string line = launch.command, flags;
  for (const std::string& flag : launch.flags) {
    flags += (flags.empty() ? "" : " ") + shell_quoted(flag);
  }
  const auto expect_place = [&](const char* place) {
    if (line.find(place) != std::string::npos) return;
    throw ValueError(fmt::format("launch: expected the place {} in the command, found \"{}\"",
                                 place, launch.command));
  };
  expect_place("{model}");
  expect_place("{port}");
  if (!flags.empty()) expect_place("{flags}");
  // The model last: its name may hold anything.
  replace_all(line, "{port}", fmt::format("{}", port));
  replace_all(line, "{flags}", flags);
  replace_all(line, "{model}", shell_quoted(launch.model));
  return line;
}

int free_port() {
  const int listener = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  const bool is_bound = listener >= 0 && ::bind(listener, generic, size) == 0 &&
                        ::getsockname(listener, generic, &size) == 0;
  const int error = errno;
  if (listener >= 0) ::close(listener);
  if (!is_bound) throw IoError(fmt::format("launch: no free port: {}", std::strerror(error)));
  return ntohs(address.sin_port);
}

LaunchedServer::LaunchedServer(const LaunchCommand& launch, const std::function<void()>& check)
    : launch_(launch) {
  const int port = free_port();
  url_ = fmt::format("http://127.0.0.1:{}", port);
  line_ = filled_in(launch_, port);
  if (launch_.log.has_parent_path()) std::filesystem::create_directories(launch_.log.parent_path());
  const int log = ::open(launch_.log.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (log < 0) {
    throw IoError(
        fmt::format("{}: cannot be written: {}", launch_.log.string(), std::strerror(errno)));
  }
  const int nothing = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  pid_ = ::fork();
  if (pid_ == 0) become_server(line_.c_str(), log, nothing);
  const int error = errno;
  ::close(log);
  if (nothing >= 0) ::close(nothing);
  if (pid_ < 0) throw IoError(fmt::format("launch: no process: {}", std::strerror(error)));
  ::setpgid(pid_, pid_);  // here as well: whoever comes first
  try {
    wait_until_healthy(check);
  } catch (...) {
    stop();
    throw;
  }
}

LaunchedServer::~LaunchedServer() { stop(); }

void LaunchedServer::wait_until_healthy(const std::function<void()>& check) {
  HttpOptions options;
  options.url = url_;
  options.attempts = 1;
  options.connect_timeout = std::chrono::milliseconds(2'000);
  options.timeout = std::chrono::milliseconds(10'000);
  HttpClient http(options);
  const auto deadline = SteadyClock::now() + launch_.start_time;
  while (true) {
    check();
    expect_running();
    try {
      if (http.get(launch_.health_route).is_ok()) return;
    } catch (const IoError&) {  // nobody listens yet
    }
    if (SteadyClock::now() >= deadline) {
      const auto seconds = launch_.start_time.count() / 1000;
      // A slow machine says nothing about what the engine runs.
      throw Error(with_log(line_, fmt::format("not healthy within {} s", seconds), launch_.log));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
  }
}

bool LaunchedServer::has_exited() {
  siginfo_t info = {};
  // Not reaped: its number, and that of its group, stay its own until stop().
  const int rc = ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOWAIT | WNOHANG);
  return rc == 0 && info.si_pid == pid_;
}

void LaunchedServer::expect_running() {
  if (has_exited()) fail("the server has exited");
}

void LaunchedServer::stop() {
  if (pid_ <= 0) return;
  ::kill(-pid_, SIGTERM);
  const auto deadline = SteadyClock::now() + launch_.stop_time;
  while (!has_exited() && SteadyClock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  // Those of the group that outlive their shell, too.
  ::kill(-pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::string LaunchedServer::log() const {
  constexpr std::streamsize kMost = 4 << 20;
  std::ifstream file(launch_.log, std::ios::binary);
  std::string out(static_cast<size_t>(kMost), '\0');
  file.read(out.data(), kMost);
  out.resize(static_cast<size_t>(file.gcount()));
  return out;
}

void LaunchedServer::fail(const std::string& what) const {
  throw IoError(with_log(line_, what, launch_.log));
}

}  // namespace kv
