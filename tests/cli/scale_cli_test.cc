// inspect, export, verify and targets as a person runs them: output, files, exit code.

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tests/checkpoint/scales/onnx_writer.h"
#include "tests/checkpoint/scales/scale_fixtures.h"

namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using kv::fixtures::ScaleFolder;

struct Result {
  int code = -1;
  std::string out, err;
};

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

class ScaleCli : public testing::Test {
 protected:
  Result run(const std::string& arguments) const {
    const std::string command = "cd " + folder_.path().string() + " && '" KVSCALE "' " + arguments +
                                " >stdout 2>stderr </dev/null";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1,
            kv::fixtures::read_file(folder_ / "stdout"),
            kv::fixtures::read_file(folder_ / "stderr")};
  }

  /// A directory of three layers with scales, and the same model without.
  void SetUp() override {
    ScaleFolder scaled(3), plain(3);
    scaled.scales("self_attn.k_scale", "self_attn.v_scale");
    scaled.write(kv::fixtures::kCtTensor);
    plain.write();
    fs::copy(scaled.path(), folder_ / "scaled", fs::copy_options::recursive);
    fs::copy(plain.path(), folder_ / "plain", fs::copy_options::recursive);
  }

  kv::fixtures::ScratchFolder folder_;
};

TEST_F(ScaleCli, HelpOfEveryCommandAnswers) {
  for (const std::string command : {"inspect", "export", "verify", "targets"}) {
    EXPECT_EQ(run(command + " --help").code, 0) << command;
    EXPECT_TRUE(has(run("").out, command));
  }
}

TEST_F(ScaleCli, InspectSaysHealthyDoubtfulBroken) {
  const Result healthy = run("inspect scaled");
  EXPECT_EQ(healthy.code, 0) << healthy.out << healthy.err;
  EXPECT_TRUE(has(healthy.out, "all 3 layers from checkpoint")) << healthy.out;
  EXPECT_TRUE(has(healthy.out, "named self_attn.k_scale")) << healthy.out;
  std::string config = kv::fixtures::read_file(folder_ / "scaled/config.json");
  kv::fixtures::write_file(folder_ / "scaled/config.json",
                           kv::fixtures::replaced(config, "static_minmax", "minmax"));
  EXPECT_EQ(run("inspect scaled").code, 10);
  kv::fixtures::write_file(folder_ / "scaled/config.json",
                           kv::fixtures::read_file(folder_ / "plain/config.json"));
  EXPECT_EQ(run("inspect scaled").code, 20);
  EXPECT_EQ(run("inspect absent").code, 1);
}

TEST_F(ScaleCli, InspectJsonHasTheDocumentedKeys) {
  const Json json = Json::parse(run("inspect scaled --json").out);
  EXPECT_EQ(json.at("health"), "healthy");
  EXPECT_EQ(json.at("warnings"), Json::array());
  ASSERT_EQ(json.at("scales").size(), 6u);
  const Json& first = json.at("scales").at(0);
  EXPECT_EQ(first.at("layer"), 0);
  EXPECT_EQ(first.at("side"), "k");
  EXPECT_EQ(first.at("values"), Json({0.25}));
  EXPECT_EQ(first.at("shape"), Json({1}));
  EXPECT_EQ(first.at("dtype"), "F32");
  EXPECT_EQ(first.at("file"), "model.safetensors");
  EXPECT_EQ(first.at("tensor"), "model.layers.0.self_attn.k_scale");
}

TEST_F(ScaleCli, InspectForAnEngine) {
  const Result used = run("inspect scaled --for vllm --json");
  EXPECT_EQ(used.code, 0);
  EXPECT_EQ(Json::parse(used.out).at("engine").at("outcome"), "used");
  const Result old = run("inspect scaled --for sglang --version 0.5.10");
  EXPECT_EQ(old.code, 20) << old.out;
  EXPECT_TRUE(has(old.out, "cache dtype auto becomes 16-bit")) << old.out;
  EXPECT_EQ(run("inspect scaled --for vllm --backend triton --tp 2").code, 0);
  const Result none = run("inspect scaled --for vlm");
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(has(none.err, "vllm:flash_attn3")) << none.err;
}

