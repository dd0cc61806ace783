#pragma once

#include "cpu/attend_rows.h"

namespace kv::cpu {

/// attend_rows by tiles (AMX): up to 16 rows meet 64 keys at once. Rounded, and exact, as
/// attend_rows_bf16 says.
///
/// Only where amx_allowed().
void attend_rows_amx(const AttendRows& rows, AttendScratch& scratch);

}  // namespace kv::cpu
