// kv_dump_logits MODEL PROMPTS.json OUT_DIR TOKENS: what the engine gives for prompts of token ids.
//
// PROMPTS.json is a list of {"ids": [...]}. For prompt i, OUT_DIR gets i.f32: the logits of all its
// positions, [ids, vocab_size] F32, little endian; and continuations.json gets its greedy
// continuation of TOKENS tokens. Cache in BF16. Used by compare_logits.py.
#include <fmt/format.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/engine.h"
#include "kvscale/error.h"

namespace {

using Ids = std::vector<int32_t>;

std::vector<Ids> read_prompts(const char* path) {
  std::ifstream in(path);
  std::vector<Ids> out;
  for (const auto& prompt : nlohmann::json::parse(in)) out.push_back(prompt.at("ids").get<Ids>());
  return out;
}

/// Feeds a prompt, writes its logits, returns the likeliest next token.
int32_t feed(kv::Engine& engine, kv::Sequence& sequence, const Ids& ids,
             const std::filesystem::path& path) {
  std::ofstream out(path, std::ios::binary);
  int32_t next = -1;
  const kv::Request request{&sequence, ids, 0, nullptr};
  engine.run({&request, 1}, [&](std::span<const kv::LogitRow> rows) {
    for (const kv::LogitRow& row : rows) {
      out.write(reinterpret_cast<const char*>(row.logits.data()),
                static_cast<std::streamsize>(row.logits.size_bytes()));
      next = kv::argmax(row.logits);
    }
  });
  if (!out.flush()) throw kv::IoError(fmt::format("{}: cannot be written", path.string()));
  return next;
}

void run(char** argv) {
  const std::vector<Ids> prompts = read_prompts(argv[2]);
  const std::filesystem::path folder = argv[3];
  const int64_t count = std::stoll(argv[4]);
  kv::Engine engine(kv::Model::load(kv::Checkpoint::open(argv[1])));
  const int64_t block = engine.plan().block_size;
  int64_t capacity = 0;
  for (const Ids& ids : prompts) capacity += (std::ssize(ids) + count + block) / block * block;
  const int arm = engine.add_arm(kv::ArmSpec{}, std::nullopt, capacity);

  std::vector<kv::Sequence> sequences;
  std::vector<kv::Sequence*> pointers;
  Ids first;
  sequences.reserve(prompts.size());
  for (size_t i = 0; i < prompts.size(); ++i) {
    sequences.push_back(engine.start(arm));
    pointers.push_back(&sequences[i]);
    first.push_back(feed(engine, sequences[i], prompts[i], folder / fmt::format("{}.f32", i)));
  }
  nlohmann::json continuations;
  const auto written = engine.generate(pointers, first, count - 1, {});
  for (size_t i = 0; i < prompts.size(); ++i) {
    Ids all = {first[i]};
    all.insert(all.end(), written[i].tokens.begin(), written[i].tokens.end());
    continuations.push_back(all);
  }
  std::ofstream(folder / "continuations.json") << continuations;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 5) {
    fmt::print(stderr, "usage: kv_dump_logits MODEL PROMPTS.json OUT_DIR TOKENS\n");
    return 1;
  }
  try {
    run(argv);
  } catch (const std::exception& error) {
    fmt::print(stderr, "error: {}\n", error.what());
    return 1;
  }
  return 0;
}
