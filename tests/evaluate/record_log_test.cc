#include "evaluate/record_log.h"

#include <gtest/gtest.h>

#include <limits>

#include "evaluate/generation.h"
#include "evaluate/record_fields.h"
#include "evaluate/record_json.h"
#include "kvscale/error.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
constexpr double kInfinity = std::numeric_limits<double>::infinity();

class RecordLogTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::temp_directory_path() / ("kvscale_record_log_" + std::to_string(::getpid()));
    fs::create_directories(folder_);
    path_ = folder_ / "records.jsonl";
    fs::remove(path_);
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string content() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void write(const std::string& text) const { std::ofstream(path_, std::ios::binary) << text; }

  fs::path folder_, path_;
};

/// Gives every field of a record a value of its own, so that two swapped fields show.
struct FieldFiller {
  int next = 1;
  void operator()(const char*, std::string& s) {
    s = "text \"" + std::to_string(next++) + "\"\n\u00e9";
  }
  void operator()(const char*, int64_t& n) { n = (int64_t{1} << 53) + next++; }
  void operator()(const char*, double& x) { x = 0.1 * next++; }
  void operator()(const char*, bool& b) { b = next++ % 2 == 0; }
  void operator()(const char*, std::vector<double>& v) {
    v = {1.0 / 3, kInfinity, -kInfinity, 0.1 * next++};
  }
  void operator()(const char*, std::vector<int64_t>& v) { v = {0, -1, next++, int64_t{1} << 40}; }
  void operator()(const char*, std::vector<float>& v) { v = {0.1f, 1e-45f, 3e38f, -0.0f, 7.0f}; }
  void operator()(const char*, std::vector<std::string>& v) { v = {"", "a", "layer 2: \u4e2d"}; }
};

template <class Record>
Record filled(int first) {
  Record record;
  FieldFiller filler{first};
  visit_fields(record, filler);
  return record;
}

template <class Record>
void expect_equal(const Record& expected, const Record& found) {
  visit_fields(expected, [&](const char* name, const auto& value) {
    size_t compared = 0;
    visit_fields(found, [&](const char* other, const auto& other_value) {
      if constexpr (std::is_same_v<decltype(value), decltype(other_value)>) {
        if (std::string(name) != other) return;
        EXPECT_EQ(value, other_value) << name;
        ++compared;
      }
    });
    EXPECT_EQ(compared, 1u) << name;
  });
}

/// A value that becomes whatever a field is.
struct Anything {
  template <class T>
  operator T() const;
};

/// How many fields an aggregate has: the most initialisers that it takes.
template <class T, class... Found>
constexpr size_t num_fields() {
  if constexpr (requires { T{Found{}..., Anything{}}; }) {
    return num_fields<T, Found..., Anything>();
  } else {
    return sizeof...(Found);
  }
}

template <class Record>
size_t num_visited() {
  Record record;
  size_t n = 0;
  visit_fields(record, [&](const char*, auto&) { ++n; });
  return n;
}

TEST(RecordFields, NoFieldIsForgotten) {
  EXPECT_EQ(num_visited<ExampleRecord>(), num_fields<ExampleRecord>());
  EXPECT_EQ(num_visited<GenerationRecord>(), num_fields<GenerationRecord>());
  EXPECT_EQ(num_visited<LogitRecord>(), num_fields<LogitRecord>());
  EXPECT_EQ(num_visited<RangeRecord>(), num_fields<RangeRecord>());
  EXPECT_EQ(num_visited<ArmRecord>(), num_fields<ArmRecord>());
  EXPECT_EQ(num_visited<AmaxRecord>(), num_fields<AmaxRecord>());
  EXPECT_EQ(num_visited<CalibrationRecord>(), num_fields<CalibrationRecord>());
  EXPECT_EQ(num_visited<CapacityRecord>(), num_fields<CapacityRecord>());
  EXPECT_EQ(num_visited<TimingRecord>(), num_fields<TimingRecord>());
  EXPECT_EQ(num_visited<SupportRecord>(), num_fields<SupportRecord>());
  EXPECT_EQ(num_visited<FactsRecord>(), num_fields<FactsRecord>());
  EXPECT_EQ(num_visited<ServedRecord>(), num_fields<ServedRecord>());
  EXPECT_EQ(num_visited<FirstTokenRecord>(), num_fields<FirstTokenRecord>());
  EXPECT_EQ(num_visited<CountErrorRecord>(), num_fields<CountErrorRecord>());
}

