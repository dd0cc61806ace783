#pragma once

#include <cstddef>
#include <functional>

namespace kv {

/// Runs `work(i)` for i in [0, count) on up to `workers` threads, in order of i, and `done(i)` on
/// the calling thread for each that is finished, in the order in which they finish. `check` is
/// called on the calling thread several times a second. What any of them throws ends the rest:
/// `stop` is called, the work under way is waited for, what of it was finished is still done, and
/// the first exception goes on to the caller.
struct Jobs {
  size_t count = 0;
  size_t workers = 1;
  std::function<void(size_t)> work, done;
  std::function<void()> check, stop;
};
void run_jobs(const Jobs& jobs);

}  // namespace kv
