// The entry point that fuzzers other than ours know. GARAM_FUZZ_TARGET names the target.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "fuzz/target.h"
#include "garam/core/parallel.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    static const garam::fuzz::WorkFolder folder;
    static const garam::fuzz::Target* const target = [] {
        garam::set_num_threads(1);
        const char* name = std::getenv("GARAM_FUZZ_TARGET");
        return garam::fuzz::find_target(name == nullptr ? "" : name);
    }();
    if (target == nullptr) std::abort();
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    garam::fuzz::execute(*target, garam::fuzz::split(input, target->files), folder.path());
    return 0;
}
