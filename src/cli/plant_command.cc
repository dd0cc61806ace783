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
  write_plant(request);
  fmt::print(
      "{}: {} with the plant {}; with a BF16 cache it computes the same bits\n"
      "try it: kvscale decide {} --margin quick\n",
      args.out, args.model, args.kind, quoted(args.out));
  return kExitAccept;
}

}  // namespace kv::cli
