#include "evaluate/record_log.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "evaluate/record_json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

[[noreturn]] void fail(const std::filesystem::path& path, std::string_view what) {
  throw IoError(fmt::format("{}: {}: {}", path.string(), what, std::strerror(errno)));
}

int open_file(const std::filesystem::path& path, int flags) {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, 0644);
  if (fd < 0) fail(path, "cannot open");
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode)) return fd;
  ::close(fd);
  throw IoError(fmt::format("{}: not a regular file", path.string()));
}

std::string read_all(int fd, const std::filesystem::path& path) {
  std::string content;
  std::array<char, 1 << 16> buffer;
  while (true) {
    const ssize_t got = ::read(fd, buffer.data(), buffer.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail(path, "cannot read");
    if (got == 0) return content;
    content.append(buffer.data(), static_cast<size_t>(got));
  }
}

/// Bytes up to and including the last newline.
size_t whole_lines(std::string_view content) {
  const size_t newline = content.rfind('\n');
  return newline == std::string_view::npos ? 0 : newline + 1;
}

/// Reads the whole lines of `content`; returns the ids, each of which may occur once.
std::unordered_set<std::string> parse_lines(std::string_view content,
                                            const std::filesystem::path& path, Records& records) {
  std::unordered_set<std::string> ids;
  for (size_t number = 1; !content.empty(); ++number) {
    const size_t end = content.find('\n');
    const std::string where = fmt::format("{}: line {}", path.string(), number);
    const std::string id = add_record_from_json(content.substr(0, end), where, records);
    if (!ids.insert(id).second) {
      throw FormatError(fmt::format("{}: \"record_id\": \"{}\" occurs twice", path.string(), id));
    }
    content.remove_prefix(end + 1);
  }
  return ids;
}

/// The name of a new file is on the disk only when its folder is.
void sync_folder(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.parent_path();
  const int fd = ::open(folder.empty() ? "." : folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) fail(path, "cannot open its folder");
  ::fsync(fd);  // some file systems refuse to sync a folder; their files are safe without
  ::close(fd);
}

struct FileCloser {
  int fd;
  ~FileCloser() { ::close(fd); }
};

}  // namespace

Records read_records(const std::filesystem::path& path) {
  const FileCloser file{open_file(path, O_RDONLY)};
  const std::string content = read_all(file.fd, path);
  Records records;
  parse_lines(std::string_view(content).substr(0, whole_lines(content)), path, records);
  return records;
}

RecordLog::RecordLog(std::filesystem::path path, std::string machine)
    : path_(std::move(path)), machine_(std::move(machine)) {
  fd_ = open_file(path_, O_RDWR | O_CREAT | O_APPEND);
  try {
    if (::flock(fd_, LOCK_EX | LOCK_NB) != 0) {
      throw IoError(fmt::format("{}: another process is writing this run", path_.string()));
    }
    load();
  } catch (...) {
    ::close(fd_);
    throw;
  }
}

RecordLog::~RecordLog() { ::close(fd_); }

void RecordLog::load() {
  const std::string content = read_all(fd_, path_);
  size_ = static_cast<int64_t>(whole_lines(content));
  const auto whole = std::string_view(content).substr(0, static_cast<size_t>(size_));
  ids_ = parse_lines(whole, path_, records_);
  bytes_cut_ = static_cast<int64_t>(content.size()) - size_;
  if (bytes_cut_ > 0 && ::ftruncate(fd_, size_) != 0) fail(path_, "cannot cut a torn last line");
  if (content.empty()) sync_folder(path_);
}

void RecordLog::write_lines(const std::string& lines) {
  std::string_view rest = lines;
  while (!rest.empty()) {
    const ssize_t written = ::write(fd_, rest.data(), rest.size());
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) break;
    rest.remove_prefix(static_cast<size_t>(written));
  }
  if (rest.empty() && ::fdatasync(fd_) == 0) {
    size_ += static_cast<int64_t>(lines.size());
    return;
  }
  const int reason = errno;
  // A torn line in the middle would make the file unreadable; at the end it is cut at the next
  // start.
  const bool is_restored = ::ftruncate(fd_, size_) == 0;
  errno = reason;
  fail(path_, is_restored ? "cannot write a record" : "cannot write a record, nor take it back");
}

void RecordLog::expect_new(const std::string& record_id) const {
  if (record_id.empty()) {
    throw ValueError(fmt::format("{}: \"record_id\": expected a name, found \"\"", path_.string()));
  }
  if (has(record_id)) {
    throw ValueError(
        fmt::format("{}: \"record_id\": \"{}\" is already there", path_.string(), record_id));
  }
}

template <class Record>
void RecordLog::append_to(std::vector<Record>& records, const Record& record) {
  expect_new(record.record_id);
  write_lines(record_to_json(record) + "\n");
  ids_.insert(record.record_id);
  records.push_back(record);
}

void RecordLog::append(const ExampleRecord& record) { append_to(records_.examples, record); }
void RecordLog::append(const LogitRecord& record) { append_to(records_.logits, record); }
void RecordLog::append(const RangeRecord& record) { append_to(records_.ranges, record); }
void RecordLog::append(const ArmRecord& record) { append_to(records_.arms, record); }
void RecordLog::append(const AmaxRecord& record) { append_to(records_.amaxes, record); }
void RecordLog::append(const CalibrationRecord& record) {
  append_to(records_.calibrations, record);
}
void RecordLog::append(const CapacityRecord& record) { append_to(records_.capacities, record); }
void RecordLog::append(const TimingRecord& record) { append_to(records_.timings, record); }
void RecordLog::append(const SupportRecord& record) { append_to(records_.supports, record); }
void RecordLog::append(const FactsRecord& record) { append_to(records_.facts, record); }
void RecordLog::append(const CountErrorRecord& record) { append_to(records_.count_errors, record); }
void RecordLog::append(const FirstTokenRecord& record) { append_to(records_.first_tokens, record); }
void RecordLog::append(const ServedRecord& record) { append_to(records_.served, record); }

template <class Record>
void RecordLog::append_all(std::vector<Record>& records, std::span<const Record> added) {
  if (added.empty()) return;
  std::string lines;
  std::unordered_set<std::string> ids;
  for (const Record& record : added) {
    expect_new(record.record_id);
    if (!ids.insert(record.record_id).second) {
      throw ValueError(fmt::format("{}: \"record_id\": \"{}\" is given twice", path_.string(),
                                   record.record_id));
    }
    lines += record_to_json(record) + "\n";
  }
  write_lines(lines);
  ids_.merge(ids);
  records.insert(records.end(), added.begin(), added.end());
}

void RecordLog::append(std::span<const ExampleRecord> records) {
  append_all(records_.examples, records);
}
void RecordLog::append(std::span<const GenerationRecord> records) {
  append_all(records_.generations, records);
}

bool RecordLog::has(std::string_view record_id) const {
  return ids_.contains(std::string(record_id));
}

}  // namespace kv
