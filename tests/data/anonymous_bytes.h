// Memory of this process that is no file's, which alone the system cannot take back.
#pragma once

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>

namespace garam::testing {

inline std::int64_t anonymous_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with("RssAnon:")) return std::stoll(line.substr(8)) * 1024;
    return 0;
}

// The most there was of it from here to stop(), looked at every few milliseconds.
class AnonymousPeak {
  public:
    AnonymousPeak()
        : watch_([this](const std::stop_token& stop) {
              while (!stop.stop_requested()) {
                  peak_ = std::max(peak_.load(), anonymous_bytes());
                  std::this_thread::sleep_for(std::chrono::milliseconds(5));
              }
          }) {}
    std::int64_t stop() {
        watch_ = {};
        return std::max(peak_.load(), anonymous_bytes());
    }

  private:
    std::atomic<std::int64_t> peak_ = 0;
    std::jthread watch_;
};

}  // namespace garam::testing
