#include "garam/train/checkpoint.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <set>
#include <string_view>

#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/io/safetensors.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr const char* kMastersFile = "masters.safetensors";
constexpr const char* kOptimizerFile = "optimizer.safetensors";
constexpr std::string_view kPrefix = "checkpoint-";

// Index of the first NaN or infinity of f32 values at any alignment, or -1.
std::int64_t first_non_finite(const void* values, std::int64_t count) {
    constexpr std::uint32_t kExponent = 0x7f800000u;
    constexpr std::int64_t kBlock = 4096;
    const char* bytes = static_cast<const char*>(values);
    std::uint32_t bits[kBlock];
    for (std::int64_t begin = 0; begin < count; begin += kBlock) {
        const std::int64_t n = std::min(kBlock, count - begin);
        std::memcpy(bits, bytes + begin * 4, static_cast<std::size_t>(n) * 4);
        std::uint32_t any = 0;  // without a branch inside, so that it is vectorised
        for (std::int64_t i = 0; i < n; ++i)
            any |= (bits[i] & kExponent) == kExponent;
        if (any == 0) continue;
        for (std::int64_t i = 0; i < n; ++i)
            if ((bits[i] & kExponent) == kExponent) return begin + i;
    }
    return -1;
}

void check_kind(const std::string& name, const Tensor& tensor) {
    GARAM_CHECK((tensor.dtype() == DType::f32 || tensor.dtype() == DType::u8) &&
                    tensor.is_dense() && tensor.device() == DeviceKind::cpu,
                name);
}

void check_writable(const NamedTensors& tensors, const fs::path& folder) {
    for (const auto& [name, tensor] : tensors) {
        check_kind(name, tensor);
        if (tensor.dtype() == DType::u8) continue;
        const std::int64_t at = first_non_finite(tensor.raw(), tensor.elements());
        if (at < 0) continue;
        throw Error(
            fmt::format("{}: not written, because {}[{}] is {}; the last good checkpoint stays "
                        "as it is. Lower train.learning_rate or train.max_grad_norm",
                        folder.string(), name, at, tensor.data<float>()[at]));
    }
}

std::optional<std::int64_t> step_of(const std::string& folder_name) {
    if (!std::string_view(folder_name).starts_with(kPrefix)) return std::nullopt;
    const char* begin = folder_name.data() + kPrefix.size();
    const char* end = folder_name.data() + folder_name.size();
    std::int64_t step = 0;
    const auto [stop, error] = std::from_chars(begin, end, step);
    if (error != std::errc() || stop != end || step < 0) return std::nullopt;
    return step;
}

// Folders named like checkpoints, by step.
std::map<std::int64_t, fs::path> checkpoint_folders(const fs::path& output_dir) {
    std::map<std::int64_t, fs::path> folders;
    std::error_code error;
    for (fs::directory_iterator it(output_dir, error), end; !error && it != end;
         it.increment(error)) {
        if (!it->is_directory(error)) continue;
        if (const auto step = step_of(it->path().filename().string())) folders[*step] = it->path();
    }
    return folders;
}

void check_sizes(const fs::path& folder, const StateFile& stored) {
    for (const auto& [name, record] : stored.files) {
        std::error_code error;
        const std::uintmax_t size = fs::file_size(folder / name, error);
        const std::string path = (folder / name).string();
        if (error)
            throw Error(path +
                        ": missing from the checkpoint; delete the folder or name another "
                        "checkpoint");
        if (size != static_cast<std::uintmax_t>(record.bytes))
            throw Error(
                fmt::format("{}: {} bytes, the checkpoint was written with {}; delete the folder "
                            "or name another checkpoint",
                            path, size, record.bytes));
    }
}

