#include "garam/train/run_folder.h"

#include "garam/core/error.h"
#include "garam/models/model_folder.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

bool is_result(const std::string& name) {
    return name.starts_with("checkpoint-") || name.starts_with(".checkpoint-") ||
           name == "adapter" || name == "model" || name == "best" || name == "metrics.jsonl" ||
           name == "runs" || name == "config.yaml";
}

}  // namespace

void begin_run_folder(const fs::path& output_dir, bool overwrite) {
    std::error_code error;
    fs::create_directories(output_dir, error);
    if (error || !fs::is_directory(output_dir))
        throw Error("train.output_dir: " + output_dir.string() + " cannot be made a folder" +
                    (error ? ": " + error.message() : ""));
    for (const auto& entry : fs::directory_iterator(output_dir)) {
        const std::string name = entry.path().filename().string();
        if (!is_result(name)) continue;
        if (!overwrite)
            throw Error("train.output_dir: " + output_dir.string() +
                        " holds the results of an earlier run (" + name +
                        "): go on with it (train.resume_from_checkpoint=true), name another "
                        "folder, or replace it (train.overwrite_output_dir=true)");
        fs::remove_all(entry.path(), error);
        if (error) throw Error(entry.path().string() + " cannot be removed: " + error.message());
    }
}

std::string result_name(const PreparedJob& job) {
    return job.config.train.method == "full" ? "model" : "adapter";
}

void write_result(const PreparedJob& job, Decoder& model, const fs::path& folder) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    if (model.lora() != nullptr) {
        for (const Parameter& parameter : model.parameters())
            tensors.emplace_back(parameter.name, parameter.master);
        write_peft_adapter(folder, *model.lora(), tensors);
    } else {
        for (const Parameter& parameter : model.parameters())
            tensors.emplace_back(parameter.name, parameter.copies.empty() ? parameter.master
                                                                          : parameter.copies[0]);
        write_model_folder(folder, job.files, model.compute_dtype(), tensors);
    }
    job.tokenizer->save(folder);
}

}  // namespace garam
