#include "garam/serve/stop_strings.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"

namespace garam {
namespace {

// All that comes out when text arrives in pieces of `size` bytes.
std::string filtered(const std::vector<std::string>& stops, const std::string& text,
                     std::size_t size, bool& stopped) {
    StopStrings filter(stops);
    std::string out;
    for (std::size_t begin = 0; begin < text.size(); begin += size)
        out += filter.push(text.substr(begin, size));
    stopped = filter.stopped();
    return out + filter.flush();
}

TEST(StopStrings, EndTheTextHoweverItIsCut) {
    struct Case {
        std::vector<std::string> stops;
        std::string text;
        std::string wanted;
        bool stopped;
    };
    const std::vector<Case> cases = {
        {{}, "free text", "free text", false},
        {{"\n\n"}, "one\ntwo\n\nthree", "one\ntwo", true},
        {{"\n\n"}, "one\n", "one\n", false},
        {{"User:", "END"}, "answer USER: Us EN User: x END", "answer USER: Us EN ", true},
        {{"aab"}, "aaab", "a", true},
        {{"abcabd"}, "abcabcabd!", "abc", true},
        {{"bc", "abcd"}, "xabcd", "xa", true},
        {{"stop"}, "stop", "", true},
        {{"끝"}, "가나끝다", "가나", true},
    };
    for (const Case& one : cases) {
        for (std::size_t size = 1; size <= one.text.size(); ++size) {
            bool stopped = false;
            EXPECT_EQ(filtered(one.stops, one.text, size, stopped), one.wanted)
                << one.text << " in pieces of " << size;
            EXPECT_EQ(stopped, one.stopped) << one.text << " in pieces of " << size;
        }
    }
}

TEST(StopStrings, NeverLeakABeginning) {
    StopStrings filter({"<end>"});
    EXPECT_EQ(filter.push("a<"), "a");
    EXPECT_EQ(filter.push("en"), "");
    EXPECT_EQ(filter.push("t"), "<ent");
    EXPECT_EQ(filter.push("<end"), "");
    EXPECT_FALSE(filter.stopped());
    EXPECT_EQ(filter.push(">more"), "");
    EXPECT_TRUE(filter.stopped());
    EXPECT_EQ(filter.push("dropped"), "");
    EXPECT_EQ(filter.flush(), "");
}

TEST(StopStrings, AnEmptyOneIsRefused) {
    EXPECT_THROW(StopStrings({"a", ""}), Error);
}

}  // namespace
}  // namespace garam
