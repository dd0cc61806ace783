#include "endpoint/reply.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

#include "checkpoint/json.h"
#include "kvscale/error.h"

namespace kv {

void Reply::fail(const std::string& expected) const {
  throw FormatError(fmt::format("{}: expected {}, found {}", path_, expected, shortened(*value_)));
}

bool Reply::is_null() const { return value_->is_null(); }

bool Reply::has(const std::string& key) const {
  if (!value_->is_object()) fail("an object");
  const auto found = value_->find(key);
  return found != value_->end() && !found->is_null();
}

Reply Reply::at(const std::string& key) const {
  if (!has(key))
    throw FormatError(fmt::format("{}: expected a field \"{}\", found none", path_, key));
  return {value_->at(key), fmt::format("{}.{}", path_, key)};
}

Reply Reply::at(size_t index) const {
  if (index >= size()) {
    throw FormatError(
        fmt::format("{}: expected more than {} entries, found {}", path_, index, value_->size()));
  }
  return {(*value_)[index], fmt::format("{}[{}]", path_, index)};
}

size_t Reply::size() const {
  if (!value_->is_array()) fail("an array");
  return value_->size();
}

std::string Reply::text() const {
  if (!value_->is_string()) fail("a string");
  return value_->get<std::string>();
}

int64_t Reply::integer(int64_t least, int64_t most) const {
  const std::string expected = fmt::format("a whole number in [{}, {}]", least, most);
  if (!value_->is_number_integer()) fail(expected);
  if (value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    fail(expected);
  }
  const auto number = value_->get<int64_t>();
  if (number < least || number > most) fail(expected);
  return number;
}

bool Reply::boolean() const {
  if (!value_->is_boolean()) fail("true or false");
  return value_->get<bool>();
}

double Reply::logprob() const {
  constexpr double kMinusInfinity = -9999;  // as vLLM writes it, which JSON cannot
  constexpr double kRounding = 1e-3;        // of a log-softmax in 16 bits
  if (!value_->is_number()) fail("a logprob");
  const double number = value_->get<double>();
  if (number <= kMinusInfinity) return -std::numeric_limits<double>::infinity();
  if (!(number <= kRounding)) fail("a logprob of at most 0");
  return number;
}

std::vector<int32_t> Reply::tokens() const {
  std::vector<int32_t> out;
  const size_t count = size();
  out.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    const nlohmann::json& one = (*value_)[i];
    // The common case without a path for each.
    if (one.is_number_unsigned() && one.get<uint64_t>() <= INT32_MAX) {
      out.push_back(one.get<int32_t>());
    } else {
      out.push_back(at(i).token());
    }
  }
  return out;
}

}  // namespace kv