TEST_F(RecordLogTest, EveryKindComesBackAsItWas) {
  const auto example = filled<ExampleRecord>(100);
  const auto generation = filled<GenerationRecord>(150);
  const auto logit = filled<LogitRecord>(200);
  const auto range = filled<RangeRecord>(300);
  const auto arm = filled<ArmRecord>(400);
  const auto amax = filled<AmaxRecord>(450);
  const auto calibration = filled<CalibrationRecord>(500);
  const auto capacity = filled<CapacityRecord>(600);
  const auto timing = filled<TimingRecord>(650);
  const auto support = filled<SupportRecord>(700);
  const auto facts = filled<FactsRecord>(800);
  const auto served = filled<ServedRecord>(900);
  const auto first_token = filled<FirstTokenRecord>(1000);
  const auto count_error = filled<CountErrorRecord>(1100);
  {
    RecordLog log(path_);
    log.append(example);
    log.append(std::span(&generation, 1));
    log.append(logit);
    log.append(range);
    log.append(arm);
    log.append(amax);
    log.append(calibration);
    log.append(capacity);
    log.append(timing);
    log.append(support);
    log.append(facts);
    log.append(served);
    log.append(first_token);
    log.append(count_error);
  }
  const RecordLog log(path_);
  EXPECT_EQ(log.bytes_cut(), 0);
  EXPECT_TRUE(log.has(range.record_id));
  EXPECT_FALSE(log.has("another"));
  const Records read = read_records(path_);
  for (const Records* records : {&log.records(), &read}) {
    ASSERT_EQ(records->examples.size(), 1u);
    expect_equal(example, records->examples.at(0));
    expect_equal(generation, records->generations.at(0));
    expect_equal(logit, records->logits.at(0));
    expect_equal(range, records->ranges.at(0));
    expect_equal(arm, records->arms.at(0));
    expect_equal(amax, records->amaxes.at(0));
    expect_equal(calibration, records->calibrations.at(0));
    expect_equal(capacity, records->capacities.at(0));
    expect_equal(timing, records->timings.at(0));
    expect_equal(support, records->supports.at(0));
    expect_equal(facts, records->facts.at(0));
    expect_equal(first_token, records->first_tokens.at(0));
    expect_equal(count_error, records->count_errors.at(0));
  }
}

TEST_F(RecordLogTest, NonFiniteNumbersSurvive) {
  ArmRecord record;
  record.record_id = "a";
  record.nll = std::numeric_limits<double>::quiet_NaN();
  record.kld = kInfinity;
  record.kld_se = -kInfinity;
  record.same_top = -0.0;
  RecordLog(path_).append(record);
  const ArmRecord found = read_records(path_).arms.at(0);
  EXPECT_TRUE(std::isnan(found.nll));
  EXPECT_EQ(found.kld, kInfinity);
  EXPECT_EQ(found.kld_se, -kInfinity);
  EXPECT_TRUE(found.same_top == 0 && std::signbit(found.same_top));
}

TEST_F(RecordLogTest, RandomFloatsKeepTheirBits) {
  std::mt19937_64 random(3);
  LogitRecord record;
  record.record_id = "bits";
  while (record.kld_values.size() < 2000) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (std::isfinite(x)) record.kld_values.push_back(x);
  }
  RecordLog(path_).append(record);
  EXPECT_EQ(read_records(path_).logits.at(0).kld_values, record.kld_values);
}

TEST_F(RecordLogTest, ACrashAtEveryByteOfTheLastLineLosesThatLineOnly) {
  std::vector<ArmRecord> records(3);
  {
    RecordLog log(path_);
    for (size_t i = 0; i < records.size(); ++i) {
      records[i].record_id = "arm " + std::to_string(i);
      log.append(records[i]);
    }
  }
  const std::string whole = content();
  const size_t last = whole.rfind('\n', whole.size() - 2) + 1;
  for (size_t size = last; size < whole.size(); ++size) {
    write(whole.substr(0, size));
    EXPECT_EQ(read_records(path_).arms.size(), 2u);
    EXPECT_EQ(fs::file_size(path_), size) << "reading must not touch the file";
    RecordLog log(path_);
    ASSERT_EQ(log.arms().size(), 2u) << size;
    EXPECT_EQ(log.bytes_cut(), static_cast<int64_t>(size - last));
    EXPECT_FALSE(log.has("arm 2"));
    log.append(records[2]);
    EXPECT_EQ(content(), whole) << "torn at byte " << size;
  }
}

