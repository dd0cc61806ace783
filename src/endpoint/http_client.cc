#include "endpoint/http_client.h"

#include <curl/curl.h>
#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "endpoint/event_lines.h"

namespace kv {
namespace {

using Milliseconds = std::chrono::milliseconds;

void start_curl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  if (code != CURLE_OK) throw IoError(fmt::format("libcurl: {}", curl_easy_strerror(code)));
}

struct UrlParts {
  std::string scheme, host;
};

std::string part_of(CURLU* url, CURLUPart which) {
  char* text = nullptr;
  if (curl_url_get(url, which, &text, 0) != CURLUE_OK) return "";
  std::string out(text);
  curl_free(text);
  return out;
}

UrlParts parts_of(const std::string& text) {
  const std::unique_ptr<CURLU, void (*)(CURLU*)> url(curl_url(), curl_url_cleanup);
  const bool is_url = curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) == CURLUE_OK;
  UrlParts out;
  if (is_url) out = {part_of(url.get(), CURLUPART_SCHEME), part_of(url.get(), CURLUPART_HOST)};
  if (is_url && !part_of(url.get(), CURLUPART_USER).empty()) {
    throw ValueError(
        "server: expected a URL without user name and password (a key has an option of its own)");
  }
  const bool has_more = is_url && (!part_of(url.get(), CURLUPART_QUERY).empty() ||
                                   !part_of(url.get(), CURLUPART_FRAGMENT).empty());
  if ((out.scheme != "http" && out.scheme != "https") || out.host.empty() || has_more) {
    throw ValueError(fmt::format("server: expected http://HOST:PORT or https://HOST, found \"{}\"",
                                 text.substr(0, 200)));
  }
  return out;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" || host.starts_with("127.");
}

bool is_worth_another_attempt(CURLcode code) {
  return code == CURLE_COULDNT_CONNECT || code == CURLE_SEND_ERROR || code == CURLE_RECV_ERROR ||
         code == CURLE_GOT_NOTHING || code == CURLE_PARTIAL_FILE || code == CURLE_HTTP2 ||
         code == CURLE_HTTP2_STREAM;
}

bool is_worth_another_attempt(int status) { return status == 429 || status == 503; }

/// Owns what curl only points to.
struct HeaderList {
  curl_slist* list = nullptr;
  ~HeaderList() { curl_slist_free_all(list); }
  void add(const std::string& header) { list = curl_slist_append(list, header.c_str()); }
};

}  // namespace

std::string normalised_url(const std::string& url) {
  start_curl();
  parts_of(url);
  std::string out = url;
  const auto cut_slashes = [&out] {
    while (out.ends_with('/')) out.pop_back();
  };
  cut_slashes();
  if (out.ends_with("/v1")) out.resize(out.size() - 3);
  cut_slashes();
  return out;
}

/// Handles that are not in use, each with the connections that it keeps.
struct HttpClient::Pool {
  std::mutex mutex;
  std::vector<CURL*> idle;

  ~Pool() {
    for (CURL* handle : idle) curl_easy_cleanup(handle);
  }

  CURL* take() {
    {
      const std::lock_guard lock(mutex);
      if (!idle.empty()) {
        CURL* handle = idle.back();
        idle.pop_back();
        return handle;
      }
    }
    CURL* handle = curl_easy_init();
    if (handle == nullptr) throw IoError("libcurl: no handle");
    return handle;
  }

  void give_back(CURL* handle) {
    curl_easy_reset(handle);  // keeps its connections
    const std::lock_guard lock(mutex);
    idle.push_back(handle);
  }
};

/// What one attempt is told and what comes back.
struct HttpClient::Transfer {
  int64_t limit = 0;
  bool anew = false;  // on a connection that nothing else uses
  const std::atomic<bool>* stop = nullptr;
  const std::function<bool(std::string_view)>* event = nullptr;

