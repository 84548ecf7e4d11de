// garam data cache [list|prune]: the samples that were kept, so that rows are tokenised once.
#include <cmath>
#include <cstdint>
#include <ctime>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "garam/app/command.h"
#include "garam/app/standard_output.h"
#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/data/samples/sample_cache.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

struct Unit {
    const char* name;
    double factor;
};

// "30d", "1.5GB": a number and one of the units. `what`: the option.
std::int64_t measured(const std::string& text, const std::vector<Unit>& units,
                      const std::string& what) {
    std::string names;
    for (const Unit& unit : units)
        names += std::string(names.empty() ? "" : ", ") + unit.name;
    const auto refuse = [&]() -> Error {
        return Error(what + ": \"" + text + "\" is not a number with one of " + names);
    };
    std::size_t end = 0;
    double number = 0;
    try {
        number = std::stod(text, &end);
    } catch (const std::exception&) {
        throw refuse();
    }
    if (!(number >= 0)) throw refuse();
    const std::string name = text.substr(end);
    for (const Unit& unit : units) {
        if (name != unit.name && !(name.empty() && number == 0)) continue;
        const double value = number * unit.factor;
        if (!(value < 9e18)) throw refuse();
        return static_cast<std::int64_t>(std::llround(value));
    }
    throw refuse();
}

std::int64_t seconds_of(const std::string& text) {
    return measured(text, {{"s", 1}, {"min", 60}, {"h", 3600}, {"d", 86400}, {"w", 604800}},
                    "--older-than");
}

std::int64_t bytes_of(const std::string& text) {
    return measured(text,
                    {{"B", 1},
                     {"kB", 1e3},
                     {"KB", 1e3},
                     {"MB", 1e6},
                     {"GB", 1e9},
                     {"TB", 1e12},
                     {"KiB", 1024.0},
                     {"MiB", 1048576.0},
                     {"GiB", 1073741824.0}},
                    "--max-size");
}

