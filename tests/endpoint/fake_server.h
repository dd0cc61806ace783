#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "endpoint/http_client.h"

namespace kv::testing {

/// Attempts without long pauses.
inline HttpOptions quick(const std::string& url, int attempts = 7) {
  HttpOptions options;
  options.url = url;
  options.attempts = attempts;
  options.first_pause = std::chrono::milliseconds(1);
  options.longest_pause = std::chrono::milliseconds(4);
  options.timeout = std::chrono::milliseconds(5'000);
  return options;
}

/// What a call throws; empty when it does not.
inline std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

struct FakeRequest {
  std::string method, route, headers, body;
};

/// What goes onto the wire, byte for byte: a test says how the server misbehaves.
struct FakeAnswer {
  std::string bytes;
  bool closes = false;  // the connection, after the bytes
  std::string endless;  // sent again and again behind the bytes until nobody listens
  // Sent one after the other behind the bytes, each after a pause of so many ms.
  std::vector<std::string> pieces = {};
  int piece_ms = 0;
};

inline FakeAnswer ok(const std::string& body, const std::string& more_headers = "") {
  return {"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n" + more_headers +
              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
          false, ""};
}

inline FakeAnswer refused(int status, const std::string& body, const std::string& headers = "") {
  return {"HTTP/1.1 " + std::to_string(status) + " No\r\n" + headers +
              "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body,
          false, ""};
}

/// An HTTP server on the loopback address in threads of this process.
class FakeServer {
 public:
  using Handler = std::function<FakeAnswer(const FakeRequest&)>;

  explicit FakeServer(Handler handler) : handler_(std::move(handler)) {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (::bind(listener_, generic, size) != 0 || ::listen(listener_, 64) != 0) std::abort();
    ::getsockname(listener_, generic, &size);
    port_ = ntohs(address.sin_port);
    accepter_ = std::thread([this] { accept_all(); });
  }

  ~FakeServer() {
    stopping_ = true;
    ::shutdown(listener_, SHUT_RDWR);
    accepter_.join();
    ::close(listener_);
    {
      const std::lock_guard lock(mutex_);
      for (const int one : open_) ::shutdown(one, SHUT_RDWR);
    }
    for (std::thread& one : threads_) one.join();
  }

  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }
  int port() const { return port_; }
  int connections() const { return connections_; }
  int requests() const { return requests_; }

 private:
  void accept_all() {
    while (!stopping_) {
      const int one = ::accept(listener_, nullptr, nullptr);
      if (one < 0) return;
      ++connections_;
      const std::lock_guard lock(mutex_);
      open_.push_back(one);
      threads_.emplace_back([this, one] { serve(one); });
    }
  }

  void serve(int one) {
    std::string buffer;
    FakeRequest request;
    while (read_request(one, buffer, request)) {
      ++requests_;
      const FakeAnswer answer = handler_(request);
      bool is_up = send_all(one, answer.bytes);
      for (const std::string& piece : answer.pieces) {
        if (!is_up) break;
        std::this_thread::sleep_for(std::chrono::milliseconds(answer.piece_ms));
        is_up = send_all(one, piece);
      }
      while (is_up && !answer.endless.empty() && !stopping_) is_up = send_all(one, answer.endless);
      if (!is_up || answer.closes || !answer.endless.empty()) break;
    }
    const std::lock_guard lock(mutex_);
    std::erase(open_, one);
    ::close(one);
  }

  static bool send_all(int one, const std::string& bytes) {
    for (size_t sent = 0; sent < bytes.size();) {
      const ssize_t n = ::send(one, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }

  static bool read_more(int one, std::string& buffer) {
    char piece[8192];
    const ssize_t n = ::recv(one, piece, sizeof piece, 0);
    if (n <= 0) return false;
    buffer.append(piece, static_cast<size_t>(n));
    return true;
  }

  static bool read_request(int one, std::string& buffer, FakeRequest& out) {
    size_t end = 0;
    while ((end = buffer.find("\r\n\r\n")) == std::string::npos) {
      if (!read_more(one, buffer)) return false;
    }
    out.headers = buffer.substr(0, end);
    const size_t first = out.headers.find(' '), second = out.headers.find(' ', first + 1);
    out.method = out.headers.substr(0, first);
    out.route = out.headers.substr(first + 1, second - first - 1);
    size_t length = 0;
    if (const size_t at = out.headers.find("Content-Length: "); at != std::string::npos) {
      length = std::stoul(out.headers.substr(at + 16));
    }
    while (buffer.size() < end + 4 + length) {
      if (!read_more(one, buffer)) return false;
    }
    out.body = buffer.substr(end + 4, length);
    buffer.erase(0, end + 4 + length);
    return true;
  }

  Handler handler_;
  int listener_ = -1, port_ = 0;
  std::atomic<bool> stopping_{false};
  std::atomic<int> connections_{0}, requests_{0};
  std::mutex mutex_;
  std::vector<int> open_;
  std::vector<std::thread> threads_;
  std::thread accepter_;
};

}  // namespace kv::testing
