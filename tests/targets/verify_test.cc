// What was exported is proven, and every way of losing a scale on the way is noticed.

#include "targets/verify.h"

#include <gtest/gtest.h>

#include "checkpoint/scales/export_checkpoint.h"
#include "checkpoint/scales/export_scales.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace kv {
namespace {

namespace fs = std::filesystem;
using fixtures::ScaleFolder;

/// An export of four layers, made from scales of another directory.
class VerifyTest : public testing::Test {
 protected:
  void make(ExportForm form, const std::string& target, bool per_head = false,
            std::vector<int> bf16_layers = {}) {
    ScaleFolder source;
    source.scales("self_attn.k_scale", "self_attn.v_scale", "F32",
                  per_head ? std::vector<int64_t>{2, 1, 1} : std::vector<int64_t>{1});
    source.write(per_head ? fixtures::replaced(std::string(fixtures::kCtTensor), "tensor\",\"symm",
                                               "attn_head\",\"symm")
                          : std::string(fixtures::kCtTensor));
    ScaleFolder model;
    model.write();
    ScaleChoice choice;
    choice.per_head = per_head;
    ExportRequest request;
    request.model = model.path();
    request.out = out();
    request.form = form;
    request.record.form = name(form);
    request.record.target = target;
    request.record.layout = per_head ? "fp8_head" : "fp8_tensor";
    request.record.k_stage = "post_rope";
    request.record.bf16_layers = std::move(bf16_layers);
    request.record.scales = scales_for_export(read_scales(source.path()), choice);
    request.copy = true;  // the model lies in another scratch folder
    export_checkpoint(request);
  }
  fs::path out() const { return folder_ / "out"; }
  fs::path shard() const { return out() / "model-00002-of-00002.safetensors"; }

  Verification check(const std::string& target, int tp = 1) const {
    const ScaleSet set = read_scales(out());
    return verify(set, set.record->scales, {target, "", tp});
  }
  bool finds(const Verification& v, const std::string& id, const std::string& where) const {
    return std::ranges::any_of(
        v.findings, [&](const ScaleWarning& w) { return w.id == id && w.where == where; });
  }

  /// Replaces the shard of scales by one without, or with another value of, one tensor.
  void rewrite(const std::string& tensor, std::optional<float> value) {
    ScaleFolder again(0);
    const ScaleSet set = read_scales(out());
    for (const StoredScale& scale : set.scales) {
      if (scale.tensor != tensor) {
        again.tensor(scale.tensor, "F32", scale.shape, scale.values);
      } else if (value) {
        again.tensor(scale.tensor, "F32", scale.shape, {*value});
      }
    }
    fs::remove(shard());
    fixtures::write_file(shard(), again.shard.bytes());
  }

  fixtures::ScratchFolder folder_;
};

TEST_F(VerifyTest, Case01FourLayersTimesTwoScalesAreFoundWithTheirBits) {
  for (const auto& [form, target] :
       std::vector<std::pair<ExportForm, std::string>>{{ExportForm::kCompressedTensors, "vllm"},
                                                       {ExportForm::kCompressedTensors, "sglang"},
                                                       {ExportForm::kModelOpt, "vllm"},
                                                       {ExportForm::kModelOpt, "sglang"},
                                                       {ExportForm::kModelOpt, "edge-llm"}}) {
    make(form, target);
    const Verification v = check(target);
    EXPECT_EQ(v.verdict, "proven") << name(form) << " " << target;
    EXPECT_EQ(v.declared.size(), 8u);
    EXPECT_TRUE(v.findings.empty()) << v.findings.front().text;
    fs::remove_all(out());
  }
}

TEST_F(VerifyTest, Case01ADeletedTensorIsNamedNotDefaulted) {
  make(ExportForm::kCompressedTensors, "vllm");
  rewrite("model.layers.2.self_attn.v_scale", std::nullopt);
  const Verification v = check("vllm");
  EXPECT_EQ(v.verdict, "contradicted");
  EXPECT_TRUE(finds(v, "missing-side", "layer 2 v"));
  EXPECT_TRUE(finds(v, "differs", "layer 2 v"));
}

TEST_F(VerifyTest, OneBitContradicts) {
  make(ExportForm::kCompressedTensors, "vllm");
  rewrite("model.layers.1.self_attn.k_scale", std::nextafter(ScaleFolder::k_scale(1), 1.0f));
  const Verification v = check("vllm");
  EXPECT_EQ(v.verdict, "contradicted");
  EXPECT_TRUE(finds(v, "differs", "layer 1 k"));
  EXPECT_FALSE(finds(v, "differs", "layer 1 v"));
}

TEST_F(VerifyTest, AnEngineThatIgnoresThemContradicts) {
  make(ExportForm::kCompressedTensors, "vllm");
  EXPECT_EQ(check("edge-llm").verdict, "contradicted");
  EXPECT_EQ(check("tensorrt-llm").verdict, "contradicted");
}

TEST_F(VerifyTest, PerHeadForEveryDegreeOfTensorParallelism) {
  make(ExportForm::kCompressedTensors, "vllm", true);
  for (const int tp : {1, 2, 8}) {
    const Verification v = check("vllm", tp);
    EXPECT_EQ(v.verdict, "proven") << tp;
    EXPECT_EQ(v.observed.layers.at(0).k.ranks.size(), static_cast<size_t>(tp));
  }
  EXPECT_EQ(check("vllm:triton").verdict, "contradicted");
}

TEST_F(VerifyTest, Case17LayersKeptIn16BitAreNotCompared) {
  make(ExportForm::kCompressedTensors, "vllm", false, {0, 1});
  const Verification v = check("vllm");
  EXPECT_EQ(v.verdict, "proven");
  EXPECT_EQ(v.observed.layers.at(0).k.how, "16-bit");
  EXPECT_EQ(v.observed.layers.at(2).k.how, "used");
}

TEST_F(VerifyTest, Case40TheScaleDoesNotDependOnTensorParallelism) {
  make(ExportForm::kModelOpt, "vllm");
  for (const int tp : {1, 2, 4}) {
    const Verification v = check("vllm", tp);
    EXPECT_EQ(v.verdict, "proven");
    for (const std::vector<float>& rank : v.observed.layers.at(3).v.ranks) {
      EXPECT_EQ(rank, std::vector<float>{ScaleFolder::v_scale(3)});
    }
  }
}

}  // namespace
}  // namespace kv