TEST_F(ScaleCli, ExportThenVerifyIsProven) {
  for (const std::string form : {"compressed-tensors", "modelopt"}) {
    const Result made =
        run("export plain --scales scaled --form " + form + " --out " + form + " --json");
    EXPECT_EQ(made.code, 0) << made.out << made.err;
    const Json json = Json::parse(made.out);
    EXPECT_EQ(json.at("verdict"), "proven");
    EXPECT_EQ(json.at("launch"), "vllm serve " + form + " --kv-cache-dtype fp8");
    const Result proof = run("verify " + form + " --json");
    EXPECT_EQ(proof.code, 0) << proof.out;
    const Json verified = Json::parse(proof.out);
    EXPECT_EQ(verified.at("verdict"), "proven");
    EXPECT_EQ(verified.at("declared").size(), 6u);
    const Json& fingerprint = verified.at("fingerprint");
    EXPECT_EQ(fingerprint.at("compared").at("numbers"), 6);
    EXPECT_EQ(fingerprint.at("model_checked_by"), "sizes and headers");
    EXPECT_EQ(fingerprint.at("scale_source"), "scaled");
    EXPECT_EQ(fingerprint.at("scales_sha256").get<std::string>().size(), 64u);
    EXPECT_EQ(fingerprint.at("rules"), "vllm:flash_attn3 0.32.0, executed");
    EXPECT_TRUE(verified.contains("observed"));
    EXPECT_EQ(run("verify " + form + " --against scaled").code, 0);
  }
  EXPECT_EQ(run("verify modelopt --for sglang").code, 0);
  EXPECT_EQ(run("verify modelopt --for tensorrt-llm").code, 20);
  EXPECT_EQ(run("verify scaled --for vllm").code, 10) << "no record, nothing to prove";
  EXPECT_EQ(run("verify scaled").code, 1) << "for which engine?";
}

TEST_F(ScaleCli, ExportOfOneNumberPerLayerIsReadAsJson) {
  const Result made = run("export plain --scales scaled --for sglang --form sglang-json --out j");
  EXPECT_EQ(made.code, 0) << made.out << made.err;
  EXPECT_TRUE(has(made.out, "--quantization-param-path j/kv_cache_scales.json")) << made.out;
  EXPECT_EQ(run("verify j").code, 0) << run("verify j").out;
}

// A scale file names the weights that it was made for; an export of it takes that over, and verify
// says so.
TEST_F(ScaleCli, TheFingerprintNamesWeightsAndScales) {
  ASSERT_EQ(run("export plain --scales scaled --out a").code, 0);
  ASSERT_EQ(run("export plain --scales scaled --out b --form modelopt").code, 0);
  ASSERT_EQ(run("export plain --scales scaled --out c --min-scale 0.5").code, 0);
  const auto scales = [&](const std::string& folder) {
    return Json::parse(run("verify " + folder + " --json").out)
        .at("fingerprint")
        .at("scales_sha256");
  };
  EXPECT_EQ(scales("a"), scales("b")) << "the same numbers in another form";
  EXPECT_NE(scales("a"), scales("c"));
  const Result against = run("verify scaled --for vllm --against scaled --json");
  const Json fingerprint = Json::parse(against.out).at("fingerprint");
  EXPECT_EQ(fingerprint.at("model_checked_by"), "nothing") << "no record";
  EXPECT_EQ(fingerprint.at("scales_sha256"), scales("a"));
  EXPECT_TRUE(has(run("verify a").out, "6 numbers compared")) << run("verify a").out;
}

TEST_F(ScaleCli, ExportLeavesNothingBehindWhenReadingBackFails) {
  const Result ranks = run("export plain --scales scaled --tp 3 --out x");
  EXPECT_EQ(ranks.code, 1);
  EXPECT_TRUE(has(ranks.err, "do not divide")) << ranks.err;
  EXPECT_FALSE(fs::exists(folder_ / "x"));
  const Result ignored =
      run("export plain --scales scaled --for edge-llm --form compressed-tensors --out x");
  EXPECT_EQ(ignored.code, 20) << ignored.out;
  EXPECT_TRUE(has(ignored.out, "not left behind")) << ignored.out;
  EXPECT_FALSE(fs::exists(folder_ / "x"));
  fs::create_directory(folder_ / "there");
  kv::fixtures::write_file(folder_ / "there/note", "mine");
  EXPECT_EQ(run("export plain --scales scaled --tp 3 --out there").code, 1);
  EXPECT_EQ(kv::fixtures::read_file(folder_ / "there/note"), "mine");
}

