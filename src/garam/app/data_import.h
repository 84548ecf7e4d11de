// What configs of other trainers say about data, in our keys: lists of data sets with their columns and
// splits, LLaMA-Factory's names of a dataset_info.json.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "garam/app/config_dialects.h"
#include "garam/core/json.h"

namespace garam {

class DataImport {
  public:
    // Sets our key, or tells why a line is left out.
    using Set = std::function<void(const std::string& ours, const ConfigText&, const ConfigLine&)>;
    using LeaveOut = std::function<void(const ConfigLine&, const std::string& reason)>;
    DataImport(Dialect dialect, Set set, LeaveOut leave_out);

    // Whether the line is about data; it is then carried at finish().
    bool take(const ConfigLine& line);
    void finish();

  private:
    struct Sources {
        const char* ours;  // data.train or data.validation
        const char* split_key;
        std::vector<std::string> places;
        const ConfigLine* line = nullptr;  // of the first
        std::string split;
    };

    // A data set of a list: "datasets.0.path", "datasets.0.type", ...
    void carry_items(const std::string& list, Sources& sources);
    void carry_item(const std::string& prefix, const std::vector<const ConfigLine*>& lines,
                    Sources& sources);
    void carry_field(const std::string& name, const ConfigLine& line, Sources& sources);
    void carry_names(const ConfigLine& line, Sources& sources);
    void carry_described(const std::string& name, const Json& about, const std::string& folder,
                         const ConfigLine& line, Sources& sources);
    void carry_held_out(const ConfigLine& line);
    void carry_template(const ConfigLine& line);
    void carry_rows(const ConfigLine& line);
    void carry_roles(const std::string& ours, const ConfigLine& line);
    void column(const char* ours, const std::string& theirs, const ConfigLine& line);
    void role(const std::string& theirs, const std::string& ours, const ConfigLine& line);
    void split(const std::string& text, const ConfigLine& line, Sources& sources);
    void place(const std::string& text, const ConfigLine& line, Sources& sources);
    void set(const std::string& ours, const std::string& text, const ConfigLine& line);
    const ConfigLine* find(const std::string& key) const;
    // Of a list, or of a text, in which commas may part them.
    std::vector<std::string> items_of(const ConfigLine& line, bool commas);
    void count_text(std::size_t bytes, const ConfigLine& line);

    Dialect dialect_;
    Set set_;
    LeaveOut leave_out_;
    std::vector<ConfigLine> lines_;
    std::vector<std::pair<std::string, std::string>> columns_;
    std::size_t items_ = 0;
    std::size_t text_ = 0;  // bytes
    Sources training_{"data.train", "data.train_split", {}, nullptr, {}};
    Sources validation_{"data.validation", "data.validation_split", {}, nullptr, {}};
};

}  // namespace garam
