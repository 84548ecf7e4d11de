#include "garam/train/run_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <deque>

#include "garam/core/error.h"
#include "garam/core/product_table.h"
#include "garam/models/model_folder.h"
#include "garam/models/pissa.h"
#include "garam/train/host_tensors.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

bool is_result(const std::string& name) {
    return name.starts_with("checkpoint-") || name.starts_with(".checkpoint-") ||
           name == "adapter" || name == "model" || name == "best" || name == "metrics.jsonl" ||
           name == "runs" || name == "config.yaml" || name == kProductTableFile;
}

// Whether `path` is `folder` or something in it, by whatever names.
bool lies_in(const fs::path& path, const fs::path& folder) {
    if (path.empty()) return false;
    std::error_code ignored;
    const fs::path inner = fs::weakly_canonical(path, ignored);
    const fs::path outer = fs::weakly_canonical(folder, ignored);
    return std::mismatch(outer.begin(), outer.end(), inner.begin(), inner.end()).first ==
           outer.end();
}

}  // namespace

RunFolder::RunFolder(const fs::path& output_dir) : path_(output_dir) {
    std::error_code error;
    made_ = fs::create_directories(path_, error);
    if (error || !fs::is_directory(path_))
        throw Error("train.output_dir: " + path_.string() + " cannot be made a folder" +
                    (error ? ": " + error.message() : ""));
    lock_ = ::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (lock_ >= 0 && ::flock(lock_, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
        ::close(lock_);
        throw Error("train.output_dir: another garam is training into " + path_.string() +
                    ": wait for it, or name another folder");
    }
}

RunFolder::~RunFolder() {
    std::error_code ignored;
    if (made_ && fs::is_empty(path_, ignored)) fs::remove(path_, ignored);
    if (lock_ >= 0) ::close(lock_);
}

std::vector<fs::path> RunFolder::results() const {
    std::vector<fs::path> found;
    for (const auto& entry : fs::directory_iterator(path_))
        if (is_result(entry.path().filename().string())) found.push_back(entry.path());
    return found;
}

void RunFolder::check_free(bool overwrite, const std::vector<fs::path>& inputs) const {
    for (const fs::path& result : results()) {
        if (!overwrite)
            throw Error("train.output_dir: " + path_.string() +
                        " holds the results of an earlier run (" + result.filename().string() +
                        "): go on with it (train.resume_from_checkpoint=true), name another "
                        "folder, or replace it (train.overwrite_output_dir=true)");
        for (const fs::path& input : inputs)
            if (lies_in(input, result))
                throw Error("train.overwrite_output_dir would remove " + input.string() +
                            ", which this run reads: name another train.output_dir");
    }
}

void RunFolder::clear() const {
    for (const fs::path& result : results()) {
        std::error_code error;
        fs::remove_all(result, error);
        if (error) throw Error(result.string() + " cannot be removed: " + error.message());
    }
}

std::string result_name(const PreparedJob& job) {
    return job.config.train.method == "full" ? "model" : "adapter";
}

namespace {

// With PiSSA: as an ordinary adapter of the base on the disk.
void write_doubled(Decoder& model, const std::optional<BaseQuantization>& base_quantization,
                   const fs::path& folder) {
    HostTensors now(model.device());
    HostTensors start(model.device());
    for (const Parameter& parameter : model.parameters())
        now.add(parameter.name, parameter.master);
    auto tensors = now.named();
    std::deque<std::vector<float>> values;
    const auto put = [&](std::size_t i, std::vector<float> doubled, const Shape& shape) {
        values.push_back(std::move(doubled));
        tensors[i].second = Tensor(values.back().data(), DType::f32, shape, DeviceKind::cpu);
    };
    for (const Decoder::TakenOut& taken : model.taken_out()) {
        start.add("A", taken.A);
        start.add("B", taken.B);
        const Tensor& A0 = start.named().end()[-2].second;
        const Tensor& B0 = start.named().end()[-1].second;
        put(taken.parameter, doubled_a(tensors[taken.parameter].second, A0),
            {2 * A0.extent(0), A0.extent(1)});
        put(taken.parameter + 1, doubled_b(tensors[taken.parameter + 1].second, B0),
            {B0.extent(0), 2 * B0.extent(1)});
    }
    write_peft_adapter(folder, doubled(*model.lora()), tensors, base_quantization);
}

}  // namespace

void write_result(const PreparedJob& job, Decoder& model, const fs::path& folder) {
    HostTensors tensors(model.device());
    if (!model.taken_out().empty()) {
        write_doubled(model, job.base_quantization, folder);
    } else if (model.lora() != nullptr) {
        for (const Parameter& parameter : model.parameters())
            tensors.add(parameter.name, parameter.master);
        write_peft_adapter(folder, *model.lora(), tensors.named(), job.base_quantization);
    } else {
        for (const Parameter& parameter : model.parameters())
            tensors.add(parameter.name,
                        parameter.copies.empty() ? parameter.master : parameter.copies[0].place);
        write_model_folder(folder, job.files, model.compute_dtype(), tensors.named());
    }
    job.tokenizer->save(folder);
}

}  // namespace garam
