#pragma once

#include <string>
#include <vector>

#include "calibrate/calibration.h"
#include "checkpoint/model_spec.h"

namespace kv {

/// Fills in what a scale file says of its model beside the weights: head_dim, the rotation as a
/// text, and a hash over the sizes and numbers of the configuration that change what is computed.
void add_model_fields(const ModelSpec& spec, CalibrationSource& source);

/// Throws ValueError naming file, field, expected and found unless the calibration was made from
/// this model with this tokenizer and chat template: scales of another model load nowhere. Fields
/// that `here` leaves empty are not known to the caller and not compared.
///
/// Returns what differs beside that: another version, attention kernel or machine. The scales load,
/// but that they were accepted there says nothing here: one sentence for each, "REVALIDATE: ...".
std::vector<std::string> check_calibration(const Calibration& calibration,
                                           const CalibrationSource& here, const ModelSpec& model,
                                           const std::string& file);

}  // namespace kv
