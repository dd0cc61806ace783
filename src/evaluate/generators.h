#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "evaluate/example.h"

namespace kv {

class Tokenizer;

/// Part of a dataset's identity: the same options give the same documents under the same version.
inline constexpr int64_t kGeneratorVersion = 2;

/// What keys, values and spans are made of. The text around them is the same.
///   kPlain    keys of two English words ("quiet-harbor"), values of digits: for any language model
///   kCompact  made-up words of two-letter syllables ("dorina"): for the built-in model
enum class Form : uint8_t { kPlain, kCompact };

/// What fills a context beside what is asked for.
///   kProse     grammatical sentences from embedded word lists
///   kRepeat    five fixed sentences over and over
///   kDistract  niah_multikey only: more lines like those that are asked for
enum class Filler : uint8_t { kProse, kRepeat, kDistract };

/// Ids that induction draws from: [first, limit).
struct IdRange {
  int32_t first = 0, limit = 0;
  bool is_empty() const { return first >= limit; }
};

/// Which documents to make.
///
/// task    niah_single      sentences like "One of the special magic numbers for KEY is: VALUE." in
///                          filler, each of a form of its own (plain form), so that none is
///                          another's distractor
///         niah_multikey    the same with sentences of one form, at least four
///         niah_multivalue  four values of one key, all asked for; share found
///         niah_multiquery  the values of four keys, all asked for; share found
///         kv_recall        lines "KEY: VALUE" filling the context
///         var_track        "VAR B = VAR A": names that hold one value after four hops, one chain
///                          a question and at least two; share found
///         common_words     a numbered list: the ten words that occur often; share found
///         freq_words       coded words by Zipf's law among noise: the three most frequent; share
///         copy_span        lines "Passage KEY: SPAN" in filler; scored by the prefix reproduced
///         mrcr_like        a dialogue with one request made several times: one of the answers,
///                          behind a tag; similarity
///         count            equal lines for each of several names: how many of one
///         induction        random token ids, continued in a second copy; token accuracy
///         arith_chain      word problems of 3 to 8 steps, to be solved; the number after "####"
/// block   "CAL", "E1", "E2", "E3" or "AA": blocks never share a document's seed
///
/// A document asks questions that all rest on its context (questions_asked); the depths of a
/// bucket's questions are stratified: one in each of equal parts of the context, where the first
/// line that the question rests on stands (common_words and freq_words have their words all over).
struct GeneratorOptions {
  std::string task;
  Form form = Form::kPlain;
  Filler filler = Filler::kProse;
  std::vector<int64_t> buckets;  // target lengths in tokens
  int64_t documents = 25;        // per bucket
  int64_t questions_per_document = 4;
  uint64_t master_seed = 0;
  std::string block = "E1";
  IdRange ids;  // of induction; empty: all ids of the tokenizer that are not special
};

/// In the order of the list above.
const std::vector<std::string>& generator_tasks();

/// Those that a pilot tries when nobody names any: "niah_single", "kv_recall", "copy_span".
const std::vector<std::string>& default_tasks();

/// How many questions a document of a task has where `wanted` are asked for: a list has one answer
/// to the question for its most frequent words.
int64_t questions_asked(std::string_view task, int64_t wanted);

/// All documents, bucket by bucket.
///
/// For every question, context + question + answer (or the room for an answer that is written
/// freely) have between 99 % of the target and the target in tokens; encoding the three texts one
/// by one gives what encoding them as one text gives, so a context can be prefilled once; and an
/// answer that is forced stands in the context exactly once, token by token, at `depth`. Throws
/// ValueError for options out of range, UnsupportedError when a tokenizer or a length does not
/// allow one of these.
std::vector<Document> generate(const Tokenizer& tokenizer, const GeneratorOptions& options);

/// The same for models without a tokenizer: induction from options.ids. Throws ValueError for
/// another task or no ids.
std::vector<Document> generate(const GeneratorOptions& options);

/// Ids that end a line: their bytes have a newline.
std::vector<int32_t> line_end_ids(const Tokenizer& tokenizer);

/// The seed of a bucket's document `index`: a bijection of (block, target, index) for one task and
/// master seed. Throws ValueError for an unknown block or numbers out of range.
uint64_t document_seed(const GeneratorOptions& options, int64_t target_tokens, int64_t index);

}  // namespace kv
