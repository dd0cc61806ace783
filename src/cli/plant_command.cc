#include <fmt/core.h>

#include "checkpoint/plant.h"
#include "cli/args.h"
#include "cli/session.h"
#include "kvscale/error.h"

namespace kv::cli {

int run_plant(const PlantArgs& args) {
  PlantRequest request;
  request.kind = plant_kind(args.kind);
  request.model = model_path(args.model);
  request.out = args.out;
  request.layers = args.layers;
  request.side = args.side[0];
  request.size = args.size;
  write_plant(request);
  const bool is_exact = request.kind != PlantKind::kOffset;
  fmt::print(
      "{}: {} with the plant {}; with a BF16 cache it computes {}\n"
      "try it: kvscale decide {} --margin quick\n",
      args.out, args.model, args.kind, is_exact ? "the same bits" : "nearly the same",
      quoted(args.out));
  return kExitAccept;
}

}  // namespace kv::cli
