// What one rendering may take: no template runs for long or takes much memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace garam::jinja {

// What is wrong while a template runs; the evaluator turns it into an Error that names source and line.
struct Failure {
    std::string message;
};
[[noreturn]] void fail(std::string message);

// Steps and levels are counted where the work is done. Memory is charged where it is taken: each text,
// list and dict charges itself when it becomes a Value (jinja/value.h), so that no operation can forget
// to. The sum is of all that was made, alive or not.
class Budget {
  public:
    static constexpr std::size_t kMaxText = std::size_t{64} << 20;    // one text with its marks
    static constexpr std::size_t kMaxBytes = std::size_t{512} << 20;  // of all values made
    static constexpr std::int64_t kMaxSteps = 10'000'000;             // evaluations and comparisons
    static constexpr std::int64_t kMaxIterations = 1'000'000;
    static constexpr int kMaxDepth = 400;  // of the evaluation

    // The one that charge() reaches on this thread, until it is gone.
    Budget();
    ~Budget();
    Budget(const Budget&) = delete;
    Budget& operator=(const Budget&) = delete;

    // Each throws Failure when that is too much.
    void step(std::int64_t count = 1);
    void iteration();
    void bytes(std::size_t count);
    // A pass through a text.
    void pass(std::size_t size) { step(static_cast<std::int64_t>(size / 16)); }
    // One that only compares, counts or copies.
    void scan(std::size_t size) { step(static_cast<std::int64_t>(size / 64)); }
    // To the rendering at work on this thread, if there is one.
    static void charge(std::size_t bytes);

    // Held while something nested is evaluated.
    class Level {
      public:
        explicit Level(Budget& budget);
        ~Level() { --budget_.depth_; }
        Level(const Level&) = delete;
        Level& operator=(const Level&) = delete;

      private:
        Budget& budget_;
    };

  private:
    Budget* outer_;
    std::int64_t steps_ = 0;
    std::int64_t iterations_ = 0;
    std::size_t bytes_ = 0;
    int depth_ = 0;
};

}  // namespace garam::jinja
