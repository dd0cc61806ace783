#include <fmt/core.h>

#include <cstdio>
#include <exception>

#include "cli/args.h"
#include "kvscale/error.h"
#include "study/progress.h"

int main(int argc, char** argv) {
  try {
    return kv::cli::dispatch(argc, argv);
  } catch (const kv::Interrupted& stop) {
    fmt::print(stderr, "\nkvscale: {}\n", stop.what());
    return 130;  // 128 + SIGINT, as shells have it
  } catch (const std::exception& error) {
    fmt::print(stderr, "\nerror: {}\n", error.what());
    return kv::kExitUsage;
  }
}
