#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "cache/capacity.h"
#include "cache/kv_cache.h"
#include "cache/layout.h"
#include "cache/scale_table.h"
#include "kvscale/error.h"

namespace kv {
namespace {

constexpr Format kAllFormats[] = {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerHead,
                                  Format::kE4m3PerTokenHead};

std::vector<LayerGeometry> geometry(int64_t layers, int64_t heads, int64_t dim) {
  return std::vector<LayerGeometry>(static_cast<size_t>(layers), LayerGeometry{heads, dim, 0});
}

std::vector<LayerFormat> all(int64_t layers, Format format) {
  return std::vector<LayerFormat>(static_cast<size_t>(layers), LayerFormat{format, format});
}

TEST(PageLayout, EveryByteBelongsToExactlyOneValueOrScale) {
  for (const PageOrder order : {PageOrder::kNhd, PageOrder::kHnd, PageOrder::kCpu}) {
    for (const Format k : kAllFormats) {
      for (const Format v : kAllFormats) {
        for (const int64_t block_size : {1, 16, 61}) {
          const PageLayout page = PageLayout::make(k, v, 3, 20, block_size, order);
          std::vector<int> owners(static_cast<size_t>(page.page_bytes), 0);
          for (const Side s : kSides) {
            const SideLayout& side = page.side(s);
            for (int64_t head = 0; head < 3; ++head) {
              for (int64_t slot = 0; slot < block_size; ++slot) {
                for (int64_t d = 0; d < 20; ++d) {
                  for (int64_t b = 0; b < value_bytes(side.format); ++b) {
                    ++owners.at(static_cast<size_t>(side.byte(head, slot, d) + b));
                  }
                }
                for (int64_t b = 0; b < 4 && has_inline_scales(side.format); ++b) {
                  ++owners.at(static_cast<size_t>(side.scale_byte(head, slot) + b));
                }
              }
            }
          }
          EXPECT_EQ(std::set<int>(owners.begin(), owners.end()), std::set<int>{1})
              << name(k) << " " << name(v) << " block " << block_size;
        }
      }
    }
  }
}

// vLLM 0.26 to 0.32: cell = K (D bytes), K scale (4), V (D), V scale (4); P = D + 4.
TEST(PageLayout, InlineScalesLieWhereVllmPutsThem) {
  const int64_t H = 8, N = 16, D = 128, P = D + 4;
  const PageLayout nhd = PageLayout::make(Format::kE4m3PerTokenHead, Format::kE4m3PerTokenHead, H,
                                          D, N, PageOrder::kNhd);
  EXPECT_EQ(nhd.page_bytes, 33792);
  EXPECT_EQ(nhd.side(Side::kK).byte(3, 5, 7), 5 * H * 2 * P + 3 * 2 * P + 7);
  EXPECT_EQ(nhd.side(Side::kK).scale_byte(3, 5), 5 * H * 2 * P + 3 * 2 * P + D);
  EXPECT_EQ(nhd.side(Side::kV).byte(3, 5, 7), 5 * H * 2 * P + 3 * 2 * P + P + 7);
  EXPECT_EQ(nhd.side(Side::kV).scale_byte(3, 5), 5 * H * 2 * P + 3 * 2 * P + P + D);
  const PageLayout hnd = PageLayout::make(Format::kE4m3PerTokenHead, Format::kE4m3PerTokenHead, H,
                                          D, N, PageOrder::kHnd);
  EXPECT_EQ(hnd.side(Side::kV).byte(3, 5, 7), 3 * N * 2 * P + 5 * 2 * P + P + 7);
  EXPECT_EQ(PageLayout::make(Format::kBf16, Format::kBf16, H, D, N, PageOrder::kNhd).page_bytes,
            65536);
  EXPECT_EQ(PageLayout::make(Format::kE4m3PerHead, Format::kE4m3PerHead, H, D, N, PageOrder::kNhd)
                .page_bytes,
            32768);
}

TEST(PageLayout, CpuOrderKeepsKeysAlongTheSlots) {
  const PageLayout page =
      PageLayout::make(Format::kE4m3PerTensor, Format::kE4m3PerTensor, 2, 64, 16, PageOrder::kCpu);
  EXPECT_EQ(page.side(Side::kK).byte(0, 1, 0) - page.side(Side::kK).byte(0, 0, 0), 1);
  EXPECT_EQ(page.side(Side::kV).byte(0, 0, 1) - page.side(Side::kV).byte(0, 0, 0), 1);
}

TEST(PageLayout, RefusesWhatVllmRefuses) {
  EXPECT_THROW(PageLayout::make(Format::kBf16, Format::kBf16, 1, 66, 16, PageOrder::kNhd),
               ValueError);
  EXPECT_THROW(PageLayout::make(Format::kBf16, Format::kBf16, 0, 64, 16, PageOrder::kNhd),
               ValueError);
}

TEST(Capacity, EightyLayersAtFullContext) {
  const auto layers = geometry(80, 8, 128);
  const int64_t T = 131072, GiB = int64_t{1} << 30, MiB = int64_t{1} << 20;
  EXPECT_EQ(cache_bytes(layers, all(80, Format::kBf16), T).total_bytes(), 40 * GiB);
  const CacheBytes tensor = cache_bytes(layers, all(80, Format::kE4m3PerTensor), T);
  EXPECT_EQ(tensor.code_bytes, 20 * GiB);
  EXPECT_EQ(tensor.static_scale_bytes, 640);
  EXPECT_EQ(cache_bytes(layers, all(80, Format::kE4m3PerHead), T).static_scale_bytes, 5120);
  const CacheBytes inline_scales = cache_bytes(layers, all(80, Format::kE4m3PerTokenHead), T);
  EXPECT_EQ(inline_scales.scale_bytes, 640 * MiB);
  EXPECT_EQ(inline_scales.total_bytes() * 1000, 20625 * GiB);
}

// vllm-project reports of kvcached#424: what `plan` must say for two geometries.
// llama.cpp's blocks: 34 bytes for 32 values.
TEST(Capacity, BytesPerTokenOfQ8Blocks) {
  const std::vector<LayerGeometry> layers(30, LayerGeometry{3, 64});
  const std::vector<LayerFormat> formats(30, LayerFormat{Format::kQ8Block32, Format::kQ8Block32});
  const CacheBytes bytes = cache_bytes(layers, formats, 1);
  EXPECT_EQ(bytes.code_bytes, 11'520);
  EXPECT_EQ(bytes.scale_bytes, 720);
  EXPECT_EQ(block_bytes(layers, formats, 256), 256 * 12'240);
  EXPECT_FALSE(is_fp8(Format::kQ8Block32));
  EXPECT_THROW(PageLayout::make(Format::kQ8Block32, Format::kBf16, 3, 64, 16, PageOrder::kCpu),
               UnsupportedError);
}

TEST(Capacity, BytesPerTokenOfInlineScales) {
  EXPECT_EQ(cache_bytes(geometry(32, 8, 128), all(32, Format::kBf16), 1).code_bytes, 131072);
  EXPECT_EQ(cache_bytes(geometry(32, 8, 128), all(32, Format::kE4m3PerHead), 1).code_bytes, 65536);
  const CacheBytes wide = cache_bytes(geometry(32, 8, 128), all(32, Format::kE4m3PerTokenHead), 1);
  EXPECT_EQ(wide.code_bytes + wide.scale_bytes, 67584);
  const CacheBytes narrow = cache_bytes(geometry(24, 2, 64), all(24, Format::kE4m3PerTokenHead), 1);
  EXPECT_EQ(narrow.code_bytes + narrow.scale_bytes, 6528);
}

TEST(Capacity, SelectiveGainAndWindows) {
  auto formats = all(32, Format::kE4m3PerTensor);
  for (size_t i = 0; i < 4; ++i) formats[i] = {Format::kBf16, Format::kBf16};
  const auto layers = geometry(32, 8, 128);
  const double gain =
      static_cast<double>(cache_bytes(layers, all(32, Format::kBf16), 4096).code_bytes) /
      static_cast<double>(cache_bytes(layers, formats, 4096).code_bytes);
  EXPECT_NEAR(gain, 1.77778, 1e-5);
  const std::vector<LayerGeometry> windowed = {{1, 256, 512}};
  EXPECT_EQ(cache_bytes(windowed, all(1, Format::kE4m3PerTensor), 4096).code_bytes, 512 * 512);
}

TEST(Capacity, TokensThatFitAreWholeBlocksAndTheNextBlockDoesNotFit) {
  const auto layers = geometry(30, 3, 64);
  for (const Format format : kAllFormats) {
    const auto formats = all(30, format);
    const int64_t budget = int64_t{2} << 30;
    const int64_t tokens = tokens_that_fit(layers, formats, 128, budget);
    EXPECT_EQ(tokens % 128, 0);
    EXPECT_LE(cache_bytes(layers, formats, tokens).total_bytes(), budget);
    EXPECT_GT(cache_bytes(layers, formats, tokens + 128).total_bytes(), budget);
  }
  // What vLLM 0.32 reports for this model and budget.
  EXPECT_EQ(tokens_that_fit(layers, all(30, Format::kBf16), 128, int64_t{2} << 30), 93184);
}

/// DeepSeek-V2-Lite: 27 layers of a latent of 512 and 64 values that turn. One vector a token, not
/// two; the static scale lies outside the pages.
TEST(LatentCapacity, Case81OneVectorATokenNotTwo) {
  const std::vector<LayerGeometry> layers(27, LayerGeometry{1, 576, 0, 512});
  EXPECT_EQ(block_bytes(layers, all(27, Format::kBf16), 64), 27 * 64 * 1152);
  EXPECT_EQ(block_bytes(layers, all(27, Format::kE4m3PerTensor), 64), 27 * 64 * 576);
  EXPECT_EQ(block_bytes(layers, all(27, Format::kE4m3PerTokenTile), 64), 27 * 64 * 656);
  const CacheBytes tensor = cache_bytes(layers, all(27, Format::kE4m3PerTensor), 1000);
  EXPECT_EQ(tensor.code_bytes, 27 * 576'000);
  EXPECT_EQ(tensor.static_scale_bytes, 27 * 4) << "one scale a layer: V is read through K's";
  const CacheBytes tiles = cache_bytes(layers, all(27, Format::kE4m3PerTokenTile), 1000);
  EXPECT_EQ(tiles.code_bytes, 27 * 640'000);
  EXPECT_EQ(tiles.scale_bytes, 27 * 16'000);
  EXPECT_EQ(tiles.static_scale_bytes, 0);
  EXPECT_EQ(tokens_that_fit(layers, all(27, Format::kE4m3PerTokenTile), 64, 27 * 64 * 656 * 10),
            640);
  EXPECT_THROW(block_bytes(layers, all(27, Format::kE4m3PerTokenHead), 64), UnsupportedError);
  for (const Format format : {Format::kBf16, Format::kE4m3PerTensor, Format::kE4m3PerTokenTile}) {
    const KvCache cache(layers, all(27, format), 16, 3, PageOrder::kCpu);
    EXPECT_EQ(cache.allocated_bytes(), 3 * block_bytes(layers, all(27, format), 16));
  }
}

TEST(Capacity, OverflowIsAnError) {
  EXPECT_THROW(cache_bytes(geometry(1, 1 << 20, 1 << 20), all(1, Format::kBf16), int64_t{1} << 40),
               ValueError);
  EXPECT_THROW(cache_bytes(geometry(1, 8, 128), all(1, Format::kBf16), -1), ValueError);
}

TEST(KvCache, AllocatesWhatThePlanSays) {
  const auto layers = geometry(5, 3, 64);
  for (const Format format : kAllFormats) {
    const KvCache cache(layers, all(5, format), 16, 10, PageOrder::kCpu);
    EXPECT_EQ(cache.allocated_bytes(), 10 * block_bytes(layers, all(5, format), 16))
        << name(format);
    EXPECT_EQ(cache.layer(4).block(9)[cache.layer(4).block_stride - 1], 0xff);
  }
}

TEST(BlockTable, ForkSharesAndTheFirstWriteToASharedBlockCopies) {
  KvCache cache(geometry(2, 1, 64), all(2, Format::kBf16), 4, 8, PageOrder::kNhd);
  BlockTable prefix(cache);
  prefix.append(6);  // one full block, one half full
  EXPECT_EQ(prefix.slots(0, 5, 1), std::vector<int64_t>{prefix.blocks()[1] * 4 + 1});
  cache.layer(1).block(prefix.blocks()[1])[0] = 42;
  {
    BlockTable question = prefix.fork();
    EXPECT_EQ(cache.pool().num_free(), 6);
    question.append(1);
    EXPECT_EQ(question.blocks()[0], prefix.blocks()[0]);
    EXPECT_NE(question.blocks()[1], prefix.blocks()[1]);
    EXPECT_EQ(cache.layer(1).block(question.blocks()[1])[0], 42);
    EXPECT_EQ(cache.pool().num_free(), 5);
  }
  EXPECT_EQ(cache.pool().num_free(), 6);
  prefix.append(1);  // nobody shares any more: no copy
  EXPECT_EQ(cache.pool().num_free(), 6);
}

TEST(BlockTable, AppendIsAllOrNothing) {
  KvCache cache(geometry(1, 1, 64), all(1, Format::kBf16), 4, 2, PageOrder::kNhd);
  BlockTable table(cache);
  table.append(5);
  EXPECT_THROW(table.append(4), ValueError);
  EXPECT_EQ(table.seq_len(), 5);
  table.append(3);
  EXPECT_EQ(table.seq_len(), 8);
  table.truncate(4);
  EXPECT_EQ(cache.pool().num_free(), 1);
}

/// Two layers that keep all tokens around one that sees 100 of them.
std::vector<LayerGeometry> one_window() { return {{1, 64, 0}, {1, 64, 100}, {1, 64, 0}}; }

TEST(WindowPools, KeepTheWindowAndAPass) {
  const WindowRoom room{2, 32};
  // 99 earlier keys, up to 63 for alignment, 32 new: 14 blocks of 16, wherever they begin; for
  // going back 163 tokens: 12; one that is shared and copied.
  EXPECT_EQ(pool_blocks(one_window()[1], 16, 1000, room), 2 * (14 + 12 + 1));
  EXPECT_EQ(pool_blocks(one_window()[1], 16, 50, room), 50) << "no more than the cache";
  EXPECT_EQ(pool_blocks(one_window()[0], 16, 1000, room), 1000);
  EXPECT_EQ(pool_blocks(one_window()[1], 16, 1000, {}), 1000) << "windows not applied";
  const auto formats = all(3, Format::kE4m3PerTokenHead);
  const KvCache cache(one_window(), formats, 16, 1000, PageOrder::kCpu, room);
  EXPECT_EQ(cache.num_pools(), 2u);
  EXPECT_EQ(cache.pool_of(1), 1u);
  EXPECT_EQ(cache.window(1), 100);
  EXPECT_EQ(cache.layer(1).num_blocks, 54);
  EXPECT_EQ(cache.allocated_bytes(), pool_bytes(one_window(), formats, 16, 1000, room));
  EXPECT_EQ(cache.allocated_bytes(),
            (2 * 1000 + 54) * block_bytes({{1, 64, 0}}, all(1, formats[0].k), 16));
}

TEST(WindowPools, BlocksBeforeTheWindowAreGivenBack) {
  KvCache cache(one_window(), all(3, Format::kBf16), 16, 1000, PageOrder::kCpu, {1, 16});
  const int64_t free = cache.pool(1).num_free();
  BlockTable table(cache);
  for (int64_t first = 0; first < 1600; first += 16) {
    table.append(16);
    table.leave_windows(table.seq_len());
    EXPECT_GE(cache.pool(1).num_free(), free - 11) << first;
  }
  EXPECT_EQ(cache.pool(0).num_free(), 900);
  // Position 1600 sees from 1501 on; 1472 is the multiple of 64 before it.
  EXPECT_EQ(table.blocks(1)[1472 / 16 - 1], -1);
  EXPECT_EQ(table.blocks(1).size(), 100u);
  EXPECT_EQ(cache.pool(1).num_free(), free - (1600 - 1472) / 16);
  EXPECT_GE(table.slots(1, 1472, 128).front(), 0);

  BlockTable fork = table.fork();
  fork.append(160);
  fork.leave_windows(1600);  // could go back
  fork.truncate(1600);
  EXPECT_EQ(fork.slots(1, 1472, 128), table.slots(1, 1472, 128)) << "the same blocks";
  fork.append(160);
  fork.leave_windows(1760);
  EXPECT_THROW(fork.truncate(1600), ValueError);
  EXPECT_EQ(fork.seq_len(), 1760);
  fork.truncate(0);
  EXPECT_EQ(cache.pool(1).num_free(), free - (1600 - 1472) / 16) << "the first still holds its own";
  table.truncate(0);
  EXPECT_EQ(cache.pool(0).num_free(), 1000);
  EXPECT_EQ(cache.pool(1).num_free(), free);
}

TEST(BlockPool, MisuseIsAnError) {
  BlockPool pool(1);
  EXPECT_THROW(pool.release(0), ValueError);
  const int32_t block = pool.allocate();
  EXPECT_THROW(pool.allocate(), ValueError);
  pool.release(block);
  EXPECT_THROW(pool.release(block), ValueError);
  EXPECT_THROW(BlockPool(-1), ValueError);
}

TEST(ScaleTable, RefusesWhatIsNoScaleAtEveryDoor) {
  ScaleTable table(4, 2, "test");
  for (const float bad :
       {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity(), 1e-45f}) {
    EXPECT_THROW(table.set(2, Side::kV, 1, bad), ValueError) << bad;
  }
  EXPECT_THROW(table.set(4, Side::kK, 0, 1.0f), ValueError);
  table.set(2, Side::kK, 1, 0.5f);
  table.set_all_heads(2, Side::kV, 0.01f);
  EXPECT_EQ(table.heads(2, Side::kK)[0], 1.0f);
  EXPECT_EQ(table.heads(2, Side::kK)[1], 0.5f);
  EXPECT_EQ(table.heads(2, Side::kV)[1], 0.01f);
}

}  // namespace
}  // namespace kv
