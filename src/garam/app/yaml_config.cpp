#include "garam/app/yaml_config.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "garam/core/error.h"

namespace garam {

namespace {

constexpr std::size_t kMaxBytes = std::size_t{1} << 20;
constexpr std::size_t kMaxValues = 10'000;
// Of what is written, keys, maps and lists among it, before the library makes something of it.
constexpr std::size_t kMaxEvents = 4 * kMaxValues;
constexpr int kMaxDepth = 32;
// Keys and values together: an alias of a long text, or below a long key, repeats it.
constexpr std::size_t kMaxText = std::size_t{16} << 20;

// Goes through a text without making anything of it, and stops at too many values or a second document. What
// belongs to no document, a comma on its own, is for the library an endless row of empty ones.
class OneDocument : public YAML::EventHandler {
  public:
    explicit OneDocument(const std::string& name) : name_(name) {}

    void OnDocumentStart(const YAML::Mark& mark) override {
        if (++documents_ > 1)
            throw Error(name_ + ":" + std::to_string(mark.line + 1) +
                        ": holds several documents, or something behind the one that is allowed");
    }
    void OnDocumentEnd() override {}
    void OnNull(const YAML::Mark& mark, YAML::anchor_t) override { count(mark); }
    void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override { count(mark); }
    void OnScalar(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                  const std::string&) override {
        count(mark);
    }
    void OnSequenceStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                         YAML::EmitterStyle::value) override {
        count(mark);
    }
    void OnSequenceEnd() override {}
    void OnMapStart(const YAML::Mark& mark, const std::string&, YAML::anchor_t,
                    YAML::EmitterStyle::value) override {
        count(mark);
    }
    void OnMapEnd() override {}

    bool any() const { return documents_ > 0; }

  private:
    void count(const YAML::Mark& mark) {
        if (++events_ > kMaxEvents)
            throw Error(name_ + ":" + std::to_string(mark.line + 1) +
                        ": too many values for a config");
    }

    std::string name_;
    int documents_ = 0;
    std::size_t events_ = 0;
};

class Flattener {
  public:
    Flattener(const std::string& name, YamlLists lists) : name_(name), lists_(lists) {}

    void add_map(const YAML::Node& map, const std::string& prefix, int depth) {
        if (depth > kMaxDepth) fail(map.Mark(), "maps are nested too deeply");
        for (const auto& pair : map) {
            const YAML::Mark mark = pair.first.Mark();
            if (!pair.first.IsScalar()) fail(mark, "a key must be a plain name");
            const std::string& name = pair.first.Scalar();
            if (name == "<<") fail(mark, "merge keys (<<) are not supported: write the keys out");
            if (name.empty()) fail(mark, "a key is empty");
            add(prefix + name, pair.second, mark, depth);
        }
    }

    std::vector<ConfigLine> lines() && { return std::move(lines_); }

  private:
    void add(const std::string& key, const YAML::Node& node, const YAML::Mark& mark, int depth) {
        if (node.IsMap() && node.size() > 0) {
            note(key, mark);
            add_map(node, key + ".", depth + 1);
            return;
        }
        if (lists_ == YamlLists::of_maps && holds_maps(node)) {
            if (depth > kMaxDepth) fail(mark, "lists are nested too deeply");
            std::size_t index = 0;
            for (const YAML::Node& item : node)
                add(key + "." + std::to_string(index++), item, item.Mark(), depth + 1);
            return;
        }
        ConfigText value;
        if (node.IsNull() || node.IsMap()) {
            value.kind = ConfigText::Kind::null;
        } else if (node.IsScalar()) {
            value.kind = quoted(node, mark) ? ConfigText::Kind::quoted : ConfigText::Kind::plain;
            value.text = node.Scalar();
            add_text(value.text.size(), mark);
        } else {
            value.kind = ConfigText::Kind::list;
            for (const YAML::Node& item : node) {
                if (!item.IsScalar()) fail(mark, key + ": a list may hold single values only");
                quoted(item, mark);  // refuses tags
                add_text(item.Scalar().size(), mark);
                value.items.push_back(item.Scalar());
                count(mark);
            }
        }
        note(key, mark);
        count(mark);
        lines_.push_back({key, std::move(value), place(mark)});
    }

