// What an answer decides: `{"verdict": "spam", …}` or the label alone.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace garam {

class VerdictReader {
  public:
    // `reference`: an answer as it should be. Where it holds a JSON object with `key`, answers are read
    // as such and the verdict is the value under it; else the whole answer is. Throws Error when it is a
    // JSON object without that key, naming those that there are, or with a value that is no text, number
    // or truth value.
    VerdictReader(std::string_view reference, const std::string& key);

    bool is_json() const { return is_json_; }
    // The verdict as it stands there. Of JSON: under the key of the first object of the answer that is
    // whole and has it, whatever stands around it (a code fence, a sentence). Else the answer without
    // white space, quotes and a full stop around it. Nothing when there is none.
    std::optional<std::string> read(std::string_view answer) const;
    // Which of the labels is the verdict: the one that equals it, else the only one that does but for the
    // case of ASCII letters.
    std::optional<std::int64_t> label_of(std::string_view answer,
                                         const std::vector<std::string>& labels) const;

  private:
    std::string key_;
    bool is_json_ = false;
};

}  // namespace garam
