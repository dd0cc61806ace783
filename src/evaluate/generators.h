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

/// What fills the context of niah_single and copy_span.
///   kProse   grammatical sentences from embedded word lists
///   kRepeat  five fixed sentences over and over
enum class Filler : uint8_t { kProse, kRepeat };

/// Which documents to make.
///
/// task    niah_single   sentences like "One of the special magic numbers for KEY is: VALUE." in
///                       filler, each of a form of its own (plain form), so that none is another's
///                       distractor
///         kv_recall     lines "KEY: VALUE" filling the context
///         copy_span     lines "Passage KEY: SPAN" in filler; scored by the prefix reproduced
/// block   "CAL", "E1", "E2", "E3" or "AA": blocks never share a document's seed
///
/// A document asks about questions_per_document facts that all stand in its context; the depths of
/// a bucket's questions are stratified: one in each of documents * questions_per_document equal
/// parts of the context.
struct GeneratorOptions {
  std::string task;
  Form form = Form::kPlain;
  Filler filler = Filler::kProse;
  std::vector<int64_t> buckets;  // target lengths in tokens
  int64_t documents = 25;        // per bucket
  int64_t questions_per_document = 4;
  uint64_t master_seed = 0;
  std::string block = "E1";
};

/// "niah_single", "kv_recall", "copy_span".
const std::vector<std::string>& generator_tasks();

/// All documents, bucket by bucket.
///
/// For every question, context + question + answer have between 99 % of the target and the target
/// in tokens; encoding the three texts one by one gives what encoding them as one text gives, so a
/// context can be prefilled once; and the answer's tokens stand exactly once in the context, at
/// `depth`. Throws ValueError for options out of range, UnsupportedError when a tokenizer or a
/// length does not allow one of these.
std::vector<Document> generate(const Tokenizer& tokenizer, const GeneratorOptions& options);

/// The seed of a bucket's document `index`: a bijection of (block, target, index) for one task and
/// master seed. Throws ValueError for an unknown block or numbers out of range.
uint64_t document_seed(const GeneratorOptions& options, int64_t target_tokens, int64_t index);

}  // namespace kv
