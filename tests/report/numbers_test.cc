#include "report/numbers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kvscale/error.h"
#include "report/interval_chart.h"
#include "report/plain_text.h"
#include "report/text_table.h"

namespace kv {
namespace {

constexpr int64_t kMib = int64_t{1} << 20, kGib = int64_t{1} << 30;

TEST(FormatBytes, IsExact) {
  EXPECT_EQ(format_bytes(0), "0 B");
  EXPECT_EQ(format_bytes(640), "640 B");
  EXPECT_EQ(format_bytes(5120), "5,120 B");
  EXPECT_EQ(format_bytes(kMib - 1), "1,048,575 B");
  EXPECT_EQ(format_bytes(640 * kMib), "640 MiB");
  EXPECT_EQ(format_bytes(20 * kGib), "20 GiB");
  EXPECT_EQ(format_bytes(20 * kGib + 640 * kMib), "20.625 GiB");
  EXPECT_EQ(format_bytes(2146959360), "2,047.5 MiB");
  EXPECT_EQ(format_bytes(kGib << 10), "1 TiB");
}

TEST(FormatBytes, SaysWhenItRounds) {
  EXPECT_EQ(format_bytes(1234567), "~1.177 MiB (1,234,567 B)");
  EXPECT_EQ(format_bytes(20 * kGib + 640), "20 GiB + 640 B");
  EXPECT_EQ(format_bytes(std::numeric_limits<int64_t>::max()),
            "~8192 PiB (9,223,372,036,854,775,807 B)");
}

TEST(FormatPercent, IsExactOrSaysNot) {
  EXPECT_EQ(format_percent(640 * kMib, 20 * kGib), "3.125 %");
  EXPECT_EQ(format_percent(4, 64), "6.25 %");
  EXPECT_EQ(format_percent(4, 256), "1.5625 %");
  EXPECT_EQ(format_percent(1, 3), "~33.3333 %");
  EXPECT_EQ(format_percent(0, 7), "0 %");
  EXPECT_THROW(format_percent(1, 0), ValueError);
}

TEST(Numbers, FixedHasNoNegativeZeroAndNamesNonFinite) {
  EXPECT_EQ(fixed(-0.0004, 3), "0.000");
  EXPECT_EQ(fixed(-0.0006, 3), "-0.001");
  EXPECT_EQ(fixed(NAN, 3), "nan");
  EXPECT_EQ(fixed(-INFINITY, 3), "-inf");
  EXPECT_EQ(signed_fixed(0.0141, 3), "+0.014");
  EXPECT_EQ(signed_fixed(0.0001, 3), "0.000");
  EXPECT_EQ(signed_fixed(-2, 1), "-2.0");
}

TEST(Numbers, SignificantDigits) {
  EXPECT_EQ(significant(1.348, 3), "1.35");
  EXPECT_EQ(significant(0.0170, 3), "0.017");
  EXPECT_EQ(significant(1348, 3), "1348");
  EXPECT_EQ(significant(0.3, 6), "0.3");
  EXPECT_EQ(significant(1e-9, 3), "0");
  EXPECT_EQ(significant(0, 3), "0");
}

TEST(Numbers, RoundUpNeverGoesBelow) {
  EXPECT_DOUBLE_EQ(round_up(0.0187), 0.02);
  EXPECT_DOUBLE_EQ(round_up(0.02), 0.02);
  EXPECT_DOUBLE_EQ(round_up(0.0201), 0.03);
  EXPECT_DOUBLE_EQ(round_up(0.097), 0.1);
  EXPECT_EQ(round_up(0), 0);
}

TEST(Numbers, ListsJoinRunsOfThree) {
  const std::vector<int64_t> mixed = {0, 1, 2, 4, 8, 9};
  EXPECT_EQ(list_numbers(mixed), "0 to 2, 4, 8 and 9");
  EXPECT_EQ(compact_numbers(mixed), "0-2,4,8,9");
  EXPECT_EQ(list_numbers(std::vector<int64_t>{7}), "7");
  EXPECT_EQ(compact_numbers({}), "-");
  EXPECT_EQ(list_in_order(std::vector<int>{4, 0, 1}), "4, 0, 1");
}

TEST(LinearTicks, AreRoundAndInside) {
  EXPECT_EQ(linear_ticks(-5.5, 3.2, 5), (std::vector<double>{-4, -2, 0, 2}));
  EXPECT_EQ(linear_ticks(0, 1, 5).size(), 6u);
  for (double span : {1e-6, 0.037, 1.0, 123.0, 1e9}) {
    const std::vector<double> ticks = linear_ticks(-span / 3, span, 5);
    EXPECT_GE(ticks.size(), 3u) << span;
    EXPECT_LE(ticks.size(), 8u) << span;
  }
}

TEST(Printable, TakesThePowerFromControlCharacters) {
  EXPECT_EQ(printable("a\x1b[31mb\nc\td"), "a\xef\xbf\xbd[31mb c d");
  EXPECT_EQ(printable("\xff"), "\xef\xbf\xbd");
  EXPECT_EQ(printable("x\xe2\x80\xaey"), "x\xef\xbf\xbdy");  // right-to-left override
  EXPECT_EQ(printable("Ärger 日本"), "Ärger 日本");
}

TEST(Wrap, KeepsToTheWidthAndLosesNothing) {
  EXPECT_EQ(wrap("", 10), (std::vector<std::string>{""}));
  EXPECT_EQ(wrap("one two three", 7), (std::vector<std::string>{"one two", "three"}));
  EXPECT_EQ(wrap("one two three", 7, 2), (std::vector<std::string>{"one two", "  three"}));
  EXPECT_EQ(wrap("abcdefghij", 4), (std::vector<std::string>{"abcd", "efgh", "ij"}));
  EXPECT_EQ(wrap("日本語", 4), (std::vector<std::string>{"日本", "語"}));
  EXPECT_EQ(wrap("abcdefgh", 4, 2), (std::vector<std::string>{"abcd", "  ef", "  gh"}));
}

TEST(TextTable, WrapsOnlyWhereItMayAndKeepsTheWidth) {
  const std::string table = text_table({{"name", false, true}, {"n"}},
                                       {{{std::string(50, 'x')}, {"12,345"}}}, {.width = 30});
  EXPECT_EQ(table,
            "name                         n\n"
            "xxxxxxxxxxxxxxxxxxxxxx  12,345\n"
            "xxxxxxxxxxxxxxxxxxxxxx\n"
            "xxxxxx\n");
}

TEST(TextTable, NamesStayWholeWhileThereIsRoomElsewhere) {
  EXPECT_EQ(
      text_table({{"layout", false, true}, {"devices", false, true}},
                 {{{"fp8_token_head"}, {"Hopper and all that came after it"}}}, {.width = 24}),
      "layout          devices\n"
      "fp8_token_head  Hopper\n"
      "                and all\n"
      "                that\n"
      "                came\n"
      "                after it\n");
}

TEST(TextTable, ColourIsOnlyAddedWhenAsked) {
  const std::vector<std::vector<TextCell>> rows = {{{"bad", 31}}};
  EXPECT_EQ(text_table({{"x"}}, rows, {}), "  x\nbad\n");
  EXPECT_EQ(text_table({{"x"}}, rows, {.color = true}), "  x\n\x1b[31mbad\x1b[0m\n");
}

}  // namespace
}  // namespace kv
