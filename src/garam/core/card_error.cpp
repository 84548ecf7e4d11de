#include "garam/core/card_error.h"

#include "garam/core/error.h"

namespace garam {

bool is_lost_card(int status) {
    switch (status) {
        case card_status::kPriorLaunchFailure:
        case card_status::kDevicesUnavailable:
        case card_status::kEccUncorrectable:
        case card_status::kNvlinkUncorrectable:
        case card_status::kContained:
        case card_status::kIllegalAddress:
        case card_status::kLaunchTimeout:
        case card_status::kContextIsDestroyed:
        case card_status::kAssert:
        case card_status::kHardwareStackError:
        case card_status::kIllegalInstruction:
        case card_status::kMisalignedAddress:
        case card_status::kInvalidAddressSpace:
        case card_status::kInvalidPc:
        case card_status::kLaunchFailure:
        case card_status::kMpsConnectionFailed:
        case card_status::kMpsRpcFailure:
        case card_status::kMpsClientTerminated:
        case card_status::kUnknown:
            return true;
        default:
            return false;
    }
}

void throw_card_error(int status, const std::string& card, const std::string& doing,
                      const std::string& said) {
    if (is_lost_card(status))
        throw Error(card + " was lost while " + doing + " (" + said +
                    "): this process can compute nothing more on it. What was saved before is "
                    "whole: look at the card with nvidia-smi, then go on with "
                    "train.resume_from_checkpoint=true; where it is lost at the same step again, "
                    "the fault may be garam's");
    if (status == card_status::kOutOfMemory)
        throw Error("card memory of " + card + ": none was left while " + doing + " (" + said +
                    "): end other programs on the card (nvidia-smi), lower "
                    "train.per_device_train_batch_size or train.max_length, or set "
                    "train.gradient_checkpointing=true");
    throw Bug(doing + " on " + card + ": " + said);
}

}  // namespace garam
