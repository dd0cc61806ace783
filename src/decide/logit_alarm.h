#pragma once

#include <span>
#include <string>
#include <vector>

#include "evaluate/logit_metrics.h"
#include "evaluate/record.h"

namespace kv {

/// What of an arm's logits raises the alarm, "KLD 0.055 nats (above 0.005); 74.9 % of the top
/// tokens are the control's (below 98 %)"; empty if nothing does. It asks for more examples and
/// decides nothing. `kld_floor`: mean KLD of the control's repeat, 0 where it is not known.
std::string logit_alarm(const LogitSummary& summary, double kld_floor);

/// One sentence for every arm whose records raise it, all together or those of one bucket, in the
/// order in which arms first appear. Of several buckets it names the worst: a mean over lengths
/// hides a fault that only long texts have.
std::vector<std::string> logit_alarms(std::span<const LogitRecord> records, double kld_floor);

}  // namespace kv
