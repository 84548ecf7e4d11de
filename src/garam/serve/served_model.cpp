#include "garam/serve/served_model.h"

#include <algorithm>
#include <filesystem>

#include "garam/core/error.h"
#include "garam/core/json.h"

namespace garam {
namespace {

void add_ids(const Json& value, const std::string& what, std::vector<std::int32_t>& ids) {
    const auto add = [&](const Json& id) {
        const std::int64_t number = id.integer(what);
        if (number < 0 || number > INT32_MAX)
            throw Error(what + " " + std::to_string(number) + " is no token id");
        ids.push_back(static_cast<std::int32_t>(number));
    };
    if (value.is_null()) return;
    if (!value.is_array()) return add(value);
    for (const Json& id : value.array())
        add(id);
}

}  // namespace

std::vector<std::int32_t> answer_end_ids(const ModelFiles& files, const DecoderConfig& config,
                                         const Tokenizer& tokenizer) {
    std::vector<std::int32_t> ids = config.eos_ids;
    if (tokenizer.eos_id()) ids.push_back(*tokenizer.eos_id());
    const std::filesystem::path file = files.path() / "generation_config.json";
    if (!files.is_gguf() && std::filesystem::exists(file)) {
        const Json settings = Json::parse_file(file);
        if (const Json* eos = settings.find("eos_token_id"); eos != nullptr)
            add_ids(*eos, file.string() + ": eos_token_id", ids);
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

}  // namespace garam