  CURL* handle = nullptr;
  std::string body;
  EventLines lines;
  int64_t received = 0;
  bool is_too_large = false, is_ended_by_us = false, has_delivered = false;
  std::exception_ptr failure;  // of `event`
  long retry_after_s = 0;
  std::string error;

  static size_t on_body(char* data, size_t, size_t n, void* user) {
    return static_cast<Transfer*>(user)->take({data, n}) ? n : CURL_WRITEFUNC_ERROR;
  }

  static int on_progress(void* user, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
    const auto* self = static_cast<const Transfer*>(user);
    return self->stop != nullptr && self->stop->load() ? 1 : 0;
  }

  bool take(std::string_view data) {
    received += std::ssize(data);
    is_too_large = received > limit;
    if (is_too_large) return false;
    long status = 0;
    curl_easy_getinfo(handle, CURLINFO_RESPONSE_CODE, &status);
    if (event == nullptr || status < 200 || status >= 300) {
      body += data;
      return true;
    }
    try {
      is_ended_by_us = !lines.take(data, [&](std::string_view text) {
        has_delivered = true;
        return (*event)(text);
      });
    } catch (...) {  // not through C
      failure = std::current_exception();
      return false;
    }
    return !is_ended_by_us;
  }
};

HttpClient::HttpClient(HttpOptions options)
    : options_(std::move(options)), pool_(std::make_unique<Pool>()) {
  options_.url = normalised_url(options_.url);
  is_loopback_ = is_loopback(parts_of(options_.url).host);
}

HttpClient::~HttpClient() = default;

std::string HttpClient::describe(std::string_view method, std::string_view route) const {
  return fmt::format("{} {}{}", method, options_.url, route);
}

std::string HttpClient::shown(std::string_view text) const {
  std::string out(text.substr(0, 4096));
  const std::string& key = options_.api_key;
  for (size_t at = 0; !key.empty() && (at = out.find(key, at)) != std::string::npos;) {
    out.replace(at, key.size(), "***");
    at += 3;
  }
  if (out.size() > 200) out = out.substr(0, 200) + "...";
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return out;
}

void HttpClient::check_stop() const {
  if (options_.stop != nullptr && options_.stop->load()) {
    throw RequestStopped(options_.url + ": stopped");
  }
}

void HttpClient::pause(Milliseconds time) const {
  constexpr Milliseconds kSlice{50};
  for (Milliseconds left = time; left.count() > 0; left -= kSlice) {
    check_stop();
    std::this_thread::sleep_for(std::min(left, kSlice));
  }
}

HttpReply HttpClient::get(const std::string& route) {
  return request("GET", route, nullptr, nullptr);
}

HttpReply HttpClient::get_anew(const std::string& route) {
  return request("GET", route, nullptr, nullptr, true);
}

HttpReply HttpClient::post(const std::string& route, const std::string& json) {
  return request("POST", route, &json, nullptr);
}

void HttpClient::stream(const std::string& route, const std::string& json,
                        const std::function<bool(std::string_view)>& event) {
  const HttpReply reply = request("POST", route, &json, &event);
  if (reply.is_ok()) return;
  throw IoError(
      fmt::format("{}: status {}: {}", describe("POST", route), reply.status, shown(reply.body)));
}

