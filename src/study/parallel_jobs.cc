#include "study/parallel_jobs.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace kv {
namespace {

/// What the threads share.
struct Board {
  std::mutex mutex;
  std::condition_variable news;
  size_t next = 0, running = 0;  // running: threads that have not ended
  bool is_stopped = false;
  std::deque<size_t> finished;
  std::exception_ptr failure;

  void fail(std::exception_ptr what) {
    const std::lock_guard lock(mutex);
    if (!failure) failure = std::move(what);
    is_stopped = true;
  }
};

void work_until_done(const Jobs& jobs, Board& board) {
  while (true) {
    size_t mine = 0;
    {
      const std::lock_guard lock(board.mutex);
      if (board.is_stopped || board.next == jobs.count) break;
      mine = board.next++;
    }
    try {
      jobs.work(mine);
      const std::lock_guard lock(board.mutex);
      board.finished.push_back(mine);
    } catch (...) {
      board.fail(std::current_exception());
    }
    board.news.notify_one();
  }
  const std::lock_guard lock(board.mutex);
  --board.running;
  board.news.notify_one();
}

/// Takes what has finished until all threads have ended.
void take_finished(const Jobs& jobs, Board& board) {
  bool was_told = false;
  std::unique_lock lock(board.mutex);
  while (board.running > 0 || !board.finished.empty()) {
    board.news.wait_for(lock, std::chrono::milliseconds(200), [&] {
      return !board.finished.empty() || board.running == 0 || (board.is_stopped && !was_told);
    });
    std::deque<size_t> ready;
    ready.swap(board.finished);
    const bool must_tell = board.is_stopped && !was_told;
    lock.unlock();
    if (must_tell) {
      was_told = true;
      jobs.stop();
    }
    try {
      for (const size_t one : ready) jobs.done(one);
      if (!was_told) jobs.check();
    } catch (...) {
      board.fail(std::current_exception());
    }
    lock.lock();
  }
}

}  // namespace

void run_jobs(const Jobs& jobs) {
  Board board;
  std::vector<std::thread> threads;
  board.running = std::min(jobs.workers, jobs.count);
  for (size_t i = 0; i < std::min(jobs.workers, jobs.count); ++i) {
    threads.emplace_back([&] { work_until_done(jobs, board); });
  }
  take_finished(jobs, board);
  for (std::thread& one : threads) one.join();
  if (board.failure) std::rethrow_exception(board.failure);
}

}  // namespace kv
