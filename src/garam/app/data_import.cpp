#include "garam/app/data_import.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <unordered_map>

#include "garam/app/command_line.h"
#include "garam/core/error.h"
#include "garam/text/builtin_templates.h"

namespace garam {
namespace {

namespace fs = std::filesystem;
using Kind = ConfigText::Kind;

constexpr const char* kAllSources =
    "data.columns count for all sources, and another was named before";

// Of all lists together: a text holds more than YAML's lists may, and an alias repeats it.
constexpr std::size_t kMaxItems = 10'000;
// Of what is put together, such as a folder and each of its files.
constexpr std::size_t kMaxText = std::size_t{1} << 20;

bool is_null(const ConfigText& value) {
    if (value.kind == Kind::list) return value.items.empty();
    return value.kind == Kind::null || value.text.empty() ||
           (value.kind == Kind::plain &&
            (value.text == "null" || value.text == "None" || value.text == "~"));
}

std::string last_part(const std::string& key) {
    return key.substr(key.rfind('.') + 1);
}

bool is_one_of(const std::string& text, std::initializer_list<const char*> words) {
    return std::any_of(words.begin(), words.end(), [&](const char* word) { return text == word; });
}

bool is_folder(const std::string& path) {
    std::error_code ignored;
    return fs::is_directory(path, ignored);
}

// Names by which a builder of `datasets` is called instead of a place.
bool is_format(const std::string& path) {
    return is_one_of(path, {"json", "csv", "parquet", "arrow", "text"});
}

std::string text_in(const Json& object, const char* name) {
    const Json* const value = object.find(name);
    return value != nullptr && value->is_string() ? value->string() : std::string();
}

}  // namespace

DataImport::DataImport(Dialect dialect, Set set, LeaveOut leave_out)
    : dialect_(dialect), set_(std::move(set)), leave_out_(std::move(leave_out)) {}

bool DataImport::take(const ConfigLine& line) {
    const std::string& key = line.key;
    bool ours = false;
    switch (dialect_) {
        case Dialect::trl:
            ours = key.starts_with("datasets.") ||
                   is_one_of(key, {"dataset_name", "dataset_config", "dataset_train_split",
                                   "dataset_test_split", "chat_template_path"});
            break;
        case Dialect::axolotl:
            ours = key.starts_with("datasets.") || key.starts_with("test_datasets.") ||
                   is_one_of(key, {"val_set_size", "dataset_prepared_path", "chat_template",
                                   "chat_template_jinja", "shuffle_merged_datasets"});
            break;
        case Dialect::llama_factory:
            ours = is_one_of(key, {"dataset", "eval_dataset", "dataset_dir", "max_samples",
                                   "val_size", "mask_history"});
            break;
        case Dialect::unsloth:
            ours = is_one_of(last_part(key), {"dataset", "dataset_name", "train_file",
                                              "eval_dataset", "validation_file"});
            break;
    }
    if (ours) lines_.push_back(line);
    return ours;
}

const ConfigLine* DataImport::find(const std::string& key) const {
    for (const ConfigLine& line : lines_)
        if (line.key == key) return &line;
    return nullptr;
}

std::vector<std::string> DataImport::items_of(const ConfigLine& line, bool commas) {
    std::vector<std::string> items;
    const auto add = [&](std::string_view item) {
        if (++items_ > kMaxItems) throw Error(line.source + ": too many values for a config");
        items.emplace_back(item);
    };
    if (line.value.kind == Kind::list) {
        for (const std::string& item : line.value.items)
            add(item);
        return items;
    }
    std::string_view text = line.value.text;
    while (!text.empty()) {
        const std::size_t comma = commas ? text.find(',') : std::string_view::npos;
        const std::string_view item = text.substr(0, comma);
        const auto begin = item.find_first_not_of(' ');
        if (begin != std::string_view::npos)
            add(item.substr(begin, item.find_last_not_of(' ') - begin + 1));
        text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
    }
    return items;
}

void DataImport::count_text(std::size_t bytes, const ConfigLine& line) {
    text_ += bytes;
    if (text_ > kMaxText) throw Error(line.source + ": too much text for a config");
}

void DataImport::set(const std::string& ours, const std::string& text, const ConfigLine& line) {
    set_(ours, ConfigText{Kind::quoted, text, {}}, line);
}

void DataImport::finish() {
    carry_items("datasets", training_);
    carry_items("test_datasets", validation_);
    for (const ConfigLine& line : lines_) {
        if (line.key.starts_with("datasets.") || line.key.starts_with("test_datasets.")) continue;
        const std::string name = dialect_ == Dialect::unsloth ? last_part(line.key) : line.key;
        if (is_null(line.value)) continue;
        const std::string& text = line.value.text;
        if (is_one_of(name, {"dataset_name", "dataset", "train_file"}))
            carry_names(line, training_);
        else if (is_one_of(name, {"eval_dataset", "validation_file"}))
            carry_names(line, validation_);
        else if (name == "dataset_config")
            leave_out_(line, "of several configurations name the folder or the files of one");
        else if (name == "dataset_train_split")
            split(text, line, training_);
        else if (name == "dataset_test_split")
            split(text, line, validation_);
        else if (is_one_of(name, {"val_set_size", "val_size"}))
            carry_held_out(line);
        else if (is_one_of(name, {"chat_template_path", "chat_template", "chat_template_jinja"}))
            carry_template(line);
        else if (name == "dataset_prepared_path")
            set("data.cache_dir", text, line);
        else if (name == "shuffle_merged_datasets")
            set_("data.shuffle", line.value, line);
        else if (name == "max_samples")
            set_("data.max_rows", line.value, line);
        else if (name == "mask_history" && text == "true")
            set("data.train_on_turns", "last", line);
    }
    for (const Sources* sources : {&training_, &validation_}) {
        if (!sources->places.empty())
            set_(sources->ours, ConfigText{Kind::list, "", sources->places}, *sources->line);
    }
}

void DataImport::carry_items(const std::string& list, Sources& sources) {
    std::unordered_map<std::string, std::vector<const ConfigLine*>> items;  // "datasets.0."
    for (const ConfigLine& line : lines_) {
        if (!line.key.starts_with(list + ".")) continue;
        const std::size_t dot = line.key.find('.', list.size() + 1);
        if (dot != std::string::npos) items[line.key.substr(0, dot + 1)].push_back(&line);
    }
    for (int i = 0;; ++i) {
        const auto item = items.find(list + "." + std::to_string(i) + ".");
        if (item == items.end()) return;
        carry_item(item->first, item->second, sources);
    }
}

void DataImport::carry_item(const std::string& prefix, const std::vector<const ConfigLine*>& lines,
                            Sources& sources) {
    const auto member = [&](const char* name) -> const ConfigLine* {
        for (const ConfigLine* line : lines)
            if (line->key == prefix + name) return line;
        return nullptr;
    };
    const ConfigLine* const path = member("path");
    const ConfigLine* const files = member("data_files");
    const ConfigLine* const folder = member("data_dir");
    std::string base = path == nullptr || is_format(path->value.text) ? "" : path->value.text;
    const bool beside = base.empty() || is_folder(base);
    if (folder != nullptr && !is_null(folder->value)) {
        if (beside)
            base += (base.empty() ? "" : "/") + folder->value.text;
        else
            leave_out_(*folder, "of a name on the Hub the whole split is read");
    }
    if (files == nullptr || is_null(files->value)) {
        if (!base.empty()) place(base, path != nullptr ? *path : *folder, sources);
    } else if (beside) {
        for (const std::string& file : items_of(*files, false))
            place(base.empty() ? file : base + "/" + file, *files, sources);
    } else {
        place(base, *path, sources);
        leave_out_(*files, "of a name on the Hub the whole split is read");
    }
    for (const ConfigLine* line : lines) {
        if (is_null(line->value)) continue;
        const std::string name = line->key.substr(prefix.size());
        if (!is_one_of(name, {"path", "data_files", "data_dir", "ds_type"}))
            carry_field(name, *line, sources);
    }
}

void DataImport::carry_field(const std::string& name, const ConfigLine& line, Sources& sources) {
    const std::string& text = line.value.text;
    struct Field {
        const char* theirs;
        const char* ours;
    };
    constexpr Field kFields[] = {{"field", "text"},
                                 {"field_system", "system"},
                                 {"field_tools", "tools"},
                                 {"field_instruction", "instruction"},
                                 {"field_input", "input"},
                                 {"field_output", "output"},
                                 {"type.field", "text"},
                                 {"type.field_system", "system"},
                                 {"type.field_instruction", "instruction"},
                                 {"type.field_input", "input"},
                                 {"type.field_output", "output"}};
    for (const Field& field : kFields)
        if (name == field.theirs) return column(field.ours, text, line);
    if (name == "split") return split(text, line, sources);
    if (name == "type") return carry_rows(line);
    if (name == "field_messages") {
        // Known by these names without being told.
        if (text != "messages" && text != "conversations") column("messages", text, line);
        return;
    }
    if (is_one_of(name, {"message_property_mappings.role", "message_field_role"})) {
        if (text != "role" && text != "from") column("role", text, line);
        return;
    }
    if (is_one_of(name, {"message_property_mappings.content", "message_field_content"})) {
        if (text != "content" && text != "value") column("content", text, line);
        return;
    }
    if (name.starts_with("roles.")) return carry_roles(name.substr(6), line);
    if (name == "name")
        return leave_out_(line, "of several configurations name the folder or the files of one");
    if (name == "chat_template" && text == "tokenizer_default") return;
    if (name == "message_field_training" && text == "train") return;
    if (name == "train_on_eos" && text == "turn") return;
    if (name == "roles_to_train") {
        const std::vector<std::string> roles = items_of(line, true);
        if (roles == std::vector<std::string>{"assistant"} ||
            roles == std::vector<std::string>{"gpt"})
            return;
        return leave_out_(line, "the assistant's turns are trained on: data.roles names it");
    }
    if (name == "roles_to_train" || name == "train_on_eos")
        return leave_out_(line, "the assistant's turns and what ends them are trained on");
    leave_out_(line, "rows are told from their columns: see data.columns");
}

void DataImport::carry_rows(const ConfigLine& line) {
    std::string word = line.value.text;
    word = word.substr(0, word.find_first_of(".:"));
    if (is_one_of(word, {"chat_template", "completion", "alpaca", "sharegpt", "gpteacher",
                         "alpaca_chat", "chatml"}))
        return;
    leave_out_(line, "such rows are not known: name their columns (data.columns) or rewrite them");
}

void DataImport::carry_roles(const std::string& ours, const ConfigLine& line) {
    for (const std::string& theirs : items_of(line, true))
        role(theirs, ours, line);
}

void DataImport::role(const std::string& theirs, const std::string& ours, const ConfigLine& line) {
    if (theirs == ours || (theirs == "human" && ours == "user") ||
        (theirs == "gpt" && ours == "assistant"))
        return;
    count_text(theirs.size() + ours.size(), line);
    set("data.roles." + theirs, ours, line);
}

void DataImport::column(const char* ours, const std::string& theirs, const ConfigLine& line) {
    if (theirs == ours) return;
    for (const auto& [known, name] : columns_) {
        if (known != ours) continue;
        if (name != theirs) leave_out_(line, kAllSources);
        return;
    }
    columns_.emplace_back(ours, theirs);
    set("data.columns." + std::string(ours), theirs, line);
}

void DataImport::split(const std::string& text, const ConfigLine& line, Sources& sources) {
    if (sources.split.empty()) {
        sources.split = text;
        set(sources.split_key, text, line);
    } else if (sources.split != text) {
        leave_out_(line, std::string(sources.split_key) +
                             " counts for all sources, and another was named before");
    }
}

void DataImport::place(const std::string& text, const ConfigLine& line, Sources& sources) {
    count_text(text.size(), line);
    if (text.find("://") != std::string::npos)
        return leave_out_(line, "nothing is downloaded: fetch it, and name the file as " +
                                    std::string(sources.ours));
    sources.places.push_back(text);
    if (sources.line == nullptr) sources.line = &line;
}

// LLaMA-Factory's names stand in dataset_info.json; files and folders for themselves.
void DataImport::carry_names(const ConfigLine& line, Sources& sources) {
    const bool factory = dialect_ == Dialect::llama_factory;
    const ConfigLine* const folder_line = factory ? find("dataset_dir") : nullptr;
    const std::string folder = folder_line == nullptr ? "data" : folder_line->value.text;
    const fs::path info = fs::path(folder) / "dataset_info.json";
    std::error_code ignored;
    Json described;
    if (factory && fs::is_regular_file(info, ignored)) {
        try {
            described = Json::parse_file(info);
        } catch (const Error& error) {
            leave_out_(line, error.what());
            return;
        }
    }
    for (const std::string& name : items_of(line, factory)) {
        if (const Json* const about = described.find(name)) {
            carry_described(name, *about, folder, line, sources);
        } else if (!factory || name.find_first_of("./") != std::string::npos) {
            place(name, line, sources);
        } else {
            leave_out_(line, begin_of(name) + " is a name of " + begin_of(info.native()) +
                                 ", which does not tell of it: name its file as " + sources.ours);
        }
    }
}

void DataImport::carry_described(const std::string& name, const Json& about,
                                 const std::string& folder, const ConfigLine& line,
                                 Sources& sources) {
    if (const Json* const ranking = about.find("ranking");
        ranking != nullptr && ranking->is_bool() && ranking->boolean())
        return leave_out_(line, name + " is preference data (ranking), which is not supported");
    const std::string hub = text_in(about, "hf_hub_url");
    const std::string file = text_in(about, "file_name");
    if (!hub.empty())
        place(hub, line, sources);
    else if (!file.empty())
        place((fs::path(folder) / file).string(), line, sources);
    else
        return leave_out_(line, name + " is a data set by script: write its rows to a file");
    if (const std::string chosen = text_in(about, "split"); !chosen.empty())
        split(chosen, line, sources);
    if (!text_in(about, "subset").empty())
        leave_out_(line, name + ": of several configurations name the folder or the files of one");
    const bool chat = text_in(about, "formatting") == "sharegpt";
    if (const Json* const columns = about.find("columns"); columns != nullptr) {
        struct Column {
            const char* theirs;
            const char* ours;
            bool of_chat;
        };
        constexpr Column kColumns[] = {
            {"messages", "messages", true}, {"prompt", "instruction", false},
            {"query", "input", false},      {"response", "output", false},
            {"system", "system", false},    {"tools", "tools", false}};
        for (const Column& one : kColumns) {
            const std::string theirs = text_in(*columns, one.theirs);
            if (theirs.empty() || (one.of_chat && theirs == "conversations")) continue;
            column(one.ours, theirs, line);
        }
        if (!text_in(*columns, "history").empty())
            leave_out_(line, name + ": history is not read: write the turns as messages");
    }
    const Json* const tags = about.find("tags");
    if (!chat || tags == nullptr) return;
    const auto own = [](const std::string& text, const char* usual, const char* other) {
        return text.empty() || text == usual || text == other ? std::string() : text;
    };
    if (const std::string tag = own(text_in(*tags, "role_tag"), "from", "role"); !tag.empty())
        column("role", tag, line);
    if (const std::string tag = own(text_in(*tags, "content_tag"), "value", "content");
        !tag.empty())
        column("content", tag, line);
    for (const auto& [tag, ours] :
         {std::pair{"user_tag", "user"}, std::pair{"assistant_tag", "assistant"},
          std::pair{"observation_tag", "tool"}, std::pair{"system_tag", "system"},
          std::pair{"function_tag", "function_call"}}) {
        const std::string theirs = text_in(*tags, tag);
        if (!theirs.empty() && theirs != "observation") role(theirs, ours, line);
    }
}

void DataImport::carry_held_out(const ConfigLine& line) {
    const std::string& text = line.value.text;
    double part = 0;
    const auto read = std::from_chars(text.data(), text.data() + text.size(), part);
    if (read.ec == std::errc{} && part == 0) return;
    if (read.ec != std::errc{} || part < 0 || part >= 1)
        return leave_out_(line,
                          "a part of the rows is held out, not a number of them: "
                          "data.validation_fraction");
    set_("data.validation_fraction", line.value, line);
}

void DataImport::carry_template(const ConfigLine& line) {
    const std::string& text = line.value.text;
    if (is_one_of(text, {"tokenizer_default", "jinja"})) return;
    std::error_code ignored;
    const bool file = fs::is_regular_file(text, ignored) || text.ends_with(".jinja");
    if (file || is_builtin_chat_template(text)) return set("data.chat_template", text, line);
    leave_out_(line,
               "the chat template of the model's own files is used; another one: "
               "data.chat_template, a file");
}

}  // namespace garam
