// How often a comparison keeps what loses, and calls noise a loss: prints the table of the method's
// 4.9 and the same for clustered questions, as Markdown.
//
//   kv_operating_characteristics [SIMULATIONS]     (default 4000; some minutes on one core)

#include <fmt/core.h>

#include <cstdlib>

#include "bench/operating_characteristics.h"

namespace {

using namespace kv;

void print_row(const Truth& truth, const Characteristics& c) {
  fmt::print("| {} | {:.3f} | {:.3f} | {:.3f} | {:.0f} |\n", truth.name, c.keep_rate(),
             c.shift_rate(), c.open_rate(), c.questions);
}

void print_head(const std::string& title) {
  fmt::print(
      "\n{}\n\n| truth | KEEP | SHIFT or LOSS | inconclusive | questions a bucket |\n"
      "| --- | --- | --- | --- | --- |\n",
      title);
}

/// Independent questions, as the published table has them.
void print_published(int64_t simulations) {
  DecideOptions options = DecideOptions::standard();
  options.documents = 1000;
  options.questions_per_document = 1;
  print_head("1,000 independent questions in each of four buckets, without the rule of the halves");
  for (const Truth& truth : published_truths()) {
    print_row(truth, simulate(options, truth, 0, false, simulations, 1));
  }
}

/// Questions that share documents, at the margins: what is kept here is kept falsely.
void print_clustered(int64_t simulations) {
  const DecideOptions options = DecideOptions::standard();
  const Truth at_overall{"2/1 everywhere (at the overall margin)", std::vector<double>(4, 0.02),
                         std::vector<double>(4, 0.01)};
  const Truth at_bucket{"last bucket 3/1 (at the bucket margin)",
                        {0.01, 0.01, 0.01, 0.03},
                        std::vector<double>(4, 0.01)};
  const Truth longest{"last bucket 4/1 (3 points in the longest alone)",
                      {0.01, 0.01, 0.01, 0.04},
                      std::vector<double>(4, 0.01)};
  const Truth harmless{"1/1 everywhere", std::vector<double>(4, 0.01),
                       std::vector<double>(4, 0.01)};
  for (const double correlation : {0.0, 0.05, 0.1, 0.3}) {
    print_head(fmt::format(
        "{} documents of {} questions, correlation {} within a document, halves must agree",
        options.documents, options.questions_per_document, correlation));
    for (const Truth& truth : {at_overall, at_bucket, longest, harmless}) {
      print_row(truth, simulate(options, truth, correlation, true, simulations, 2));
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  const int64_t simulations = argc > 1 ? std::atoll(argv[1]) : 4000;
  if (argc > 2 || simulations < 1) {
    fmt::print(stderr, "expected [SIMULATIONS], a number from 1\n");
    return 1;
  }
  print_published(simulations);
  print_clustered(simulations);
  return 0;
}
