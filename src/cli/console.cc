#include "cli/console.h"

#include <fmt/core.h>
#include <omp.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>

#include "numeric/simd.h"

namespace kv::cli {
namespace {

using Clock = std::chrono::steady_clock;
const Clock::time_point kStart = Clock::now();

volatile std::sig_atomic_t stop_asked = 0;

extern "C" void ask_to_stop(int) {
  stop_asked = 1;
  std::signal(SIGINT, SIG_DFL);  // a second Ctrl-C is not asked for again
}

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(std::min(seconds, 1e6) + 0.5);
  if (s < 60) return fmt::format("{} s", s);
  return s < 3600 ? fmt::format("{} min {:02} s", s / 60, s % 60)
                  : fmt::format("{} h {:02} min", s / 3600, s / 60 % 60);
}

}  // namespace

ConsoleProgress::ConsoleProgress(std::string resume_hint)
    : resume_hint_(std::move(resume_hint)), on_terminal_(::isatty(STDERR_FILENO) == 1) {
  std::signal(SIGINT, ask_to_stop);
  std::signal(SIGTERM, ask_to_stop);
}

ConsoleProgress::~ConsoleProgress() {
  finish_line();
  std::signal(SIGINT, SIG_DFL);
  std::signal(SIGTERM, SIG_DFL);
}

void ConsoleProgress::update(std::string_view stage, int64_t done, int64_t total,
                             std::string_view unit) {
  const Clock::time_point now = Clock::now();
  if (stage != stage_) {
    finish_line();
    stage_ = stage;
    stage_start_ = now;
    last_shown_ = {};
    first_done_ = done;
  }
  const auto pause =
      on_terminal_ ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10000);
  if (now - last_shown_ < pause && done < total) return;
  last_shown_ = now;
  const double seconds = std::chrono::duration<double>(now - stage_start_).count();
  const double rate = seconds > 0 ? static_cast<double>(done - first_done_) / seconds : 0;
  std::string line = fmt::format("{}: {} of {} {}", stage, done, total, unit);
  if (rate > 0) {
    line += fmt::format(", {:.0f} {}/s, {} left", rate, unit,
                        duration(static_cast<double>(total - done) / rate));
  }
  if (on_terminal_) {
    fmt::print(stderr, "\r\033[K{}", line);
    line_open_ = true;
  } else {
    fmt::print(stderr, "{}\n", line);
  }
  std::fflush(stderr);
}

void ConsoleProgress::check() {
  if (stop_asked == 0) return;
  finish_line();
  throw Interrupted("stopped; " + resume_hint_);
}

void ConsoleProgress::finish_line() {
  if (line_open_) fmt::print(stderr, "\n");
  line_open_ = false;
}

TextStyle terminal_style() {
  TextStyle style;
  style.color = ::isatty(STDOUT_FILENO) == 1 && std::getenv("NO_COLOR") == nullptr;
  return style;
}

double seconds_since_start() {
  return std::chrono::duration<double>(Clock::now() - kStart).count();
}

int64_t peak_memory_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  std::string name = "unknown CPU";
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    name = line.substr(std::min(line.size(), line.find(':') + 2));
    break;
  }
  return name;
}

std::string machine_name() {
  return fmt::format("{}, {} threads, {}", cpu_name(), omp_get_max_threads(), active_simd_target());
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

void apply_machine_options(int64_t threads, const std::string& backend) {
  if (threads > 0) omp_set_num_threads(static_cast<int>(threads));
  if (!backend.empty()) force_simd_target(backend);
}

}  // namespace kv::cli
