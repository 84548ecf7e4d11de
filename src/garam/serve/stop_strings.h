// Texts that end an answer. They may begin and end inside tokens, so text that could be the
// beginning of one is held back until it is known not to be.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace garam {

class StopStrings {
  public:
    // Throws Error when one is empty.
    explicit StopStrings(std::vector<std::string> stops);

    // Returns what is certain to belong to the answer. After the first stop string, which is not
    // returned, everything is dropped.
    std::string push(std::string_view text);
    bool stopped() const { return stopped_; }
    // What is still held back, at the end of the answer.
    std::string flush();

  private:
    std::vector<std::string> stops_;
    std::string held_;
    bool stopped_ = false;
};

}  // namespace garam
