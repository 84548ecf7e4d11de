// What decides the samples of a source: the key of their table in the cache.
#include <ctime>
#include <filesystem>
#include <random>

#include "garam/core/error.h"
#include "garam/data/samples/read_samples.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

// Samples of another number are made anew: it counts what is changed in how rows become samples.
constexpr int kVersion = 2;

Json list_of(const std::vector<std::string>& texts) {
    Json list{Json::Array{}};
    for (const std::string& text : texts)
        list.push_back(text);
    return list;
}

Json map_of(const TextMap& map) {
    Json object{Json::Object{}};
    for (const auto& [name, text] : map)
        object.set(name, text);
    return object;
}

Json source_key(const OpenSource& source, const DataConfig& config, SampleCache& cache) {
    Json key{Json::Object{}};
    Json digests{Json::Array{}};
    for (const fs::path& file : source.rows().files())
        digests.push_back(cache.digest_of(file));
    key.set("files", std::move(digests));
    key.set("format", source.rows().schema().format);
    key.set("split", source.split());
    key.set("csv_delimiter", config.csv_delimiter ? Json(*config.csv_delimiter) : Json());
    key.set("csv_header", config.csv_header ? Json(*config.csv_header) : Json());
    key.set("csv_columns", list_of(config.csv_columns));
    key.set("csv_quote", config.csv_quote ? Json(*config.csv_quote) : Json());
    key.set("text_unit", config.text_unit);
    key.set("zip", list_of(config.zip));
    key.set("max_rows", config.max_rows);
    key.set("on_error", config.on_error);
    return key;
}

// A folder that is gone with the object.
class TemporaryFolder {
  public:
    TemporaryFolder() {
        std::random_device random;
        std::error_code failure;
        const fs::path base = fs::temp_directory_path(failure);
        for (int attempt = 0; !failure && attempt < 16; ++attempt) {
            path_ = base / ("garam-tokenizer-" + std::to_string(random()));
            if (fs::create_directory(path_, failure)) return;
        }
        throw Error((failure ? base : path_).string() +
                    ": no folder can be made there (TMPDIR): " + failure.message());
    }
    ~TemporaryFolder() {
        std::error_code ignored;
        fs::remove_all(path_, ignored);
    }
    TemporaryFolder(const TemporaryFolder&) = delete;
    TemporaryFolder& operator=(const TemporaryFolder&) = delete;
    const fs::path& path() const { return path_; }

  private:
    fs::path path_;
};

}  // namespace

std::string tokenizer_digest(const Tokenizer& tokenizer) {
    const TemporaryFolder folder;
    tokenizer.save(folder.path());
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(folder.path()))
        files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    std::string text;
    for (const fs::path& file : files)
        text += file.filename().string() + " " + content_digest(file) + "\n";
    return content_digest(std::string_view(text));
}

Json sample_key(const OpenSource& source, const DataConfig& config,
                const EncodingSettings& settings, const Tokenizer& tokenizer,
                const std::string& tokenizer_digest, SampleCache& cache) {
    Json key{Json::Object{}};
    key.set("version", kVersion);
    key.set("source", source_key(source, config, cache));
    key.set("tokenizer", tokenizer_digest);
    const std::string& own = settings.chat_template;
    key.set("chat_template",
            own.empty() ? std::string() : content_digest(own + '\0' + settings.tool_chat_template));
    const std::string used = own.empty()
                                 ? tokenizer.chat_template() + tokenizer.tool_chat_template()
                                 : own + settings.tool_chat_template;
    if (used.find("strftime_now") != std::string::npos) {
        // The day is a part of what such a template writes.
        const std::time_t now = std::time(nullptr);
        std::tm day{};
        localtime_r(&now, &day);
        key.set("day", std::to_string(day.tm_year + 1900) + "-" + std::to_string(day.tm_mon + 1) +
                           "-" + std::to_string(day.tm_mday));
    }
    key.set("chat_template_kwargs", map_of(config.chat_template_kwargs));
    key.set("columns", map_of(config.columns));
    key.set("text_column", config.text_column);
    key.set("label_column", config.label_column);
    key.set("label_names", map_of(config.label_names));
    key.set("roles", map_of(config.roles));
    key.set("instruction", config.instruction);
    // Tables of before it was known stay good.
    if (!config.answer.empty()) key.set("answer", config.answer);
    key.set("system", config.system);
    key.set("train_on_turns", config.train_on_turns);
    key.set("max_length", settings.max_length);
    key.set("truncation", settings.truncation == Truncation::keep_end ? "keep_end" : "keep_start");
    key.set("assistant_only_loss", settings.assistant_only_loss);
    key.set("completion_only_loss", settings.completion_only_loss.value_or(true));
    key.set("vocab_size", settings.vocab_size);
    return key;
}

}  // namespace garam
