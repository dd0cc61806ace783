#include "endpoint/http_client.h"

#include <gtest/gtest.h>

#include <thread>

#include "endpoint/event_lines.h"
#include "tests/endpoint/fake_server.h"

namespace kv {
namespace {

using testing::FakeAnswer;
using testing::FakeRequest;
using testing::FakeServer;
using testing::message_of;
using testing::ok;
using testing::quick;
using testing::refused;

TEST(HttpClient, KeepsItsConnection) {
  FakeServer server([](const FakeRequest& request) { return ok(request.method + request.body); });
  HttpClient client(quick(server.url() + "/v1/"));
  EXPECT_EQ(client.url(), server.url());
  EXPECT_EQ(client.get("/a").body, "GET");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(client.post("/b", "{}").body, "POST{}");
  EXPECT_EQ(server.connections(), 1);
}

TEST(HttpClient, SeveralThreadsHaveAConnectionEach) {
  FakeServer server([](const FakeRequest& request) { return ok(request.body); });
  HttpClient client(quick(server.url()));
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < 20; ++i) {
        const std::string body = std::to_string(100 * t + i);
        right += client.post("/", body).body == body;
      }
    });
  }
  for (std::thread& one : threads) one.join();
  EXPECT_EQ(right, 80);
  EXPECT_LE(server.connections(), 4);
}

TEST(HttpClient, TheKeyIsSentAndNeverTold) {
  std::string seen;
  FakeServer server([&](const FakeRequest& request) {
    seen = request.headers;
    return refused(401, "the key secret-key-1 is\nnot known");
  });
  HttpOptions options = quick(server.url());
  options.api_key = "secret-key-1";
  HttpClient client(options);
  const HttpReply reply = client.get("/v1/models");
  EXPECT_NE(seen.find("Authorization: Bearer secret-key-1"), std::string::npos);
  EXPECT_EQ(reply.status, 401);
  EXPECT_EQ(client.shown(reply.body), "the key *** is not known");
}

TEST(HttpClient, AsksAgainWhenAskedForPatience) {
  int number = 0;
  FakeServer server([&](const FakeRequest&) {
    ++number;
    if (number == 1) return refused(429, "slow down", "Retry-After: 60\r\n");
    if (number == 2) return refused(503, "starting");
    return ok("there");
  });
  HttpClient client(quick(server.url()));
  EXPECT_EQ(client.post("/", "{}").body, "there");
  EXPECT_EQ(client.retries(), 2);
  EXPECT_EQ(number, 3);
}

