#include "study/fingerprint_hypotheses.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <functional>

namespace kv {
namespace {

/// Which scale a faulty loader gives to a layer, side and head.
struct Fault {
  std::string words;
  std::function<float(const ScaleTable&, int64_t layer, Side side, int64_t head)> scale;
};

Side other(Side side) { return side == Side::kK ? Side::kV : Side::kK; }

float at(const ScaleTable& table, int64_t layer, Side side, int64_t head) {
  return table.heads(layer, side)[static_cast<size_t>(head)];
}

/// Where a fault strikes; the other layers have their own scales.
struct Region {
  const char* words;
  std::function<bool(int64_t layer, int64_t layers)> holds;
};

std::array<Region, 5> regions() {
  return {{{"", [](int64_t, int64_t) { return true; }},
           {" in the first half of the layers", [](int64_t l, int64_t n) { return l < n / 2; }},
           {" in the second half of the layers", [](int64_t l, int64_t n) { return l >= n / 2; }},
           {" in the even layers", [](int64_t l, int64_t) { return l % 2 == 0; }},
           {" in the odd layers", [](int64_t l, int64_t) { return l % 2 == 1; }}}};
}

std::vector<Fault> faults(const ScaleTable& expected, bool has_heads) {
  std::vector<Fault> out;
  const int64_t layers = expected.num_layers();
  const auto add = [&](const std::string& words, auto layer_of, auto side_of) {
    out.push_back({words, [=](const ScaleTable& table, int64_t l, Side side, int64_t head) {
                     return at(table, std::clamp<int64_t>(layer_of(l), 0, layers - 1),
                               side_of(side), head);
                   }});
  };
  const auto same_side = [](Side side) { return side; };
  add(
      "scales of the two halves of the layers exchanged",
      [=](int64_t l) { return (l + layers / 2) % layers; }, same_side);
  add(
      "scales of the layers in reverse order", [=](int64_t l) { return layers - 1 - l; },
      same_side);
  add(
      "scales one layer late", [](int64_t l) { return l - 1; }, same_side);
  out.push_back({"reciprocal scales", [](const ScaleTable& table, int64_t l, Side side, int64_t h) {
                   return 1 / at(table, l, side, h);
                 }});
  if (has_heads) {
    out.push_back(
        {"the first head's scale for all heads", [](const ScaleTable& table, int64_t l, Side side,
                                                    int64_t) { return at(table, l, side, 0); }});
  }
  for (const Region& region : regions()) {
    const auto add_here = [&](const char* words, auto scale) {
      out.push_back({fmt::format("{}{}", words, region.words),
                     [=](const ScaleTable& table, int64_t l, Side side, int64_t h) {
                       return region.holds(l, layers) ? scale(table, l, side, h)
                                                      : at(table, l, side, h);
                     }});
    };
    add_here("scales of K and V swapped", [](const ScaleTable& table, int64_t l, Side side,
                                             int64_t h) { return at(table, l, other(side), h); });
    add_here("scales exchanged with the neighbouring layer's",
             [=](const ScaleTable& table, int64_t l, Side side, int64_t h) {
               return at(table, std::min(l ^ 1, layers - 1), side, h);
             });
    add_here("scales missing (1.0)",
             [](const ScaleTable&, int64_t, Side, int64_t) { return 1.0f; });
  }
  return out;
}

ScaleTable with_fault(const ScaleTable& expected, const Fault& fault) {
  ScaleTable out(expected.num_layers(), expected.num_kv_heads(), fault.words);
  for (int64_t l = 0; l < expected.num_layers(); ++l) {
    for (const Side side : kSides) {
      for (int64_t h = 0; h < expected.num_kv_heads(); ++h) {
        out.set(l, side, h, fault.scale(expected, l, side, h));
      }
    }
  }
  return out;
}

/// The static scales that codes are multiplied by; none: there are no static scales.
std::vector<float> static_scales(const Hypothesis& one) {
  std::vector<float> out;
  if (!one.scales) return out;
  for (int64_t l = 0; l < one.scales->num_layers(); ++l) {
    for (const Side side : kSides) {
      const auto heads = one.scales->heads(l, side);
      out.insert(out.end(), heads.begin(), heads.end());
    }
  }
  return out;
}

bool is_scale_one(const Hypothesis& one) {
  if (one.arm.layout == ArmLayout::kFp8Scale1) return true;
  return one.scales &&
         std::ranges::all_of(static_scales(one), [](float scale) { return scale == 1; });
}

bool stores_the_same(const Hypothesis& a, const Hypothesis& b) {
  if (a.arm.rounding != b.arm.rounding || a.arm.math != b.arm.math) return false;
  if (is_scale_one(a) && is_scale_one(b)) return true;
  return a.scales && b.scales && static_scales(a) == static_scales(b);
}

class List {
 public:
  /// A fault that does what another hypothesis does is no hypothesis of its own.
  void add_fault(const std::string& words, const ScaleTable& scales) {
    for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTruncate}) {
      Hypothesis one;
      one.name = words;
      one.arm.layout = ArmLayout::kFp8Head;
      one.arm.rounding = rounding;
      one.scales = scales;
      if (find(one) == all_.end()) all_.push_back(std::move(one));
    }
  }
  void add(const std::string& words, ArmLayout layout, const ScaleTable* scales, Math math) {
    for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTruncate}) {
      Hypothesis one;
      one.arm.layout = layout;
      one.arm.math = math;
      one.arm.rounding = rounding;
      if (scales != nullptr) one.scales = *scales;
      push(words, std::move(one));
    }
  }
  void add_e5m2() {
    for (const Rounding rounding : {Rounding::kNearestEven, Rounding::kTruncate}) {
      Hypothesis one;
      one.arm.rounding = rounding;
      one.values = StoredValues::kE5m2;
      push("E5M2 with scale 1.0", std::move(one));
    }
  }
  std::vector<Hypothesis> named() const {
    std::vector<Hypothesis> out = all_;
    for (Hypothesis& one : out) {
      if (one.arm.rounding == Rounding::kTruncate) one.name += ", truncated";
      if (one.arm.math == Math::kFp8) one.name += ", queries in FP8";
    }
    return out;
  }

 private:
  std::vector<Hypothesis>::iterator find(const Hypothesis& one) {
    return std::ranges::find_if(
        all_, [&](const Hypothesis& known) { return stores_the_same(known, one); });
  }
  void push(const std::string& words, Hypothesis one) {
    const auto twin = find(one);
    if (twin != all_.end()) {
      twin->name += " or " + words;
      return;
    }
    one.name = words;
    all_.push_back(std::move(one));
  }
  std::vector<Hypothesis> all_;
};

}  // namespace

std::vector<Hypothesis> fingerprint_hypotheses(const ExpectedScales& expected) {
  List list;
  const char* tensor_words = expected.is_collapsed
                                 ? "one scale per tensor, the largest of its heads'"
                                 : "one scale per tensor";
  for (const Math math : {Math::kBf16, Math::kFp8}) {
    list.add("scale 1.0", ArmLayout::kFp8Scale1, nullptr, math);
    if (expected.tensor) list.add(tensor_words, ArmLayout::kFp8Tensor, &*expected.tensor, math);
    if (expected.head) list.add("one scale per head", ArmLayout::kFp8Head, &*expected.head, math);
  }
  list.add("one scale per token and head", ArmLayout::kFp8TokenHead, nullptr, Math::kBf16);
  list.add_e5m2();
  // As head scales where there are some: a table of either kind has a number for every head.
  const std::optional<ScaleTable>& own = expected.head ? expected.head : expected.tensor;
  if (own) {
    for (const Fault& fault : faults(*own, expected.head.has_value())) {
      list.add_fault(fault.words, with_fault(*own, fault));
    }
  }
  return list.named();
}

}  // namespace kv
