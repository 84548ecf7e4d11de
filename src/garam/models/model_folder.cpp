#include "garam/models/model_folder.h"

#include <algorithm>

#include "garam/io/atomic_write.h"
#include "garam/io/safetensors.h"
#include "garam/models/merge.h"

namespace garam {

void write_model_folder(const std::filesystem::path& folder, const ModelFiles& base, DType dtype,
                        const std::vector<std::pair<std::string, Tensor>>& tensors) {
    const bool tied = std::none_of(tensors.begin(), tensors.end(), [](const auto& named) {
        return named.first == "lm_head.weight";
    });
    write_file_atomically(folder / "config.json",
                          merged_config(base, dtype, tied, MergeOptions{}).dump(2) + "\n");
    write_safetensors(folder / "model.safetensors", tensors, {{"format", "pt"}});
    copy_generation_config(base, folder);
}

void copy_generation_config(const ModelFiles& base, const std::filesystem::path& folder) {
    const std::filesystem::path source = base.path() / "generation_config.json";
    if (!base.is_gguf() && std::filesystem::exists(source))
        std::filesystem::copy_file(source, folder / "generation_config.json");
}

}  // namespace garam