TEST_F(ScaleCli, ExportIntoALegacyCheckpointOfTensorRtLlm) {
  fs::create_directory(folder_ / "trt");
  kv::fixtures::write_file(
      folder_ / "trt/config.json",
      R"({"architecture":"LlamaForCausalLM","dtype":"bfloat16","num_hidden_layers":3,
          "num_attention_heads":4,"num_key_value_heads":2,"head_size":64,
          "quantization":{"quant_algo":null,"kv_cache_quant_algo":null}})");
  kv::fixtures::SafetensorsWriter rank;
  for (int layer = 0; layer < 3; ++layer) {
    rank.tensors.push_back({"transformer.layers." + std::to_string(layer) + ".attention.qkv.weight",
                            "BF16",
                            {1},
                            kv::fixtures::encoded({1}, "BF16")});
  }
  for (const char* file : {"trt/rank0.safetensors", "trt/rank1.safetensors"}) {
    kv::fixtures::write_file(folder_ / file, rank.bytes());
  }
  const Result made =
      run("export trt --scales scaled --for tensorrt-llm-legacy --out legacy --json");
  EXPECT_EQ(made.code, 0) << made.out << made.err;
  EXPECT_EQ(Json::parse(made.out).at("form"), "tensorrt-llm-legacy");
  EXPECT_EQ(run("verify legacy --tp 2").code, 0) << run("verify legacy --tp 2").out;
  EXPECT_TRUE(has(kv::fixtures::read_file(folder_ / "legacy/README.md"), "the larger of the two"));
  EXPECT_EQ(run("verify legacy --for tensorrt-llm").code, 20) << "its PyTorch backend reads none";
  const Result plain = run("export plain --scales scaled --for tensorrt-llm-legacy --out x");
  EXPECT_EQ(plain.code, 1);
  EXPECT_TRUE(has(plain.err, "rank*.safetensors")) << plain.err;
  const Result other = run("export trt --scales scaled --form tensorrt-llm-legacy --out x");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "tensorrt-llm-legacy does")) << other.err;
  const Result form =
      run("export trt --scales scaled --for tensorrt-llm-legacy --form modelopt --out x");
  EXPECT_EQ(form.code, 1);
  EXPECT_TRUE(has(form.err, "vllm and sglang do")) << form.err;
  EXPECT_FALSE(fs::exists(folder_ / "x"));
}

TEST_F(ScaleCli, ExportIntoAGraphOfEdgeLlm) {
  fs::create_directory(folder_ / "graph");
  std::vector<std::string> nodes;
  for (int layer = 0; layer < 3; ++layer) {
    nodes.push_back(kv::fixtures::onnx_node("layers." + std::to_string(layer) + "/attn", {"q"},
                                            {1.0f, 1.0f, 1.0f}));
  }
  kv::fixtures::write_file(folder_ / "graph/model.onnx", kv::fixtures::onnx_model(nodes));
  const Result made = run("export graph --scales scaled --for edge-llm --out engine");
  EXPECT_EQ(made.code, 0) << made.out << made.err;
  EXPECT_TRUE(has(made.out, "form edge-onnx")) << made.out;
  EXPECT_EQ(run("verify engine").code, 0) << run("verify engine").out;
  const Json read = Json::parse(run("inspect engine --json").out);
  EXPECT_EQ(read.at("scales").at(0).at("values").at(0), ScaleFolder::k_scale(0));
  const Result vllm = run("export graph --scales scaled --form edge-onnx --out x");
  EXPECT_EQ(vllm.code, 1);
  EXPECT_TRUE(has(vllm.err, "edge-llm does")) << vllm.err;
}

TEST_F(ScaleCli, SelectedLayersInBf16BecomeAFlagOfVllmAndARefusalElsewhere) {
  const Result made = run("export plain --scales scaled --bf16-layers 0,2 --out s");
  EXPECT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(has(made.out, "--kv-cache-dtype-skip-layers 0 2")) << made.out;
  EXPECT_EQ(run("verify s").code, 0);
  const Result refused = run("export plain --scales scaled --bf16-layers 0 --for sglang --out t");
  EXPECT_EQ(refused.code, 1);
  EXPECT_TRUE(has(refused.err, "one dtype")) << refused.err;
  EXPECT_FALSE(fs::exists(folder_ / "t"));
}

