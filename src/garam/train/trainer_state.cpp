#include "garam/train/trainer_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <string_view>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/io/atomic_write.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "garam checkpoint";
constexpr std::int64_t kFormatVersion = 1;
constexpr std::uintmax_t kLargestStateFile = 16 << 20;

// FNV-1a over 64-bit words with a rotation between them, so that high bits reach low ones: as fast
// as memory, and any change of a single word changes the sum (each step is a bijection of the
// state). The last word is padded with zeros, the length goes in at the end.
class Checksum {
  public:
    // All pieces but the last are multiples of 8 bytes.
    void add(const char* data, std::size_t bytes) {
        length_ += bytes;
        for (; bytes > 0;) {
            std::uint64_t word = 0;
            const std::size_t taken = std::min<std::size_t>(bytes, sizeof word);
            std::memcpy(&word, data, taken);
            mix(word);
            data += taken;
            bytes -= taken;
        }
    }
    std::string hex() {
        mix(length_);
        return fmt::format("{:016x}", sum_);
    }

  private:
    void mix(std::uint64_t word) { sum_ = std::rotl((sum_ ^ word) * 0x100000001b3ULL, 29); }
    std::uint64_t sum_ = 0xcbf29ce484222325ULL;
    std::uint64_t length_ = 0;
};

std::string checksum_of(std::string_view text) {
    Checksum checksum;
    checksum.add(text.data(), text.size());
    return checksum.hex();
}

bool is_plain_relative(const std::string& name) {
    const fs::path path(name);
    if (name.empty() || path.is_absolute()) return false;
    return std::none_of(path.begin(), path.end(),
                        [](const fs::path& part) { return part == ".."; });
}

Json to_json(const RunIdentity& identity) {
    return Json::Object{// As text: JSON readers elsewhere round integers beyond 2^53.
                        {"seed", std::to_string(identity.seed)},
                        {"per_device_train_batch_size", identity.per_device_train_batch_size},
                        {"gradient_accumulation_steps", identity.gradient_accumulation_steps},
                        {"max_length", identity.max_length},
                        {"packing", identity.packing},
                        {"data_fingerprint", identity.data_fingerprint},
                        {"config_fingerprint", identity.config_fingerprint}};
}

Json to_json(const TrainerState& state) {
    return Json::Object{{"format", kFormat},
                        {"format_version", kFormatVersion},
                        {"global_step", state.global_step},
                        {"epoch", state.epoch},
                        {"max_steps", state.max_steps},
                        {"num_input_tokens_seen", state.num_input_tokens_seen},
                        {"num_target_tokens_seen", state.num_target_tokens_seen},
                        {"best_metric", state.best_metric ? Json(*state.best_metric) : Json()},
                        {"metric_for_best_model", state.metric_for_best_model},
                        {"greater_is_better", state.greater_is_better},
                        {"best_model_checkpoint", state.best_model_checkpoint},
                        {"evaluations_without_gain", state.evaluations_without_gain},
                        {"unlogged_steps", state.unlogged_steps},
                        {"unlogged_loss_sum", state.unlogged_loss_sum},
                        {"unlogged_target_tokens", state.unlogged_target_tokens},
                        {"unlogged_tokens", state.unlogged_tokens},
                        {"merged_micro_batches", state.merged_micro_batches},
                        {"tile", state.tile},
                        {"identity", to_json(state.identity)}};
}

// Reads members of one object, naming file and key in errors.
class Reader {
  public:
    Reader(const Json& object, std::string source) : object_(object), source_(std::move(source)) {}

    std::int64_t count(const char* key) const {
        const std::int64_t value = at(key).integer(what(key));
        if (value < 0) throw Error(what(key) + " is negative");
        return value;
    }
    double finite(const char* key) const { return at(key).number(what(key)); }
    bool boolean(const char* key) const { return at(key).boolean(what(key)); }
    const std::string& string(const char* key) const { return at(key).string(what(key)); }
    std::uint64_t unsigned_text(const char* key) const {
        const std::string& text = string(key);
        std::uint64_t value = 0;
        const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        if (error != std::errc() || stop != text.data() + text.size())
            throw Error(what(key) + " is no whole number");
        return value;
    }
    const Json& at(const char* key) const { return object_.at(key, source_); }
    std::string what(const char* key) const { return source_ + ": " + key; }

