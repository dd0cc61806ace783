// What the benches of single ops need no card for: cases, tables, refusals.

#include "study/kernel_bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "kvscale/error.h"
#include "study/kernel_table.h"

namespace kv {
namespace {

KernelBenchOptions asked_for(KernelOp op) {
  KernelBenchOptions options;
  options.op = op;
  return options;
}

template <class ErrorType>
std::string refusal(const KernelBenchOptions& options) {
  try {
    options.cases();
  } catch (const ErrorType& error) {
    return error.what();
  }
  return "";
}

TEST(KernelBench, EveryFormatWithEveryCell) {
  EXPECT_EQ(asked_for(KernelOp::kDecode).cases().size(), 3u * 6);
  EXPECT_EQ(asked_for(KernelOp::kPrefill).cases().size(), 3u * 3);
  EXPECT_EQ(asked_for(KernelOp::kAppend).cases().size(), 3u * 7);
  KernelBenchOptions options = asked_for(KernelOp::kDecode);
  options.cells = {"8x8192", "1x15"};
  options.formats = {"e4m3_per_head"};
  options.is_hnd = true;
  const std::vector<KernelCase> cases = options.cases();
  ASSERT_EQ(cases.size(), 2u);
  EXPECT_EQ(cases[0].batch, 8);
  EXPECT_EQ(cases[0].tokens, 8192);
  EXPECT_EQ(cases[1].batch, 1);
  EXPECT_EQ(cases[1].tokens, 15);
  for (const KernelCase& c : cases) {
    EXPECT_EQ(c.format, Format::kE4m3PerHead);
    EXPECT_EQ(c.order, PageOrder::kHnd);
    EXPECT_EQ(c.num_q_heads, 32);
  }
}

TEST(KernelBench, Fp8MathIsTimedOnTheFormatsThatHaveIt) {
  KernelBenchOptions options = asked_for(KernelOp::kPrefill);
  options.is_fp8_math = true;
  for (const KernelCase& c : options.cases()) {
    EXPECT_EQ(c.format, Format::kE4m3PerTensor);
    EXPECT_TRUE(c.fp8_math);
  }
  options.formats = {"e4m3_per_tensor", "bf16"};
  EXPECT_NE(refusal<UnsupportedError>(options).find("needed bf16"), std::string::npos);
}

TEST(KernelBench, WhatIsNoCellIsRefused) {
  for (const char* cell : {"", "8", "x", "8x", "x8", "0x8", "8x0", "-1x8", "8x8x8", "8 x 8",
                           "1e3x8", "1x99999999999"}) {
    KernelBenchOptions options = asked_for(KernelOp::kDecode);
    options.cells = {"1x16", cell};
    const std::string text = refusal<ValueError>(options);
    EXPECT_NE(text.find("--cells"), std::string::npos) << cell << ": " << text;
    EXPECT_NE(text.find("found \"" + std::string(cell) + "\""), std::string::npos) << text;
  }
  for (const char* tokens : {"", "0", "-4", "1x16", "two", "16777217"}) {
    KernelBenchOptions options = asked_for(KernelOp::kAppend);
    options.cells = {tokens};
    EXPECT_NE(refusal<ValueError>(options).find("--tokens"), std::string::npos) << tokens;
  }
}

TEST(KernelBench, OptionsThatFitNothingAreNamed) {
  KernelBenchOptions format = asked_for(KernelOp::kDecode);
  format.formats = {"e4m3_per_tenser"};
  EXPECT_NE(refusal<ValueError>(format).find("did you mean e4m3_per_tensor?"), std::string::npos);
  KernelBenchOptions heads = asked_for(KernelOp::kDecode);
  heads.num_q_heads = 30;
  EXPECT_NE(refusal<ValueError>(heads).find("multiple of --kv-heads = 8, found 30"),
            std::string::npos);
  heads.op = KernelOp::kAppend;  // which has no query heads
  EXPECT_FALSE(heads.cases().empty());
  KernelBenchOptions cpu = asked_for(KernelOp::kDecode);
  cpu.device = "cpu";
  EXPECT_NE(refusal<UnsupportedError>(cpu).find("supported: cuda, needed cpu"), std::string::npos);
}

TEST(KernelBench, WithoutTheCardItSaysWhatHasOne) {
  try {
    prepare_kernel_bench();
  } catch (const UnsupportedError& error) {
    EXPECT_NE(std::string(error.what()).find("compute capability 9.0"), std::string::npos)
        << error.what();
    return;
  }
  GTEST_SKIP() << "this machine has the card";
}

KernelRow example(KernelOp op) {
  KernelRow row;
  row.of = asked_for(op).cases().at(1);
  row.kernel = "decode_cuda/sm90/bf16,bf16/nhd";
  row.median_us = 17.304;
  row.fastest_us = 17.12;
  row.p90_us = 17.441;
  row.bytes = 33554432;
  row.gbps = 1939.1;
  row.share_of_read_limit = 0.4129;
  row.tflops = 543.2;
  row.rms_error = 2.31e-3;
  row.worst_error = 9.04e-3;
  row.differing_bytes = 3;
  return row;
}

TEST(KernelTable, Markdown) {
  const KernelTable table(KernelOp::kDecode, TableStyle::kMarkdown);
  EXPECT_EQ(table.head(),
            "| batch | context | cache | q_heads | kv_heads | head_dim | median_us | fastest_us | "
            "p90_us | bytes | gbps | percent_of_read_limit | rms_error | worst_error | kernel |\n"
            "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | "
            "--- |\n");
  EXPECT_EQ(table.row(example(KernelOp::kDecode)),
            "| 1 | 8192 | bf16 | 32 | 8 | 128 | 17.30 | 17.12 | 17.44 | 33554432 | 1939 | 41.3 | "
            "2.3e-03 | 9.0e-03 | decode_cuda/sm90/bf16,bf16/nhd |\n");
}

TEST(KernelTable, CsvQuotesWhatHasCommas) {
  const KernelTable table(KernelOp::kAppend, TableStyle::kCsv);
  EXPECT_EQ(table.head(),
            "tokens,cache,kv_heads,head_dim,median_us,fastest_us,p90_us,bytes,gbps,"
            "percent_of_read_limit,differing_bytes,kernel\n");
  EXPECT_EQ(table.row(example(KernelOp::kAppend)),
            "8,bf16,8,128,17.30,17.12,17.44,33554432,1939,41.3,3,"
            "\"decode_cuda/sm90/bf16,bf16/nhd\"\n");
}

TEST(KernelTable, JsonHasNumbersAsNumbers) {
  const KernelTable table(KernelOp::kPrefill, TableStyle::kJson);
  EXPECT_EQ(table.head(), "");
  const auto row = nlohmann::json::parse(table.row(example(KernelOp::kPrefill)));
  EXPECT_EQ(row.at("tokens"), 8192);
  EXPECT_EQ(row.at("cache"), "bf16");
  EXPECT_EQ(row.at("tflops"), 543);
  EXPECT_EQ(row.at("median_us"), 17.30);
  EXPECT_EQ(row.at("rms_error"), 2.3e-3);
  EXPECT_EQ(row.at("kernel"), "decode_cuda/sm90/bf16,bf16/nhd");
  EXPECT_FALSE(row.contains("differing_bytes"));
}

TEST(KernelTable, TheMachineWithItsLimit) {
  EXPECT_EQ(machine_text({"NVIDIA H200", 13000, 4697.6}),
            "NVIDIA H200, CUDA 13.0, read limit 4698 GB/s (4 GiB)");
}

}  // namespace
}  // namespace kv
