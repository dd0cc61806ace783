#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "text/normal_form.h"
#include "text/replacer.h"

namespace kv {

/// One normalizer of tokenizer.json.
struct NormalizerStep {
  enum class Kind { kForm, kLowercase, kPrepend, kReplace, kStrip };
  Kind kind = Kind::kForm;
  NormalForm form = NormalForm::kNfc;
  std::string prefix;  // Prepend: put before a text that is not empty
  std::optional<Replacer> replacer;
  bool strips_left = false, strips_right = false;
};

/// A Sequence of normalizers, applied to what lies between added tokens.
class Normalizer {
 public:
  Normalizer() = default;
  explicit Normalizer(std::vector<NormalizerStep> steps) : steps_(std::move(steps)) {}

  using Matchers = std::vector<std::optional<RegexMatcher>>;

  /// One matcher a step, for one thread at a time.
  Matchers make_matchers() const;

  /// The normalized text: `text` itself where nothing changes, else a view of `storage`.
  std::string_view apply(std::string_view text, Matchers& matchers, std::string& storage) const;

 private:
  std::vector<NormalizerStep> steps_;
};

/// Every character in lower case, each for itself, as Rust's char::to_lowercase does it.
std::string lowercased(std::string_view text);

}  // namespace kv
