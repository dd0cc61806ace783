#include "targets/question.h"

#include <gtest/gtest.h>

#include "kvscale/error.h"

namespace kv {
namespace {

TargetQuestion question(const std::string& layout, const std::string& device, int head_dim,
                        const std::string& engine = "") {
  TargetQuestion q;
  q.layout = layout;
  q.device = device;
  q.engine = engine;
  q.model.head_dim = head_dim;
  return q;
}

bool runs(const TargetQuestion& q) { return answer(q).front().runs; }

TEST(TargetQuestion, PerHeadScalesNeedFlashAttentionOnHopperOrBlackwell) {
  EXPECT_TRUE(runs(question("fp8_head", "h100", 128)));
  EXPECT_TRUE(runs(question("fp8_head", "b200", 128)));
  EXPECT_FALSE(runs(question("fp8_head", "b200", 256))) << "FlashAttention 4 stops at 128 there";
  EXPECT_FALSE(runs(question("fp8_head", "l4", 128)));
  EXPECT_FALSE(runs(question("fp8_head", "cpu", 64)));
  EXPECT_FALSE(runs(question("fp8_head", "h100", 128, "sglang")));
}

TEST(TargetQuestion, HeadSizes) {
  EXPECT_TRUE(runs(question("fp8_tensor", "h100", 80, "vllm:flash_attn3")));
  EXPECT_FALSE(runs(question("fp8_tensor", "h100", 512, "vllm:flash_attn3")));
  EXPECT_FALSE(runs(question("fp8_tensor", "cpu", 80)));
  EXPECT_TRUE(runs(question("fp8_tensor", "cpu", 64)));
  EXPECT_TRUE(runs(question("fp8_tensor", "a100", 128))) << "FLASHINFER";
  EXPECT_FALSE(runs(question("fp8_tensor", "a100", 96, "vllm")));
}

// Case 99: Triton has no E4M3 below 8.9; case 108: one KV head of 256 is answered, not crashed
// into.
TEST(TargetQuestion, Case99And108AnswersWithReasons) {
  const auto old = answer(question("fp8_token_head", "a100", 128, "vllm:triton"));
  EXPECT_FALSE(old.front().runs);
  EXPECT_NE(old.front().reason.find("8.9"), std::string::npos) << old.front().reason;
  EXPECT_TRUE(runs(question("fp8_tensor", "h100", 256, "vllm:flashinfer")));
  for (const TargetAnswer& a : answer(question("fp8_head", "h100", 128))) {
    EXPECT_TRUE(a.runs || !a.reason.empty()) << a.target;
  }
}

TEST(TargetQuestion, LatentCachesAndUnknownNames) {
  TargetQuestion q = question("fp8_tensor", "h100", 576);
  q.model.is_mla = true;
  EXPECT_TRUE(runs(q));
  for (const TargetAnswer& a : answer(q)) EXPECT_NE(a.target, "vllm:flash_attn3");
  EXPECT_EQ(answer(q).front().math, "fp8") << "FLASHMLA quantizes Q";
  q.engine = "sglang";
  EXPECT_FALSE(runs(q)) << "nothing is known";
  q.engine = "";
  q.layout = "fp8_head";
  EXPECT_FALSE(runs(q)) << "one vector for all heads";
  q.layout = "fp8_ds_mla";
  EXPECT_FALSE(runs(q)) << "for models with an indexer";
  q.model.is_sparse_mla = true;
  EXPECT_TRUE(runs(q));
  q.model.is_sparse_mla = false;
  EXPECT_THROW(answer(question("fp8_ds_mla", "h100", 128)), ValueError);
  q.layout = "fp8_tensor";
  q.device = "cpu";
  EXPECT_FALSE(runs(q)) << "CPU_MLA stores 16 bit only";
  q.layout = "bf16";
  EXPECT_TRUE(runs(q)) << "case 96: the control can always run";
  EXPECT_THROW(answer(question("fp8", "h100", 64)), ValueError);
  EXPECT_THROW(answer(question("fp8_head", "h1000", 64)), ValueError);
  EXPECT_THROW(answer(question("fp8_head", "h100", 64, "llama.cpp")), ValueError);
}

}  // namespace
}  // namespace kv
