#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "endpoint/completion.h"
#include "endpoint/launched_server.h"
#include "endpoint/server_facts.h"
#include "engine/arm.h"

namespace kv {

/// What of an arm a server is chosen by: layout and layers kept in BF16. Numerics are the engine's.
std::string served_key(const ArmSpec& arm);

/// One arm's server.
struct ServedArm {
  ServedArm(const HttpOptions& http, Dialect dialect, const std::string& model)
      : client(http, dialect, model) {}
  CompletionClient client;
  ServerFacts facts;
  std::vector<ServerFacts> replicas;  // more than one, if they tell themselves apart
  std::string scale_source;
};

/// Where servers of arms come from. Used by one thread; the servers by several.
class ServedArms {
 public:
  virtual ~ServedArms() = default;

  /// The arms that the user named, the control not among them.
  virtual const std::vector<ArmSpec>& candidates() const = 0;

  /// Why an arm has no server, and what would give it one; empty: it has one.
  virtual std::string refusal(const ArmSpec& arm) const = 0;

  /// The arm's server, started if it has to be; `check` is called meanwhile and may throw to give
  /// up. Throws the endpoint's errors.
  virtual std::shared_ptr<ServedArm> open(const ArmSpec& arm,
                                          const std::function<void()>& check) = 0;

  /// Whether opening one closes the others.
  virtual bool is_exclusive() const = 0;

  /// Ends requests under way once it is set.
  std::atomic<bool>& stop() { return stop_; }

  /// Servers that are opened from now on may not answer from their prefix cache.
  void forbid_prefix_cache() { may_use_prefix_cache_ = false; }

 protected:
  bool may_use_prefix_cache() const { return may_use_prefix_cache_; }

 private:
  bool may_use_prefix_cache_ = true;
  std::atomic<bool> stop_{false};
};

/// Servers that run already.
class UrlArms : public ServedArms {
 public:
  /// `urls` by arm; `http.url` is not used. Throws ValueError without a control ("bf16") or any
  /// candidate.
  UrlArms(std::vector<std::pair<ArmSpec, std::string>> urls, HttpOptions http, Dialect dialect,
          std::string model);

  const std::vector<ArmSpec>& candidates() const override { return candidates_; }
  std::string refusal(const ArmSpec& arm) const override;
  std::shared_ptr<ServedArm> open(const ArmSpec& arm, const std::function<void()>& check) override;
  bool is_exclusive() const override { return false; }

 private:
  std::map<std::string, std::string> urls_;
  std::vector<ArmSpec> candidates_;
  HttpOptions http_;
  Dialect dialect_;
  std::string model_;
  std::map<std::string, std::shared_ptr<ServedArm>> open_;
};

/// What an arm's server is started with.
struct ArmLaunch {
  std::string model;  // the directory that it loads
  std::vector<std::string> flags;
  std::string scale_source;
};

/// Servers that are started one after the other.
class LaunchedArms : public ServedArms {
 public:
  /// `how.model` and `how.flags` come from `prepare`, which may write the directory first; `refuse`
  /// says why the engine cannot be told to serve an arm, or nothing. `how.log` is the folder for
  /// logs.
  LaunchedArms(std::vector<ArmSpec> candidates, LaunchCommand how, HttpOptions http,
               Dialect dialect, std::function<ArmLaunch(const ArmSpec&)> prepare,
               std::function<std::string(const ArmSpec&)> refuse);

  const std::vector<ArmSpec>& candidates() const override { return candidates_; }
  std::string refusal(const ArmSpec& arm) const override { return refuse_(arm); }
  std::shared_ptr<ServedArm> open(const ArmSpec& arm, const std::function<void()>& check) override;
  bool is_exclusive() const override { return true; }

 private:
  std::vector<ArmSpec> candidates_;
  LaunchCommand how_;
  HttpOptions http_;
  Dialect dialect_;
  std::function<ArmLaunch(const ArmSpec&)> prepare_;
  std::function<std::string(const ArmSpec&)> refuse_;
  std::string key_;  // of what runs
  std::shared_ptr<ServedArm> arm_;
  std::unique_ptr<LaunchedServer> server_;
};

}  // namespace kv