    static bool holds_maps(const YAML::Node& node) {
        return node.IsSequence() && std::any_of(node.begin(), node.end(), [](const auto& item) {
                   return item.IsMap() || item.IsSequence();
               });
    }

    // Plain scalars carry the tag "?", quoted ones and blocks "!".
    bool quoted(const YAML::Node& node, const YAML::Mark& mark) const {
        const std::string& tag = node.Tag();
        if (tag == "?" || tag.empty()) return false;
        if (tag == "!" || tag == "tag:yaml.org,2002:str") return true;
        fail(mark, "the tag " + tag + " is not supported: write the value alone");
    }

    void note(const std::string& key, const YAML::Mark& mark) {
        add_text(key.size(), mark);
        const auto [seen, is_new] = first_line_.emplace(key, mark.line + 1);
        if (!is_new)
            fail(mark, "the key " + key + " is there twice, first in line " +
                           std::to_string(seen->second));
    }

    void count(const YAML::Mark& mark) {
        if (++values_ > kMaxValues) fail(mark, "too many values for a config");
    }

    void add_text(std::size_t bytes, const YAML::Mark& mark) {
        text_ += bytes;
        if (text_ > kMaxText) fail(mark, "too much text for a config");
    }

    std::string place(const YAML::Mark& mark) const {
        return mark.is_null() ? name_ : name_ + ":" + std::to_string(mark.line + 1);
    }

    [[noreturn]] void fail(const YAML::Mark& mark, const std::string& what) const {
        throw Error(place(mark) + ": " + what);
    }

    std::string name_;
    YamlLists lists_;
    std::map<std::string, int> first_line_;
    std::size_t values_ = 0;
    std::size_t text_ = 0;
    std::vector<ConfigLine> lines_;
};

}  // namespace

std::vector<ConfigLine> parse_yaml_config(const std::string& text, const std::string& name,
                                          YamlLists lists) {
    try {
        std::istringstream stream(text);
        YAML::Parser parser(stream);
        OneDocument events(name);
        while (parser.HandleNextDocument(events)) {
        }
        if (!events.any()) return {};
        const YAML::Node document = YAML::Load(text);
        if (document.IsNull()) return {};
        if (!document.IsMap())
            throw Error(name + ": a config is a map of keys (key: value), see `garam config`");
        Flattener flattener(name, lists);
        flattener.add_map(document, "", 0);
        return std::move(flattener).lines();
    } catch (const YAML::Exception& error) {
        const std::string place =
            error.mark.is_null() ? name : name + ":" + std::to_string(error.mark.line + 1);
        throw Error(place + ": not valid YAML: " + error.msg);
    }
}

std::vector<ConfigLine> read_yaml_config(const std::filesystem::path& path, YamlLists lists) {
    if (std::filesystem::is_directory(path))
        throw Error(path.string() + ": is a folder, a config is a YAML file");
    std::ifstream file(path, std::ios::binary);
    if (!file) throw Error(path.string() + ": cannot read the config: " + std::strerror(errno));
    std::string text(kMaxBytes + 1, '\0');
    file.read(text.data(), static_cast<std::streamsize>(text.size()));
    if (file.bad())
        throw Error(path.string() + ": cannot read the config: " + std::strerror(errno));
    text.resize(static_cast<std::size_t>(file.gcount()));
    if (text.size() > kMaxBytes)
        throw Error(path.string() + ": is larger than 1 MiB: this is no config file");
    if (text.find('\0') != std::string::npos)
        throw Error(path.string() + ": is a binary file, a config is a YAML file");
    return parse_yaml_config(text, path.string(), lists);
}

}  // namespace garam