// "1.2 GB".
std::string size_text(std::int64_t bytes) {
    constexpr const char* kNames[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    auto value = static_cast<double>(bytes);
    std::size_t unit = 0;
    while (value >= 999.95 && unit + 1 < std::size(kNames)) {
        value /= 1000;
        ++unit;
    }
    const auto tenths = static_cast<std::int64_t>(std::llround(value * 10));
    std::string text = std::to_string(tenths / 10);
    if (unit > 0) text += "." + std::to_string(tenths % 10);
    return text + " " + kNames[unit];
}

// "3 days ago".
std::string age_text(std::int64_t seconds) {
    constexpr std::pair<std::int64_t, const char*> kUnits[] = {
        {86400, "day"}, {3600, "hour"}, {60, "minute"}};
    for (const auto& [length, name] : kUnits) {
        const std::int64_t count = seconds / length;
        if (count > 0) return std::to_string(count) + " " + name + (count == 1 ? "" : "s") + " ago";
    }
    return "now";
}

std::string padded(const std::string& text, std::size_t width) {
    return text.size() < width ? std::string(width - text.size(), ' ') + text : text;
}

std::int64_t total(const std::vector<SampleCache::Entry>& entries) {
    std::int64_t bytes = 0;
    for (const SampleCache::Entry& entry : entries)
        bytes += entry.bytes;
    return bytes;
}

std::string lines_of(const std::vector<SampleCache::Entry>& entries) {
    const std::int64_t now = std::time(nullptr);
    std::string text;
    for (const SampleCache::Entry& entry : entries)
        text += padded(size_text(entry.bytes), 9) + padded(std::to_string(entry.samples), 12) +
                " samples  " + padded(age_text(now - entry.last_used), 15) + "  " +
                entry.digest.substr(0, 12) + "  " +
                (entry.source.empty() ? "(damaged)" : entry.source) + "\n";
    return text;
}

Json as_json(const std::vector<SampleCache::Entry>& entries) {
    Json list{Json::Array{}};
    for (const SampleCache::Entry& entry : entries) {
        Json one;
        one.set("digest", entry.digest);
        one.set("source", entry.source);
        one.set("bytes", entry.bytes);
        one.set("samples", entry.samples);
        one.set("last_used", entry.last_used);
        one.set("key", entry.key);
        list.push_back(std::move(one));
    }
    return list;
}

class DataCacheCommand : public Command {
  public:
    std::string name() const override { return "data cache"; }
    std::string summary() const override { return "List or remove the samples that are kept"; }
    std::string details() const override {
        return R"(Rows are tokenised once: their samples are kept in data.cache_dir, under what they were made from,
and found again by every later run over the same contents.

Examples:
  garam data cache                               what is kept, last used first
  garam data cache prune --older-than 30d        remove what was not used for 30 days
  garam data cache prune --max-size 10GB         keep the last used 10 GB
  garam data cache prune --max-size 0            remove all)";
    }
    void declare(Arguments& arguments) override {
        arguments.positional("ACTION", action_, "list or prune", false);
        arguments.option("--older-than", &older_than_,
                         "prune: what was not used for so long (s, min, h, d, w)");
        arguments.option("--max-size", &max_size_,
                         "prune: what is beyond so much, last used first kept (kB, MB, GB, TB)");
        arguments.option("--cache-dir", &cache_dir_,
                         "The folder; empty: garam/data in XDG_CACHE_HOME or ~/.cache");
        arguments.option("--json", &json_, "Print one JSON object");
    }

    int run() override {
        if (action_ != "list" && action_ != "prune")
            throw Error("garam data cache " + action_ + ": take list or prune");
        const bool prunes = action_ == "prune";
        if (!prunes && (!older_than_.empty() || !max_size_.empty()))
            throw Error("--older-than and --max-size are for garam data cache prune");
        if (prunes && older_than_.empty() && max_size_.empty())
            throw Error(
                "say what to remove: --older-than 30d, --max-size 10GB, or --max-size 0 for all");
        const std::int64_t seconds = older_than_.empty() ? -1 : seconds_of(older_than_);
        const std::int64_t bytes = max_size_.empty() ? -1 : bytes_of(max_size_);
        const fs::path folder =
            cache_dir_.empty() ? SampleCache::default_folder() : fs::path(cache_dir_);
        if (folder.empty()) throw Error("there is no home folder to look in: give --cache-dir DIR");
        std::vector<SampleCache::Entry> kept;
        std::vector<SampleCache::Entry> removed;
        std::error_code ignored;
        if (fs::exists(folder, ignored)) {  // a look at it makes none
            SampleCache cache(folder);
            if (prunes) removed = cache.prune(seconds, bytes);
            kept = cache.list();
        }
        if (json_)
            print_json(folder, kept, removed, prunes);
        else
            print_text(folder, kept, removed, prunes);
        return 0;
    }

  private:
    static void print_text(const fs::path& folder, const std::vector<SampleCache::Entry>& kept,
                           const std::vector<SampleCache::Entry>& removed, bool prunes) {
        if (!prunes) print(lines_of(kept));
        if (prunes) {
            print(lines_of(removed));
            print("removed " + std::to_string(removed.size()) + ", " + size_text(total(removed)) +
                  "\n");
        }
        print(folder.string() + ": " + std::to_string(kept.size()) +
              (kept.size() == 1 ? " set of samples, " : " sets of samples, ") +
              size_text(total(kept)) + "\n");
    }

    static void print_json(const fs::path& folder, const std::vector<SampleCache::Entry>& kept,
                           const std::vector<SampleCache::Entry>& removed, bool prunes) {
        Json json;
        json.set("folder", folder.string());
        json.set("bytes", total(kept));
        json.set("entries", as_json(kept));
        if (prunes) {
            json.set("removed_bytes", total(removed));
            json.set("removed", as_json(removed));
        }
        print(json.dump(2) + "\n");
    }

    std::string action_ = "list";
    std::string older_than_;
    std::string max_size_;
    std::string cache_dir_;
    bool json_ = false;
};

}  // namespace

std::unique_ptr<Command> make_data_cache_command() {
    return std::make_unique<DataCacheCommand>();
}

}  // namespace garam