TEST_F(RecordLogTest, ABrokenLineThatIsNotTheLastIsAnError) {
  {
    RecordLog log(path_);
    ArmRecord record;
    record.record_id = "one";
    log.append(record);
    record.record_id = "two";
    log.append(record);
  }
  const std::string whole = content();
  const auto message_of = [&](const std::string& text) -> std::string {
    write(text);
    try {
      RecordLog log(path_);
    } catch (const FormatError& error) {
      EXPECT_EQ(content(), text) << "a refused file must not be touched";
      return error.what();
    }
    return "no error";
  };
  const auto replaced = [&](const std::string& from, const std::string& to) {
    std::string text = whole;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  const std::string file = path_.string();
  EXPECT_NE(message_of("torn\n" + whole).find(file + ": line 1: not JSON"), std::string::npos);
  EXPECT_NE(message_of(whole + "\n" + whole).find("line 3: not JSON"), std::string::npos);
  for (const std::string other : {"4", "6"}) {
    EXPECT_EQ(message_of(replaced("\"schema\":5", "\"schema\":" + other)),
              file + ": line 1: \"schema\": expected 5, found " + other);
  }
  EXPECT_NE(message_of(replaced("\"kind\":\"arm\"", "\"kind\":\"arms\"")).find("found \"arms\""),
            std::string::npos);
  EXPECT_EQ(message_of(replaced("\"tokens\":0", "\"tokens\":\"0\"")),
            file + ": line 1: \"tokens\": expected an integer, found \"0\"");
  EXPECT_EQ(message_of(replaced("\"tokens\":0,", "")), file + ": line 1: \"tokens\" is missing");
  EXPECT_EQ(message_of(replaced("\"tokens\":0", "\"tokens\":0,\"more\":1")),
            file + ": line 1: \"more\": not a field of kind \"arm\"");
  EXPECT_NE(message_of(replaced("\"two\"", "\"one\"")).find("\"one\" occurs twice"),
            std::string::npos);
  EXPECT_NE(message_of("[]\n").find("expected a JSON object"), std::string::npos);
  EXPECT_NE(message_of(replaced("\"nll\":0.0", "\"nll\":1e999")).find("line 1"), std::string::npos);
}

TEST(Generations, PartWhereTheFirstIdDiffers) {
  const auto compared = [](std::vector<int64_t> ids, std::vector<int64_t> control) {
    GenerationRecord a, b;
    a.ids = std::move(ids);
    b.ids = std::move(control);
    for (size_t i = 0; i < b.ids.size(); ++i) b.margins.push_back(0.5 + static_cast<double>(i));
    compare_with_control(a, b);
    return std::tuple(a.fdi, a.diverged, a.margin);
  };
  EXPECT_EQ(compared({7, 8, 9}, {7, 8, 9}), std::tuple(3, false, 0.0));
  EXPECT_EQ(compared({7, 8}, {7, 8, 9}), std::tuple(2, false, 0.0)) << "no more is known of it";
  EXPECT_EQ(compared({7, 8, 9}, {7}), std::tuple(1, false, 0.0));
  EXPECT_EQ(compared({7, 8, 9}, {7, 1, 9}), std::tuple(2, true, 1.5));
  EXPECT_EQ(compared({2}, {7, 1, 9}), std::tuple(1, true, 0.5)) << "it stopped at once";
  EXPECT_EQ(compared({}, {7}), std::tuple(0, false, 0.0));
  EXPECT_EQ(compared({7}, {}), std::tuple(0, false, 0.0));
  EXPECT_EQ(generation_record_id("E1", "bf16", "q", 0), "gen/E1/bf16/q");
  EXPECT_EQ(generation_record_id("E1", "bf16", "q", 3), "gen/E1/bf16/q#3");
}

TEST_F(RecordLogTest, MutatedFilesLoadOrThrow) {
  {
    RecordLog log(path_);
    log.append(filled<RangeRecord>(1));
    log.append(filled<LogitRecord>(50));
    log.append(filled<CalibrationRecord>(90));
  }
  const std::string whole = content();
  std::mt19937_64 random(5);
  size_t refused = 0;
  constexpr int kRounds = 5000;
  for (int round = 0; round < kRounds; ++round) {
    std::string text = whole;
    for (uint64_t edits = 1 + random() % 3; edits > 0; --edits) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 9);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 9));
          break;
      }
    }
    Records records;
    try {
      for (size_t begin = 0, end = 0; begin < text.size(); begin = end + 1) {
        end = std::min(text.find('\n', begin), text.size());
        add_record_from_json(text.substr(begin, end - begin), "line", records);
      }
    } catch (const FormatError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, kRounds / 10);
  EXPECT_LT(refused, kRounds);
}