  private:
    const Json& object_;
    std::string source_;
};

TrainerState state_from(const Json& json, const std::string& source) {
    const Reader read(json, source);
    TrainerState state;
    state.global_step = read.count("global_step");
    state.epoch = read.finite("epoch");
    state.max_steps = read.count("max_steps");
    state.num_input_tokens_seen = read.count("num_input_tokens_seen");
    state.num_target_tokens_seen = read.count("num_target_tokens_seen");
    if (!read.at("best_metric").is_null()) state.best_metric = read.finite("best_metric");
    // Not in checkpoints of before there was a choice.
    if (json.find("metric_for_best_model") != nullptr) {
        state.metric_for_best_model = read.string("metric_for_best_model");
        state.greater_is_better = read.boolean("greater_is_better");
    }
    state.best_model_checkpoint = read.string("best_model_checkpoint");
    state.evaluations_without_gain = read.count("evaluations_without_gain");
    state.unlogged_steps = read.count("unlogged_steps");
    state.unlogged_loss_sum = read.finite("unlogged_loss_sum");
    state.unlogged_target_tokens = read.count("unlogged_target_tokens");
    state.unlogged_tokens = read.count("unlogged_tokens");
    state.merged_micro_batches = read.count("merged_micro_batches");
    if (state.merged_micro_batches < 1)
        throw Error(read.what("merged_micro_batches") + " must be at least 1");
    // Not in checkpoints of before there were tiles.
    if (json.find("tile") != nullptr) state.tile = read.count("tile");
    const Reader identity(read.at("identity"), source + ": identity");
    state.identity.seed = identity.unsigned_text("seed");
    state.identity.per_device_train_batch_size = identity.count("per_device_train_batch_size");
    state.identity.gradient_accumulation_steps = identity.count("gradient_accumulation_steps");
    state.identity.max_length = identity.count("max_length");
    state.identity.packing = identity.boolean("packing");
    state.identity.data_fingerprint = identity.string("data_fingerprint");
    state.identity.config_fingerprint = identity.string("config_fingerprint");
    return state;
}

// Config fingerprints are objects of settings. One of another shape, as of an older garam, adds none.
void add_differing_settings(const std::string& now, const std::string& stored,
                            std::vector<std::string>& found) {
    Json ours;
    Json theirs;
    try {
        ours = Json::parse(now, "settings");
        theirs = Json::parse(stored, "settings");
    } catch (const Error&) {
        return;
    }
    if (!ours.is_object() || !theirs.is_object()) return;
    for (const auto& [key, value] : ours.object()) {
        const Json* other = theirs.find(key);
        if (other != nullptr && other->dump() == value.dump()) continue;
        if (key == "model") {
            found.emplace_back("model is another one than the checkpoint's");
        } else {
            found.push_back(fmt::format("{} is {}, the checkpoint has {}", key, value.dump(),
                                        other == nullptr ? "none" : other->dump()));
        }
    }
    for (const auto& [key, value] : theirs.object()) {
        if (ours.find(key) == nullptr)
            found.push_back(fmt::format("{} is not set, the checkpoint has {}", key, value.dump()));
    }
}

}  // namespace