TEST(HttpClient, AsksAgainWhenTheConnectionIsDropped) {
  int number = 0;
  FakeServer server([&](const FakeRequest&) {
    ++number;
    if (number == 1) return FakeAnswer{"", true, ""};
    if (number == 2)
      return FakeAnswer{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf", true, ""};
    return ok("whole");
  });
  HttpClient client(quick(server.url()));
  EXPECT_EQ(client.post("/", "{}").body, "whole");
  EXPECT_EQ(number, 3);
}

TEST(HttpClient, GivesUpAfterItsAttempts) {
  FakeServer server([](const FakeRequest&) { return refused(503, "never\x1b[2J ready"); });
  HttpOptions options = quick(server.url());
  options.attempts = 3;
  HttpClient client(options);
  EXPECT_EQ(message_of([&] { client.get("/health"); }),
            "GET " + server.url() + "/health: status 503: never [2J ready (3 attempts)");
  EXPECT_EQ(server.requests(), 3);
}

TEST(HttpClient, OtherRefusalsAreRepliesAtOnce) {
  FakeServer server([](const FakeRequest&) { return refused(500, "broken"); });
  HttpClient client(quick(server.url()));
  EXPECT_EQ(client.post("/", "{}").status, 500);
  EXPECT_EQ(server.requests(), 1);
}

TEST(HttpClient, AServerThatIsNotThereIsNamed) {
  HttpOptions options = quick("http://127.0.0.1:1");
  options.attempts = 2;
  const std::string text = message_of([&] { HttpClient(options).get("/x"); });
  EXPECT_TRUE(text.starts_with("GET http://127.0.0.1:1/x: ")) << text;
  EXPECT_TRUE(text.ends_with("(2 attempts)")) << text;
}

TEST(HttpClient, EndlessRepliesEnd) {
  for (const bool has_length : {false, true}) {
    FakeServer server([&](const FakeRequest&) {
      const std::string length = has_length ? "Content-Length: 99999999\r\n" : "";
      return FakeAnswer{"HTTP/1.1 200 OK\r\n" + length + "\r\n", true, std::string(4096, 'x')};
    });
    HttpOptions options = quick(server.url());
    options.max_reply_bytes = 100'000;
    HttpClient client(options);
    EXPECT_EQ(message_of([&] { client.get("/"); }),
              "GET " + server.url() + "/: expected a reply of at most 100000 bytes, found more");
  }
}

TEST(HttpClient, SilentServersEnd) {
  std::atomic<bool> done{false};
  FakeServer server([&](const FakeRequest&) {
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return ok("late");
  });
  HttpOptions options = quick(server.url());
  options.timeout = std::chrono::milliseconds(100);
  HttpClient client(options);
  EXPECT_NE(message_of([&] { client.get("/"); }).find("GET " + server.url() + "/: "),
            std::string::npos);
  EXPECT_EQ(server.requests(), 1);  // a time that ran out is not tried again
  done = true;
}

TEST(HttpClient, StopsWhenItIsTold) {
  std::atomic<bool> stop{false}, done{false};
  FakeServer server([&](const FakeRequest&) {
    stop = true;
    while (!done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return ok("late");
  });
  HttpOptions options = quick(server.url());
  options.stop = &stop;
  HttpClient client(options);
  EXPECT_THROW(client.get("/"), RequestStopped);
  EXPECT_THROW(client.get("/"), RequestStopped);
  EXPECT_EQ(server.requests(), 1);
  done = true;
}

TEST(HttpClient, RedirectsAreNotFollowed) {
  FakeServer other([](const FakeRequest&) { return ok("stolen"); });
  FakeServer server(
      [&](const FakeRequest&) { return refused(307, "", "Location: " + other.url() + "\r\n"); });
  HttpClient client(quick(server.url()));
  EXPECT_EQ(client.post("/", "{\"prompt\": [1]}").status, 307);
  EXPECT_EQ(other.requests(), 0);
}

TEST(HttpClient, RefusesOtherUrls) {
  for (const char* url : {"", "ftp://host", "file:///etc/passwd", "host:8000", "http://",
                          "http://user:secret@host", "http://host?x=1", "http://host/#a"}) {
    const std::string text = message_of([&] { HttpClient client(quick(url)); });
    EXPECT_TRUE(text.starts_with("server: expected ")) << url << ": " << text;
    EXPECT_EQ(text.find("secret"), std::string::npos);
  }
  EXPECT_EQ(normalised_url("https://host.example/proxy/v1/"), "https://host.example/proxy");
}

TEST(HttpClient, StreamsEvents) {
  FakeServer server([](const FakeRequest&) {
    return FakeAnswer{
        "HTTP/1.1 200 OK\r\n\r\n: comment\r\ndata: one\r\n\r\nid: 7\ndata:two\n\ndata: torn", true,
        ""};
  });
  HttpClient client(quick(server.url()));
  std::vector<std::string> events;
  client.stream("/", "{}", [&](std::string_view text) {
    events.emplace_back(text);
    return true;
  });
  EXPECT_EQ(events, (std::vector<std::string>{"one", "two"}));
}

TEST(HttpClient, EndlessStreamsEndByTheirReader) {
  FakeServer server([](const FakeRequest&) {
    return FakeAnswer{"HTTP/1.1 200 OK\r\n\r\n", true, "data: more\n"};
  });
  HttpOptions options = quick(server.url());
  options.max_reply_bytes = 100'000;  // more than three pieces, of 16 KB at most, as they arrive
  HttpClient client(options);
  int count = 0;
  client.stream("/", "{}", [&](std::string_view) { return ++count < 3; });
  EXPECT_EQ(count, 3);
  EXPECT_THROW(client.stream("/", "{}", [](std::string_view) { return true; }), IoError);
  EXPECT_THROW(client.stream("/", "{}", [](std::string_view) -> bool { throw ValueError("mine"); }),
               ValueError);
}

TEST(HttpClient, AStreamThatWasHeardIsNotAskedForAgain) {
  FakeServer server([](const FakeRequest&) {
    return FakeAnswer{"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\ndata: one\n", true, ""};
  });
  HttpClient client(quick(server.url()));
  int count = 0;
  EXPECT_THROW(client.stream("/", "{}", [&](std::string_view) { return ++count > 0; }), IoError);
  EXPECT_EQ(count, 1);
  EXPECT_EQ(server.requests(), 1);
}

TEST(EventLines, AnyCutGivesTheSameLines) {
  const std::string text = "data: a\n\ndata: b c\r\n: no\ndata:\n";
  for (size_t first = 0; first <= text.size(); ++first) {
    for (size_t second = first; second <= text.size(); ++second) {
      EventLines lines;
      std::vector<std::string> found;
      const auto keep = [&](std::string_view line) {
        found.emplace_back(line);
        return true;
      };
      lines.take(std::string_view(text).substr(0, first), keep);
      lines.take(std::string_view(text).substr(first, second - first), keep);
      lines.take(std::string_view(text).substr(second), keep);
      EXPECT_EQ(found, (std::vector<std::string>{"a", "b c", ""})) << first << " " << second;
    }
  }
}

}  // namespace
}  // namespace kv