/// One attempt; the curl code of its end. Sets status only through the handle's own record.
int HttpClient::attempt(const std::string& route, const std::string* json, Transfer& transfer) {
  CURL* handle = transfer.handle;
  char message[CURL_ERROR_SIZE] = "";
  HeaderList headers;
  // Without it curl waits for a "100 Continue" that few servers of models send.
  headers.add("Expect:");
  if (!options_.api_key.empty()) headers.add("Authorization: Bearer " + options_.api_key);
  const std::string url = options_.url + route;
  curl_easy_setopt(handle, CURLOPT_URL, url.c_str());
  curl_easy_setopt(handle, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(handle, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(handle, CURLOPT_TCP_KEEPALIVE, 1L);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, message);
  curl_easy_setopt(handle, CURLOPT_CONNECTTIMEOUT_MS, options_.connect_timeout.count());
  curl_easy_setopt(handle, CURLOPT_TIMEOUT_MS, options_.timeout.count());
  curl_easy_setopt(handle, CURLOPT_WRITEFUNCTION, Transfer::on_body);
  curl_easy_setopt(handle, CURLOPT_WRITEDATA, &transfer);
  curl_easy_setopt(handle, CURLOPT_NOPROGRESS, 0L);
  curl_easy_setopt(handle, CURLOPT_XFERINFOFUNCTION, Transfer::on_progress);
  curl_easy_setopt(handle, CURLOPT_XFERINFODATA, &transfer);
  if (transfer.anew) {
    curl_easy_setopt(handle, CURLOPT_FRESH_CONNECT, 1L);
    curl_easy_setopt(handle, CURLOPT_FORBID_REUSE, 1L);
  }
  if (is_loopback_) curl_easy_setopt(handle, CURLOPT_PROXY, "");
  if (json != nullptr) {
    headers.add("Content-Type: application/json");
    curl_easy_setopt(handle, CURLOPT_POSTFIELDS, json->data());
    curl_easy_setopt(handle, CURLOPT_POSTFIELDSIZE_LARGE, static_cast<curl_off_t>(json->size()));
  }
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, headers.list);
  const CURLcode code = curl_easy_perform(handle);
  curl_off_t retry_after = 0;
  curl_easy_getinfo(handle, CURLINFO_RETRY_AFTER, &retry_after);
  transfer.retry_after_s = static_cast<long>(retry_after);
  transfer.error = message[0] != '\0' ? message : curl_easy_strerror(code);
  curl_easy_setopt(handle, CURLOPT_ERRORBUFFER, nullptr);
  curl_easy_setopt(handle, CURLOPT_HTTPHEADER, nullptr);
  return code;
}

HttpReply HttpClient::request(const std::string& method, const std::string& route,
                              const std::string* json,
                              const std::function<bool(std::string_view)>* event, bool anew) {
  const std::string what = describe(method, route);
  Milliseconds next_pause = options_.first_pause;
  for (int number = 1;; ++number) {
    check_stop();
    Transfer transfer;
    transfer.limit = options_.max_reply_bytes;
    transfer.anew = anew;
    transfer.stop = options_.stop;
    transfer.event = event;
    transfer.handle = pool_->take();
    const auto code = static_cast<CURLcode>(attempt(route, json, transfer));
    long status = 0;
    curl_easy_getinfo(transfer.handle, CURLINFO_RESPONSE_CODE, &status);
    pool_->give_back(transfer.handle);
    if (transfer.failure) std::rethrow_exception(transfer.failure);
    if (transfer.is_ended_by_us) return {static_cast<int>(status), ""};
    if (transfer.is_too_large) {
      throw IoError(fmt::format("{}: expected a reply of at most {} bytes, found more", what,
                                options_.max_reply_bytes));
    }
    check_stop();
    const bool asks_for_patience =
        code == CURLE_OK && is_worth_another_attempt(static_cast<int>(status));
    const bool was_dropped = is_worth_another_attempt(code) && !transfer.has_delivered;
    if (code == CURLE_OK && !asks_for_patience) {
      return {static_cast<int>(status), std::move(transfer.body)};
    }
    if ((!asks_for_patience && !was_dropped) || number >= options_.attempts) {
      const std::string why = asks_for_patience
                                  ? fmt::format("status {}: {}", status, shown(transfer.body))
                                  : shown(transfer.error);
      throw IoError(fmt::format("{}: {}{}", what, why,
                                number > 1 ? fmt::format(" ({} attempts)", number) : ""));
    }
    ++retries_;
    const Milliseconds asked = std::chrono::seconds(transfer.retry_after_s);
    pause(std::min(std::max(asked, next_pause), options_.longest_pause));
    next_pause = std::min(2 * next_pause, options_.longest_pause);
  }
}

}  // namespace kv
