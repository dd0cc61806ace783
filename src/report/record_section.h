#pragma once

#include "report/markup.h"
#include "report/verdict_report.h"

namespace kv {

/// Records beyond this are not put into the page: browsers refuse links of more than 32 MB.
inline constexpr size_t kMostEmbeddedBytes = size_t{20} << 20;

/// KLD from BF16 by the number of tokens attended to, as chart and table: one row for every arm,
/// block and bucket of positions that has logit records.
void add_position_section(Markup& html, const VerdictReport& report);

/// Where everything came from: the run's configuration, and its records as a link that saves them
/// from the page itself, without network and without a script.
void add_provenance_section(Markup& html, const VerdictReport& report);

/// Base64 with padding (RFC 4648).
std::string base64(std::string_view bytes);

}  // namespace kv