TEST_F(ScaleCli, ExportRefusesLayersThatTheModelLacksAndWritesNothing) {
  for (const std::string layer : {"-1", "3", "4294967296"}) {
    const Result r = run(
        "export plain --scales scaled --out made --layout fp8_tensor --for vllm --bf16-layers " +
        layer);
    EXPECT_EQ(r.code, 1) << r.out;
    EXPECT_TRUE(has(r.err, "expected layers 0 to 2, found " + layer)) << r.err;
    EXPECT_FALSE(fs::exists(folder_ / "made")) << layer;
  }
}

TEST_F(ScaleCli, ExportRefusesWhatTheTargetCannotRunAndNamesOneThatCan) {
  const Result heads = run("export plain --scales scaled --layout fp8_head --for sglang --out x");
  EXPECT_EQ(heads.code, 1);
  EXPECT_TRUE(has(heads.err, "it runs on vllm:flash_attn3")) << heads.err;
  const Result trt = run("export plain --scales scaled --for tensorrt-llm --out x");
  EXPECT_EQ(trt.code, 1);
  EXPECT_TRUE(has(trt.err, "edge-llm:plugin")) << trt.err;
  EXPECT_EQ(run("export plain --layout fp8_scale1 --for tensorrt-llm --out one").code, 0);
  EXPECT_EQ(run("export plain --layout fp8_scale1 --out x").code, 1) << "a flag is enough";
  EXPECT_EQ(run("export plain --out x").code, 1) << "scales are missing";
  EXPECT_FALSE(fs::exists(folder_ / "x"));
}

TEST_F(ScaleCli, VerifyNoticesAScaleThatIsGone) {
  ASSERT_EQ(run("export plain --scales scaled --out e").code, 0);
  ScaleFolder fewer(0);
  fewer.tensor("model.layers.0.self_attn.k_scale", "F32", {1}, {0.25f});
  const auto shard = folder_ / "e/model-00002-of-00002.safetensors";
  fs::remove(shard);
  kv::fixtures::write_file(shard, fewer.shard.bytes());
  const Result lost = run("verify e");
  EXPECT_EQ(lost.code, 20);
  EXPECT_TRUE(has(lost.out, "missing-layer layer 2 k and v")) << lost.out;
}

// The engine's own loader, played by a script that answers in its place.
TEST_F(ScaleCli, VerifyWithAnEnginesPython) {
  ASSERT_EQ(run("export plain --scales scaled --out e").code, 0);
  const auto answer = [&](const std::string& text) {
    kv::fixtures::write_file(folder_ / "python", "#!/bin/sh\n" + text + "\n");
    fs::permissions(folder_ / "python", fs::perms::owner_all);
    return run("verify e --engine-python ./python");
  };
  std::string scales;
  for (int layer = 0; layer < 3; ++layer) {
    const Json k = ScaleFolder::k_scale(layer), v = ScaleFolder::v_scale(layer);
    const std::string number = std::to_string(layer);
    scales += (layer > 0 ? "," : "") + std::string("[") + number + ",\"k\",[" + k.dump() +
              "],null,\"\"],[" + number + ",\"v\",[" + v.dump() + "],null,\"\"]";
  }
  const std::string line = "KVSCALE{\"loader\":\"played\",\"scales\":[" + scales + "]}";
  const Result same = answer("echo noise; echo '" + line + "'");
  EXPECT_EQ(same.code, 0) << same.out << same.err;
  EXPECT_TRUE(has(same.out, "played")) << same.out;
  const Result other = answer("echo '" + kv::fixtures::replaced(line, "[0.25]", "[0.26]") + "'");
  EXPECT_EQ(other.code, 20) << other.out;
  EXPECT_EQ(answer("echo no such module; exit 3").code, 1);
  EXPECT_EQ(run("verify e --engine-python ./absent").code, 1);
}

TEST_F(ScaleCli, TargetsAnswersYesAndNo) {
  const Json matrix = Json::parse(run("targets --json").out);
  EXPECT_EQ(matrix.at("targets").size(), 12u);
  for (const Json& row : matrix.at("targets")) EXPECT_NE(row.at("source"), "");
  const Result yes = run("targets --model plain --layout fp8_head --gpu h100");
  EXPECT_EQ(yes.code, 0) << yes.err;
  EXPECT_TRUE(yes.out.starts_with("yes\n"));
  const Result no = run("targets --model plain --layout fp8_head --gpu l4");
  EXPECT_EQ(no.code, 20);
  EXPECT_TRUE(no.out.starts_with("no\n"));
  EXPECT_EQ(run("targets --gpu h100").code, 1);
}

}  // namespace
