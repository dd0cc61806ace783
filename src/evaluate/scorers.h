#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "evaluate/example.h"

namespace kv {

/// How the command line and prompt files spell a check: "exact", "prefix", "contains", "regex",
/// "number", "json_equal", "share", "similarity", "token_accuracy", "command".
std::string_view name(Check check);
std::optional<Check> check_from_name(std::string_view name);

/// What an answer is worth. An invalid one (nothing of the asked kind in it, the pattern ran into
/// its limits) counts 0, and says why.
struct Score {
  double value = 0;  // [0, 1]
  bool valid = true;
  std::string reason = {};  // empty when valid
};

/// Tokens against the expected ones: kExact gives 1 when all of `expected` are reproduced from the
/// first one on, kPrefix the share reproduced before the first miss, kTokenAccuracy the share that
/// is right wherever it stands. `produced` may be the greedy choice at each position of a
/// teacher-forced pass: up to the first miss the two are the same (kTokenAccuracy means this one).
/// Tokens beyond the expected ones do not count. Throws ValueError for another check or an empty
/// `expected`.
Score score_tokens(Check check, std::span<const int32_t> expected,
                   std::span<const int32_t> produced);

/// Generated text against the accepted answers; the best one counts.
///
///   kExact      equal after blanks at both ends are removed
///   kContains   an accepted answer occurs
///   kRegex      PCRE2 in UTF-8 mode, searched, with limits on steps and memory
///   kNumber     the last number of the text ("1,234.5" is one) equals an accepted one
///   kJsonEqual  the first JSON object or array of the text, else the whole text, equals an
///               accepted value
///   kShare      how many of the accepted answers occur as whole words (no ASCII letter or digit
///               goes on from their ends), as a share of all of them
///   kSimilarity similarity() of the trimmed texts (2M / (len a + len b))
///   kCommand    1 when the command (run_command, its standard limits) exits with 0; runs out of
///               time or cannot be run: invalid
///
/// Throws ValueError for kPrefix and kTokenAccuracy, no accepted answers, or an accepted answer
/// that its check cannot use (see check_answer).
Score score_text(Check check, std::string_view text, std::span<const std::string> accepted);

/// |the number that `text` begins with - expected|, blanks before it aside; nothing where it begins
/// with none. Throws ValueError when `expected` is no whole number.
std::optional<double> count_error(std::string_view text, std::string_view expected);

/// The same for a question. With a tag (kSimilarity) the trimmed text must begin with it, or it is
/// worth 0; what stands behind it is compared.
Score score_text(const Question& question, std::string_view text);

/// Throws ValueError saying what is wrong with an accepted answer: an empty one, a pattern that
/// does not compile, a text that is no number or no JSON.
void check_answer(Check check, std::string_view answer);

/// Whether the end of a generation repeats a piece of at most 32 tokens at least 8 times and over
/// at least 64 tokens: such an answer did not end by its stop rule in any useful sense.
bool is_runaway(std::span<const int32_t> generated);

}  // namespace kv