// The stored tensors in the order of those given; throws Error unless they are exactly these.
std::vector<const StoredTensor*> match(const SafetensorsFile& file, const NamedTensors& wanted) {
    const std::string source = file.path().string();
    std::vector<const StoredTensor*> matched;
    std::set<std::string_view> names;
    for (const auto& [name, tensor] : wanted) {
        check_kind(name, tensor);
        const bool is_f32 = tensor.dtype() == DType::f32;
        names.insert(name);
        const StoredTensor* stored = file.find(name);
        if (stored == nullptr)
            throw Error(source + ": tensor " + name +
                        " is missing: the checkpoint is of another run (lora.target_modules, "
                        "train.optim)");
        if (stored->type != (is_f32 ? StoredType::f32 : StoredType::u8) ||
            !(stored->shape == tensor.shape()))
            throw Error(
                fmt::format("{}: tensor {} is {} {}, the run has {} {}: the checkpoint is of "
                            "another run (model, lora.r)",
                            source, name, name_of(stored->type), stored->shape.to_string(),
                            name_of(tensor.dtype()), tensor.shape().to_string()));
        const std::int64_t at =
            is_f32 ? first_non_finite(stored->data, tensor.elements()) : std::int64_t{-1};
        if (at >= 0)
            throw Error(fmt::format("{}: {}[{}] is not finite; take an older checkpoint", source,
                                    name, at));
        matched.push_back(stored);
    }
    for (const StoredTensor& stored : file.tensors())
        if (!names.contains(stored.name))
            throw Error(source + ": tensor " + stored.name +
                        " is not trained by this run: the checkpoint is of another run "
                        "(lora.target_modules, train.optim)");
    return matched;
}

void copy(const std::vector<const StoredTensor*>& from, const NamedTensors& to) {
    for (std::size_t i = 0; i < to.size(); ++i)
        if (from[i]->bytes > 0) std::memcpy(to[i].second.raw(), from[i]->data, from[i]->bytes);
}

// A model file that stands in for the masters must hold their very bits.
void check_same(const fs::path& path, const NamedTensors& masters) {
    const auto file = SafetensorsFile::open(path);
    const auto stored = match(*file, masters);
    for (std::size_t i = 0; i < masters.size(); ++i)
        GARAM_CHECK(stored[i]->bytes == 0 || std::memcmp(masters[i].second.raw(), stored[i]->data,
                                                         stored[i]->bytes) == 0,
                    path.string() + " differs from " + masters[i].first);
}

void remove_checkpoint(const fs::path& folder) {
    const fs::path doomed =
        folder.parent_path() / ("." + folder.filename().string() + ".tmp-removed");
    std::error_code error;
    fs::remove_all(doomed, error);
    fs::rename(folder, doomed, error);
    if (!error) fs::remove_all(doomed, error);
    if (error)
        throw Error(folder.string() +
                    ": an old checkpoint could not be removed: " + error.message());
}

// Whether the folder has garam's state file, whatever the shape of the rest.
bool is_ours(const fs::path& folder) {
    try {
        read_state_file(folder);
        return true;
    } catch (const Error&) {
        return false;
    }
}

}  // namespace

fs::path save_checkpoint(const fs::path& output_dir, const CheckpointContents& contents) {
    const fs::path folder =
        output_dir / (std::string(kPrefix) + std::to_string(contents.state.global_step));
    check_writable(contents.masters, folder);
    check_writable(contents.optimizer, folder);
    std::error_code error;
    fs::create_directories(output_dir, error);
    if (error)
        throw Error(output_dir.string() + ": the output folder cannot be made: " + error.message());

    write_folder_atomically(folder, [&](const fs::path& temporary) {
        if (contents.write_model) contents.write_model(temporary);
        std::string masters_file = contents.masters_file;
        if (masters_file.empty()) {
            masters_file = kMastersFile;
            write_safetensors(temporary / masters_file, contents.masters);
        } else {
            check_same(temporary / masters_file, contents.masters);
        }
        const std::string optimizer_file = contents.optimizer.empty() ? "" : kOptimizerFile;
        if (!optimizer_file.empty())
            write_safetensors(temporary / optimizer_file, contents.optimizer);

        StateFile stored{contents.state, masters_file, optimizer_file, {}};
        for (const auto& entry : fs::recursive_directory_iterator(temporary))
            if (entry.is_regular_file())
                stored.files[entry.path().lexically_relative(temporary).generic_string()] =
                    record_file(entry.path());
        write_state_file(temporary, stored);
    });
    return folder;
}

