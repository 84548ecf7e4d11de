#include "garam/core/card_error.h"

#include <gtest/gtest.h>

#include "garam/core/error.h"

namespace garam {
namespace {

std::string error_of(int status) {
    try {
        throw_card_error(status, "cuda:1", "computing", "what the driver says");
    } catch (const Error& error) {
        return error.what();
    }
    return "no Error";
}

TEST(CardError, ALostCardIsNamedWithWhatToDo) {
    for (const int status : {card_status::kEccUncorrectable, card_status::kLaunchFailure,
                             card_status::kIllegalAddress, card_status::kUnknown}) {
        EXPECT_TRUE(is_lost_card(status));
        const std::string error = error_of(status);
        for (const char* part : {"cuda:1 was lost while computing", "what the driver says",
                                 "nvidia-smi", "train.resume_from_checkpoint=true"})
            EXPECT_NE(error.find(part), std::string::npos) << part << " in: " << error;
    }
}

TEST(CardError, ExhaustedMemoryNamesItsPool) {
    EXPECT_FALSE(is_lost_card(card_status::kOutOfMemory));
    EXPECT_NE(error_of(card_status::kOutOfMemory).find("card memory of cuda:1"), std::string::npos);
}

// What no user can mend: a mistake in a call.
TEST(CardError, OtherFailuresAreBugs) {
    EXPECT_THROW(throw_card_error(1, "cuda:0", "computing", "invalid argument"), Bug);
}

}  // namespace
}  // namespace garam
