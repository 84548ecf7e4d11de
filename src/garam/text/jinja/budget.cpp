#include "garam/text/jinja/budget.h"

#include <utility>

namespace garam::jinja {
namespace {

thread_local Budget* at_work = nullptr;

}  // namespace

void fail(std::string message) {
    throw Failure{std::move(message)};
}

Budget::Budget() : outer_(std::exchange(at_work, this)) {}
Budget::~Budget() {
    at_work = outer_;
}

void Budget::step(std::int64_t count) {
    steps_ += count;
    if (steps_ > kMaxSteps) fail("the template takes more than 10 million steps");
}
void Budget::iteration() {
    if (++iterations_ > kMaxIterations) fail("the template loops more than 1,000,000 times");
}
void Budget::bytes(std::size_t count) {
    bytes_ += count;
    if (bytes_ > kMaxBytes) fail("the template makes more than 512 MiB of values");
}
void Budget::charge(std::size_t bytes) {
    if (at_work != nullptr) at_work->bytes(bytes);
}

Budget::Level::Level(Budget& budget) : budget_(budget) {
    if (budget_.depth_ >= kMaxDepth) fail("blocks and calls are nested too deeply");
    ++budget_.depth_;
}

}  // namespace garam::jinja
