#pragma once

#include <chrono>
#include <string>

#include "report/text_style.h"
#include "study/progress.h"

namespace kv::cli {

/// Progress on standard error: one line that is rewritten on a terminal, a line every ten seconds
/// otherwise. Stops the work on the first Ctrl-C; a second one ends the process.
class ConsoleProgress : public Progress {
 public:
  explicit ConsoleProgress(std::string resume_hint);
  ~ConsoleProgress() override;
  ConsoleProgress(const ConsoleProgress&) = delete;
  ConsoleProgress& operator=(const ConsoleProgress&) = delete;

  void update(std::string_view stage, int64_t done, int64_t total, std::string_view unit) override;
  void check() override;

  /// Ends the rewritten line, so that other output starts on a line of its own.
  void finish_line();

 private:
  using Clock = std::chrono::steady_clock;
  std::string resume_hint_, stage_;
  Clock::time_point stage_start_, last_shown_;
  int64_t first_done_ = 0;
  bool on_terminal_, line_open_ = false;
};

/// Colour when standard output is a terminal and NO_COLOR is not set.
TextStyle terminal_style();

double seconds_since_start();
int64_t peak_memory_bytes();
std::string machine_name();

/// "AMD EPYC 9654": without what a command line may change.
std::string cpu_name();

/// "2026-01-31T12:00:00Z".
std::string utc_now();

/// Applies --threads and --backend. Throws UnsupportedError naming what the machine lacks.
void apply_machine_options(int64_t threads, const std::string& backend);

}  // namespace kv::cli
