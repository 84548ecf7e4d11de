// Which of a decoder's linears an adapter's settings name, and with what rank and scale.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "garam/io/lora_settings.h"
#include "garam/models/decoder_family.h"

namespace garam {

struct ModuleAdapter {
    std::int64_t rank = 0;
    double scaling = 1;
};

// By path, of the linears given by theirs. Settings may use a family's own names or those of Transformers'
// class; they are left as the adapter's file is to have them: all-linear as the names it comes to, and of
// a family with names of its own these. Throws Error naming what matches no linear.
std::map<std::string, ModuleAdapter> resolve_adapters(LoraSettings& lora,
                                                      const DecoderFamily& family,
                                                      const std::vector<std::string>& linears);

}  // namespace garam
