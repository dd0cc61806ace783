// `decide` with servers, as far as the command line goes: which options go together.

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>

#include "tests/checkpoint/writers.h"

namespace {

class DecideServers : public testing::Test {
 protected:
  /// What `kvscale decide tiny ARGUMENTS` says on its way out with exit code 1.
  std::string refusal(const std::string& arguments) const {
    const std::string command = "cd " + folder_.path().string() +
                                " && rm -rf kvscale-decide-* && '" + KVSCALE "' decide tiny " +
                                arguments + " >stdout 2>stderr </dev/null";
    const int status = std::system(command.c_str());
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 1) << arguments;
    return kv::fixtures::read_file(folder_ / "stderr");
  }
  void expect_refusal(const std::string& arguments, const std::string& expected) const {
    const std::string found = refusal(arguments);
    EXPECT_NE(found.find(expected), std::string::npos) << arguments << ": " << found;
  }

  kv::fixtures::ScratchFolder folder_;
};

TEST_F(DecideServers, OptionsGoTogether) {
  const std::string both =
      "--control http://127.0.0.1:1 --candidate fp8_scale1=http://127.0.0.1:2 ";
  expect_refusal("--engine vllm", "--engine: expected --control and --candidate, or --launch");
  expect_refusal("--control http://127.0.0.1:1",
                 "expected --control URL and --candidate ARM=URL together, or --launch");
  expect_refusal(both + "--engine edge-llm", "expected vllm, sglang or tensorrt-llm");
  expect_refusal(both + "--engine tgi", "target: expected one of");
  expect_refusal(both + "--candidate fp8_scale1=http://127.0.0.1:3",
                 "expected one of fp8_scale1, found two");
  expect_refusal(both + "--candidate fp8_tensor",
                 "expected ARM=URL, as fp8_tensor=http://host:8000");
  expect_refusal(both + "--candidate bf16=http://127.0.0.1:3", "expected an FP8 layout");
  expect_refusal(both + "--candidate fp8_tensor/round=truncate=http://127.0.0.1:3",
                 "numerics and scales are the server's own");
  expect_refusal("--control ftp://host --candidate fp8_scale1=http://127.0.0.1:2",
                 "expected http://HOST:PORT or https://HOST, found \"ftp://host\"");
  expect_refusal("--launch 'serve {port} {flags}'", "expected the place {model}");
  expect_refusal("--launch 'serve {model} {port}'", "expected the place {flags}");
  expect_refusal(both + "--launch 'serve {model} {port} {flags}'",
                 "--launch starts the control too");
}

TEST_F(DecideServers, TheKeyIsNeverTold) {
  const std::string both =
      "--control http://127.0.0.1:1 --candidate fp8_scale1=http://127.0.0.1:2 ";
  expect_refusal(both + "--api-key-env KVSCALE_NO_SUCH_KEY", "KVSCALE_NO_SUCH_KEY: expected a key");
  expect_refusal(both + "--api-key-env A --api-key-file B", "found both");
  std::ofstream(folder_ / "key") << "secret word\n";
  const std::string found = refusal(both + "--api-key-file key");
  EXPECT_NE(found.find("key: expected a key of printable characters without blanks"),
            std::string::npos)
      << found;
  EXPECT_EQ(found.find("secret"), std::string::npos);
}

}  // namespace