TEST_F(RecordLogTest, IdsAreUniqueAndNotEmpty) {
  RecordLog log(path_);
  ExampleRecord example;
  EXPECT_THROW(log.append(example), ValueError);
  example.record_id = "x";
  log.append(example);
  ArmRecord arm;
  arm.record_id = "x";
  EXPECT_THROW(log.append(arm), ValueError);
  EXPECT_EQ(log.arms().size(), 0u);
  EXPECT_EQ(read_records(path_).examples.size(), 1u);
}

TEST_F(RecordLogTest, SeveralRecordsAreWrittenTogetherOrNotAtAll) {
  std::vector<ExampleRecord> records = {filled<ExampleRecord>(1), filled<ExampleRecord>(50)};
  records[0].record_id = "a";
  records[1].record_id = "b";
  {
    RecordLog log(path_);
    log.append(records);
    log.append(std::span<const ExampleRecord>());
    EXPECT_TRUE(log.has("a") && log.has("b"));
    const std::string before = content();
    records[0].record_id = "c";
    EXPECT_THROW(log.append(records), ValueError) << "b is there already";
    records[1].record_id = "c";
    EXPECT_THROW(log.append(records), ValueError) << "c is given twice";
    EXPECT_EQ(content(), before);
    EXPECT_FALSE(log.has("c"));
  }
  const Records found = read_records(path_);
  ASSERT_EQ(found.examples.size(), 2u);
  ExampleRecord expected = filled<ExampleRecord>(50);
  expected.record_id = "b";
  expect_equal(expected, found.examples[1]);
}

TEST_F(RecordLogTest, TextThatIsNotUtf8IsRefusedAndWritesNothing) {
  RecordLog log(path_);
  ExampleRecord example;
  example.record_id = "x";
  example.kernel = "\xff";
  EXPECT_THROW(log.append(example), ValueError);
  EXPECT_EQ(content(), "");
  EXPECT_FALSE(log.has("x"));
}

TEST_F(RecordLogTest, OneWriterAtATime) {
  RecordLog log(path_);
  EXPECT_THROW(RecordLog{path_}, IoError);
  EXPECT_TRUE(read_records(path_).arms.empty());
}

TEST_F(RecordLogTest, FilesThatCannotBeOpenedAreIoErrors) {
  EXPECT_THROW(read_records(path_), IoError);
  EXPECT_THROW(RecordLog(folder_ / "missing" / "records.jsonl"), IoError);
  EXPECT_THROW(RecordLog{folder_}, IoError);
  EXPECT_THROW(read_records(folder_), IoError);
}

/// docs/formats/run-folder.md is the files' documentation: no field without a word on it.
template <class Record>
void expect_documented(const std::string& page) {
  Record record;
  EXPECT_NE(page.find("`" + std::string(kind_of(record)) + "`"), std::string::npos);
  visit_fields(record, [&](const char* name, const auto&) {
    EXPECT_NE(page.find("`" + std::string(name) + "`"), std::string::npos)
        << kind_of(record) << ": " << name;
  });
}

TEST(Docs, NameEveryFieldOfEveryRecord) {
  std::ifstream file(std::string(KV_SOURCE_DIR) + "/docs/formats/run-folder.md");
  const std::string page{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(page.find("`schema` (`" + std::to_string(kRecordSchema) + "`"), std::string::npos);
  expect_documented<ExampleRecord>(page);
  expect_documented<GenerationRecord>(page);
  expect_documented<LogitRecord>(page);
  expect_documented<RangeRecord>(page);
  expect_documented<ArmRecord>(page);
  expect_documented<CalibrationRecord>(page);
  expect_documented<CapacityRecord>(page);
  expect_documented<TimingRecord>(page);
  expect_documented<SupportRecord>(page);
  expect_documented<FactsRecord>(page);
  expect_documented<ServedRecord>(page);
  expect_documented<FirstTokenRecord>(page);
  expect_documented<CountErrorRecord>(page);
}

}  // namespace
}  // namespace kv
