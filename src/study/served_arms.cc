#include "study/served_arms.h"

#include <fmt/core.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "kvscale/error.h"

namespace kv {
namespace {

/// A file's name for an arm: "fp8_scale1_bf16_0".
std::string file_name_of(const std::string& key) {
  std::string out = key;
  std::ranges::replace_if(
      out, [](char c) { return c == '/' || c == '=' || c == ','; }, '_');
  return out;
}

}  // namespace

std::string served_key(const ArmSpec& arm) {
  ArmSpec out;
  out.layout = arm.layout;
  out.bf16 = arm.bf16;
  return out.text();
}

UrlArms::UrlArms(std::vector<std::pair<ArmSpec, std::string>> urls, HttpOptions http,
                 Dialect dialect, std::string model)
    : http_(std::move(http)), dialect_(dialect), model_(std::move(model)) {
  for (const auto& [arm, url] : urls) {
    const std::string key = served_key(arm);
    if (!urls_.emplace(key, normalised_url(url)).second) {
      throw ValueError(fmt::format("server: expected one of {}, found two", key));
    }
    if (arm.layout != ArmLayout::kBf16) candidates_.push_back(arm);
  }
  if (!urls_.contains(served_key(ArmSpec{})) || candidates_.empty()) {
    throw ValueError("server: expected a control and at least one candidate");
  }
}

std::string UrlArms::refusal(const ArmSpec& arm) const {
  const std::string key = served_key(arm);
  if (urls_.contains(key)) return "";
  return fmt::format("no server of {} was named: start one and add --candidate {}=URL", key, key);
}

std::shared_ptr<ServedArm> UrlArms::open(const ArmSpec& arm, const std::function<void()>& check) {
  const std::string key = served_key(arm);
  if (const auto found = open_.find(key); found != open_.end()) return found->second;
  check();
  HttpOptions http = http_;
  http.url = urls_.at(key);
  http.stop = &stop();
  auto out = std::make_shared<ServedArm>(http, dialect_, model_);
  if (!may_use_prefix_cache()) out->client.forbid_prefix_cache();
  out->facts = read_server_facts(out->client);
  constexpr int kLooks = 8;
  out->replicas = read_replicas(out->client, kLooks);
  out->scale_source = arm.needs_scales() ? "the server's own" : "";
  open_[key] = out;
  return out;
}

LaunchedArms::LaunchedArms(std::vector<ArmSpec> candidates, LaunchCommand how, HttpOptions http,
                           Dialect dialect, std::function<ArmLaunch(const ArmSpec&)> prepare,
                           std::function<std::string(const ArmSpec&)> refuse)
    : candidates_(std::move(candidates)),
      how_(std::move(how)),
      http_(std::move(http)),
      dialect_(dialect),
      prepare_(std::move(prepare)),
      refuse_(std::move(refuse)) {
  LaunchCommand probe = how_;
  probe.flags = {"--flag"};
  filled_in(probe, 0);  // says at once what the command lacks
}

std::shared_ptr<ServedArm> LaunchedArms::open(const ArmSpec& arm,
                                              const std::function<void()>& check) {
  const std::string key = served_key(arm);
  if (key == key_) {
    server_->expect_running();
    return arm_;
  }
  key_.clear();
  arm_.reset();
  server_.reset();  // before the next one needs its memory
  ArmLaunch launch = prepare_(arm);
  LaunchCommand how = how_;
  how.model = launch.model;
  how.flags = launch.flags;
  how.log = how_.log / (file_name_of(key) + ".log");
  server_ = std::make_unique<LaunchedServer>(how, check);
  HttpOptions http = http_;
  http.url = server_->url();
  http.stop = &stop();
  arm_ = std::make_shared<ServedArm>(http, dialect_, "");
  if (!may_use_prefix_cache()) arm_->client.forbid_prefix_cache();
  arm_->facts = read_server_facts(arm_->client);
  add_log_facts(server_->log(), arm_->facts);
  arm_->scale_source = launch.scale_source;
  key_ = key;
  return arm_;
}

}  // namespace kv
