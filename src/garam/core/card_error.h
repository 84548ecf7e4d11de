// What a call into a card's driver that failed means to the user. The rooms that call CUDA name a failure
// by its number (cudaError_t); CUDA keeps these numbers from version to version, and runtime/cuda checks
// them against its header.
#pragma once

#include <string>

namespace garam {

namespace card_status {
constexpr int kOutOfMemory = 2;
constexpr int kPriorLaunchFailure = 53;
constexpr int kDevicesUnavailable = 46;
constexpr int kEccUncorrectable = 214;
constexpr int kNvlinkUncorrectable = 220;
constexpr int kContained = 226;
constexpr int kIllegalAddress = 700;
constexpr int kLaunchTimeout = 702;
constexpr int kContextIsDestroyed = 709;
constexpr int kAssert = 710;
constexpr int kHardwareStackError = 714;
constexpr int kIllegalInstruction = 715;
constexpr int kMisalignedAddress = 716;
constexpr int kInvalidAddressSpace = 717;
constexpr int kInvalidPc = 718;
constexpr int kLaunchFailure = 719;
constexpr int kMpsConnectionFailed = 805;
constexpr int kMpsRpcFailure = 806;
constexpr int kMpsClientTerminated = 810;
constexpr int kUnknown = 999;
}  // namespace card_status

// True when the process can compute nothing more on the card: every later call gives the same status.
bool is_lost_card(int status);

// `card` as the user names it ("cuda:0"); `doing` what failed ("computing", "copying to the card");
// `said` the driver's own words. Throws Error where the user can do something: a lost card, memory
// exhausted; else Bug.
[[noreturn]] void throw_card_error(int status, const std::string& card, const std::string& doing,
                                   const std::string& said);

}  // namespace garam
