// Which of a decoder's linears an adapter's settings name, and with what rank and scale.
#pragma once

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "garam/io/lora_settings.h"
#include "garam/models/decoder_family.h"

namespace garam {

struct ModuleAdapter {
    std::int64_t rank = 0;
    double scaling = 1;
};

// By path, of the modules given by theirs: the linears, and as `ends` the token embedding and the head, which
// all-linear does not mean. Settings may use a family's own names or those of Transformers'
// class; they are left as the adapter's file is to have them: all-linear as the names it comes to, and of
// a family with names of its own these. Throws Error naming what matches no module.
std::map<std::string, ModuleAdapter> resolve_adapters(LoraSettings& lora,
                                                      const DecoderFamily& family,
                                                      const std::vector<std::string>& linears,
                                                      const std::vector<std::string>& ends = {});

// Those of `modules`, by path, that modules_to_save name, which are left in the family's own names. Throws
// Error naming what matches none, or what has an adapter, too.
std::set<std::string> resolve_saved_modules(LoraSettings& lora, const DecoderFamily& family,
                                            const std::vector<std::string>& modules,
                                            const std::map<std::string, ModuleAdapter>& adapters);
// Whether they name the module of that path.
bool is_saved_module(const LoraSettings& lora, const DecoderFamily& family,
                     const std::string& path);

}  // namespace garam
