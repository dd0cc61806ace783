#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "evaluate/record.h"

namespace kv {

/// Version of the records' fields; a file with another one is refused.
inline constexpr int64_t kRecordSchema = 5;

/// All records of a run, by kind, in the order in which they were written.
struct Records {
  std::vector<ExampleRecord> examples;
  std::vector<GenerationRecord> generations;
  std::vector<LogitRecord> logits;
  std::vector<RangeRecord> ranges;
  std::vector<ArmRecord> arms;
  std::vector<AmaxRecord> amaxes;
  std::vector<CalibrationRecord> calibrations;
  std::vector<CapacityRecord> capacities;
  std::vector<TimingRecord> timings;
  std::vector<SupportRecord> supports;
  std::vector<FactsRecord> facts;
  std::vector<ServedRecord> served;
  std::vector<FirstTokenRecord> first_tokens;
  std::vector<CountErrorRecord> count_errors;
};

/// The records of a finished or interrupted run; the file is not touched. A last line without its
/// newline was torn by a crash and does not count. Throws IoError, and FormatError naming file,
/// line, field, expected and found for any other line that is not a record of this schema.
Records read_records(const std::filesystem::path& path);

/// The file that a run writes its records to: JSON Lines, one record a line with its kind and
/// schema. Append-only; a record counts once its newline is on the disk, so a run that was killed
/// at any byte continues from what it has.
///
/// NaN and infinities are written as the strings "nan", "inf" and "-inf".
class RecordLog {
 public:
  /// Opens or creates the file, reads what is there and cuts off a torn last line. Holds an
  /// exclusive lock while it lives: IoError when another process writes the same run. Otherwise
  /// throws as read_records does.
  /// `machine` is what runs now, for the records that name it.
  explicit RecordLog(std::filesystem::path path, std::string machine = "");
  ~RecordLog();
  RecordLog(const RecordLog&) = delete;
  RecordLog& operator=(const RecordLog&) = delete;

  /// Writes one line and syncs it before it returns. Throws ValueError when the record's id is
  /// empty or already there, IoError when the line cannot be written; then the file ends where it
  /// ended before.
  void append(const ExampleRecord& record);
  void append(const LogitRecord& record);
  void append(const RangeRecord& record);
  void append(const ArmRecord& record);
  void append(const AmaxRecord& record);
  void append(const CalibrationRecord& record);
  void append(const CapacityRecord& record);
  void append(const TimingRecord& record);
  void append(const SupportRecord& record);
  void append(const FactsRecord& record);
  void append(const ServedRecord& record);
  void append(const FirstTokenRecord& record);
  void append(const CountErrorRecord& record);
  /// Several lines, one sync: the answers to one document. All of them or none.
  void append(std::span<const ExampleRecord> records);
  void append(std::span<const GenerationRecord> records);

  /// Whether a record with this id was read or appended.
  bool has(std::string_view record_id) const;

  /// Records read and appended.
  size_t size() const { return ids_.size(); }

  const Records& records() const { return records_; }
  const std::vector<ExampleRecord>& examples() const { return records_.examples; }
  const std::vector<GenerationRecord>& generations() const { return records_.generations; }
  const std::vector<LogitRecord>& logits() const { return records_.logits; }
  const std::vector<RangeRecord>& ranges() const { return records_.ranges; }
  const std::vector<ArmRecord>& arms() const { return records_.arms; }
  const std::vector<AmaxRecord>& amaxes() const { return records_.amaxes; }
  const std::vector<CalibrationRecord>& calibrations() const { return records_.calibrations; }
  const std::vector<CapacityRecord>& capacities() const { return records_.capacities; }
  const std::vector<TimingRecord>& timings() const { return records_.timings; }
  const std::vector<SupportRecord>& supports() const { return records_.supports; }
  const std::vector<FactsRecord>& facts() const { return records_.facts; }
  const std::vector<ServedRecord>& served() const { return records_.served; }
  const std::vector<FirstTokenRecord>& first_tokens() const { return records_.first_tokens; }
  const std::filesystem::path& path() const { return path_; }
  const std::string& machine() const { return machine_; }

  /// Bytes of a torn last line that the constructor cut off.
  int64_t bytes_cut() const { return bytes_cut_; }

 private:
  template <class Record>
  void append_to(std::vector<Record>& records, const Record& record);
  template <class Record>
  void append_all(std::vector<Record>& records, std::span<const Record> added);
  void load();
  void expect_new(const std::string& record_id) const;
  void write_lines(const std::string& lines);

  std::filesystem::path path_;
  std::string machine_;
  int fd_ = -1;
  int64_t size_ = 0;
  int64_t bytes_cut_ = 0;
  Records records_;
  std::unordered_set<std::string> ids_;
};

}  // namespace kv