std::vector<std::string> differences(const RunIdentity& now, const RunIdentity& stored) {
    std::vector<std::string> found;
    const auto compare = [&](const char* what, const auto& ours, const auto& theirs) {
        if (ours != theirs)
            found.push_back(fmt::format("{} is {}, the checkpoint has {}", what, ours, theirs));
    };
    compare("train.seed", now.seed, stored.seed);
    compare("train.per_device_train_batch_size", now.per_device_train_batch_size,
            stored.per_device_train_batch_size);
    compare("train.gradient_accumulation_steps", now.gradient_accumulation_steps,
            stored.gradient_accumulation_steps);
    compare("train.max_length", now.max_length, stored.max_length);
    compare("train.packing", now.packing, stored.packing);
    if (now.data_fingerprint != stored.data_fingerprint)
        found.push_back("the training data (data.train, tokenizer or template) is another one");
    if (now.config_fingerprint != stored.config_fingerprint) {
        const std::size_t before = found.size();
        add_differing_settings(now.config_fingerprint, stored.config_fingerprint, found);
        if (found.size() == before)
            found.push_back(
                "a setting that changes the result (model, lora., optimiser or "
                "schedule) differs");
    }
    return found;
}

FileRecord record_file(const fs::path& path) {
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(path.string() + ": cannot be read");
    Checksum checksum;
    std::vector<char> block(1 << 20);
    FileRecord record;
    while (file) {
        file.read(block.data(), static_cast<std::streamsize>(block.size()));
        const std::streamsize got = file.gcount();
        checksum.add(block.data(), static_cast<std::size_t>(got));
        record.bytes += got;
    }
    if (file.bad()) throw Error(path.string() + ": cannot be read to its end");
    record.checksum = checksum.hex();
    return record;
}

void write_state_file(const fs::path& folder, const StateFile& contents) {
    const TrainerState& state = contents.state;
    GARAM_CHECK(std::isfinite(state.epoch) && std::isfinite(state.unlogged_loss_sum) &&
                    std::isfinite(state.best_metric.value_or(0)),
                "numbers of a trainer state are finite");
    Json json = to_json(state);
    json.set("masters_file", contents.masters_file);
    json.set("optimizer_file", contents.optimizer_file);
    Json listed{Json::Object{}};
    for (const auto& [name, record] : contents.files)
        listed.set(name, Json::Object{{"bytes", record.bytes}, {"checksum", record.checksum}});
    json.set("files", std::move(listed));
    json.set("checksum", checksum_of(json.dump()));
    write_file_atomically(folder / kStateFileName, json.dump(2) + "\n");
}

StateFile read_state_file(const fs::path& folder) {
    const fs::path path = folder / kStateFileName;
    const std::string source = path.string();
    const std::string advice = "; delete the folder or name another checkpoint";
    std::error_code error;
    const std::uintmax_t size = fs::file_size(path, error);
    if (error) throw Error(source + ": missing, so this is no complete checkpoint" + advice);
    if (size > kLargestStateFile) throw Error(source + ": too large for a trainer state" + advice);
    const Json json = Json::parse_file(path);
    const Json* format = json.find("format");
    if (format == nullptr || !format->is_string() || format->string() != kFormat)
        throw Error(source + ": not written by garam, whose checkpoints alone can be resumed from");
    const Reader read(json, source);
    if (const std::int64_t version = read.count("format_version"); version != kFormatVersion)
        throw Error(fmt::format("{}: format version {}, this garam reads {}", source, version,
                                kFormatVersion));
    Json::Object without_sum;
    for (const Json::Member& member : json.object())
        if (member.first != "checksum") without_sum.push_back(member);
    if (checksum_of(Json(std::move(without_sum)).dump()) != read.string("checksum"))
        throw Error(source + ": damaged (its checksum does not fit its content)" + advice);

    StateFile stored;
    stored.state = state_from(json, source);
    stored.masters_file = read.string("masters_file");
    stored.optimizer_file = read.string("optimizer_file");
    for (const auto& [name, record] : read.at("files").object(source + ": files")) {
        if (!is_plain_relative(name))
            throw Error(source + ": files: \"" + name + "\" leads out of the checkpoint");
        const Reader file(record, source + ": files: " + name);
        stored.files[name] = {file.count("bytes"), file.string("checksum")};
    }
    for (const std::string& needed : {stored.masters_file, stored.optimizer_file})
        if (!needed.empty() && !stored.files.contains(needed))
            throw Error(source + ": files: \"" + needed + "\" is not listed");
    return stored;
}

}  // namespace garam
