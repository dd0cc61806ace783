#pragma once

#include <filesystem>
#include <memory>
#include <string>

#include "cli/args.h"
#include "study/served_arms.h"

namespace CLI {
class App;
}

namespace kv::cli {

/// The options about who answers, where it is not kvscale's own engine.
void add_servers(CLI::App* c, DecideArgs& args);

/// The servers' key from an environment variable or a file, so that it is in no list of processes;
/// empty when neither is named. Throws ValueError for both, and for a key that no header takes.
std::string read_api_key(const std::string& command, const std::string& variable,
                         const std::string& file);

/// How an engine, as `kvscale targets` spells it, is spoken to. Throws ValueError for one that no
/// dialect is known of.
Dialect served_dialect(const std::string& engine);

/// Whether the command line names servers.
bool names_servers(const DecideArgs& args);

/// The engine that serves, as `kvscale targets` spells it. Throws ValueError for one that no
/// dialect is known of.
std::string served_engine(const DecideArgs& args);

/// The servers that the command line names; `folder` is the run's. Reads the key. Throws ValueError
/// for options that do not go together.
std::unique_ptr<ServedArms> served_arms(const DecideArgs& args,
                                        const std::filesystem::path& folder);

/// The options about servers, as a shell reads them back; without the key's value.
std::string served_options(const DecideArgs& args);

}  // namespace kv::cli
