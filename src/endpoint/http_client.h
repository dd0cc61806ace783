#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "kvscale/error.h"

namespace kv {

/// The caller's stop flag was set while a request was under way.
struct RequestStopped : Error {
  using Error::Error;
};

/// How one server is reached.
struct HttpOptions {
  std::string url;      // "http://host:8000"; a "/" or "/v1" at its end is taken off
  std::string api_key;  // sent as a bearer token; never part of a message. Empty: none
  std::chrono::milliseconds connect_timeout{10'000};
  std::chrono::milliseconds timeout{600'000};  // of one attempt, from first byte sent to last read
  int64_t max_reply_bytes = int64_t{64} << 20;
  int attempts = 7;                            // the first one among them
  std::chrono::milliseconds first_pause{250};  // doubled before every further attempt
  std::chrono::milliseconds longest_pause{8'000};
  const std::atomic<bool>* stop = nullptr;  // looked at during transfers and pauses
};

struct HttpReply {
  int status = 0;
  std::string body;
  bool is_ok() const { return status >= 200 && status < 300; }
};

/// HTTP to one server: connections are kept and reused, proxies of the environment honoured (not
/// for loopback addresses, which no proxy reaches), certificates verified, redirects not followed,
/// replies limited in size and time. May be called from several threads at once; each request
/// under way has a connection of its own.
///
/// Refusals that ask for patience (429, 503) and connections that were refused or dropped are tried
/// again after growing pauses, or after the one that Retry-After names. A reply is returned once,
/// so that what was dropped counts as if it had never been sent.
class HttpClient {
 public:
  /// Throws ValueError for a URL that is not http or https, or that holds a user name or password.
  explicit HttpClient(HttpOptions options);
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  /// Any status but those that are tried again is a reply. Throws IoError naming server and route
  /// when none came within the limits, RequestStopped.
  HttpReply get(const std::string& route);
  HttpReply post(const std::string& route, const std::string& json);

  /// As get(), on a connection of its own: behind one address another server may answer it.
  HttpReply get_anew(const std::string& route);

  /// Server-sent events: `event` gets the text after each "data:"; false ends the transfer. The
  /// limit on bytes holds for the whole stream. Not tried again once an event was delivered. Throws
  /// as post() does, and IoError for a status that is no success.
  void stream(const std::string& route, const std::string& json,
              const std::function<bool(std::string_view)>& event);

  /// "POST http://host:8000/v1/completions", for messages.
  std::string describe(std::string_view method, std::string_view route) const;

  /// What a server sent, as a message may hold it: the first 200 bytes, control characters and the
  /// API key masked.
  std::string shown(std::string_view text) const;

  const std::string& url() const { return options_.url; }

  /// Attempts that were made again, over all requests.
  int64_t retries() const { return retries_; }

 private:
  struct Pool;
  struct Transfer;
  HttpReply request(const std::string& method, const std::string& route, const std::string* json,
                    const std::function<bool(std::string_view)>* event, bool anew = false);
  int attempt(const std::string& route, const std::string* json, Transfer& transfer);
  void pause(std::chrono::milliseconds time) const;
  void check_stop() const;

  HttpOptions options_;
  bool is_loopback_ = false;
  std::unique_ptr<Pool> pool_;
  std::atomic<int64_t> retries_{0};
};

/// The URL as HttpClient uses it. Throws ValueError as its constructor does.
std::string normalised_url(const std::string& url);

}  // namespace kv
