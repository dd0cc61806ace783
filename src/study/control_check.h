#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/model.h"
#include "text/tokenizer.h"

namespace kv {

/// What the model makes of plain English with a BF16 cache, before anything is compared with it.
struct ControlCheck {
  double perplexity = 0;  // over `tokens` predictions; infinite when a logit is not finite
  int64_t tokens = 0;
  int64_t vocab_size = 0;
  std::string continuation;  // a few greedy tokens after the text

  /// A model that does hardly better than drawing words by chance: perplexity above a tenth of the
  /// vocabulary. What FP8 does to it says nothing.
  bool is_broken() const { return !(perplexity <= static_cast<double>(vocab_size) / 10); }

  /// "perplexity 21.3 over 255 tokens of kvscale's own text (vocabulary 49152), which it continues
  /// with \"...\"".
  std::string text() const;
};

/// Runs the first tokens of own_text() through the control.
ControlCheck check_control(const std::shared_ptr<const Model>& model, const Tokenizer& tokenizer);

}  // namespace kv