Checkpoint Checkpoint::open(const fs::path& folder) {
    if (!fs::is_directory(folder))
        throw Error(folder.string() +
                    ": no such checkpoint folder; train.resume_from_checkpoint takes "
                    "true or the path of a checkpoint-<step> folder");
    StateFile stored = read_state_file(folder);
    check_sizes(folder, stored);
    for (const auto& [name, record] : stored.files) {
        if (record_file(folder / name).checksum != record.checksum)
            throw Error(
                (folder / name).string() +
                ": damaged (its checksum differs from what was written); delete the folder or "
                "name another checkpoint");
    }
    Checkpoint checkpoint;
    checkpoint.folder_ = folder;
    checkpoint.state_ = std::move(stored.state);
    checkpoint.masters_file_ = std::move(stored.masters_file);
    checkpoint.optimizer_file_ = std::move(stored.optimizer_file);
    for (const auto& [name, record] : stored.files)
        checkpoint.files_.insert(name);
    return checkpoint;
}

void Checkpoint::restore(const NamedTensors& masters, const NamedTensors& optimizer) const {
    const auto masters_file = SafetensorsFile::open(folder_ / masters_file_);
    const auto stored_masters = match(*masters_file, masters);
    if (optimizer_file_.empty() != optimizer.empty())
        throw Error(folder_.string() +
                    (optimizer.empty()
                         ? ": holds optimiser states that this run's optimiser does not use"
                         : ": holds no optimiser states, which this run's optimiser needs") +
                    "; train.optim must be that of the checkpoint");
    std::shared_ptr<const SafetensorsFile> optimizer_file;
    std::vector<const StoredTensor*> stored_states;
    if (!optimizer.empty()) {
        optimizer_file = SafetensorsFile::open(folder_ / optimizer_file_);
        stored_states = match(*optimizer_file, optimizer);
    }
    copy(stored_masters, masters);
    copy(stored_states, optimizer);
}

LastCheckpoint find_last_checkpoint(const fs::path& output_dir) {
    LastCheckpoint last;
    const auto folders = checkpoint_folders(output_dir);
    for (auto it = folders.rbegin(); it != folders.rend(); ++it) {
        try {
            check_sizes(it->second, read_state_file(it->second));
            last.folder = it->second;
            return last;
        } catch (const Error& error) {
            last.passed_over.push_back(error.what());
        }
    }
    return last;
}

void remove_checkpoint_leftovers(const fs::path& output_dir) {
    const std::string prefix = "." + std::string(kPrefix);
    std::error_code error;
    std::vector<fs::path> leftovers;
    for (fs::directory_iterator it(output_dir, error), end; !error && it != end;
         it.increment(error)) {
        const std::string name = it->path().filename().string();
        if (name.starts_with(prefix) && name.find(".tmp-") != std::string::npos)
            leftovers.push_back(it->path());
    }
    for (const fs::path& leftover : leftovers) {
        // Writers hold a lock on their temporary folder while they live.
        const int fd = ::open(leftover.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (fd < 0) continue;
        if (::flock(fd, LOCK_EX | LOCK_NB) == 0) fs::remove_all(leftover, error);
        ::close(fd);
    }
}

void rotate_checkpoints(const fs::path& output_dir, std::int64_t save_total_limit,
                        const std::string& best_model_checkpoint) {
    remove_checkpoint_leftovers(output_dir);
    if (save_total_limit <= 0) return;
    std::vector<fs::path> ours;  // oldest first
    for (const auto& [step, folder] : checkpoint_folders(output_dir))
        if (is_ours(folder)) ours.push_back(folder);
    if (ours.empty()) return;
    const fs::path newest = ours.back();
    const auto stays = [&](const fs::path& folder) {
        return folder == newest || folder.filename() == best_model_checkpoint;
    };
    const auto kept = std::max<std::size_t>(
        static_cast<std::size_t>(save_total_limit),
        static_cast<std::size_t>(std::count_if(ours.begin(), ours.end(), stays)));
    std::size_t left = ours.size();
    for (const fs::path& folder : ours) {
        if (left <= kept) break;
        if (stays(folder)) continue;
        remove_checkpoint(folder);
        --left;
    }
}

}  // namespace garam
