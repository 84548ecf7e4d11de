// What the rows of a source mean: which column holds what, by the columns' names, their first values and
// `data.columns`.
//
// Shapes, under the names that they have of themselves; `data.columns` maps any others:
//   messages                    a chat: [{"role": ..., "content": ...}, ...], or ShareGPT's
//                               conversations: [{"from": "human", "value": ...}, ...]
//   prompt, completion          two texts, or two lists of messages
//   instruction, input, output  Alpaca's; also a question and an answer
//   <text>, <label>             a text and its class; asked for through `data.instruction`
//   <text>                      plain text
//   input_ids                   tokens; also labels, attention_mask, completion_mask, assistant_masks
// Beside them: system, tools, chat_template_kwargs. What is ambiguous or unknown is an Error that lists the
// columns and names the keys to set; pairs of answers to choose from (chosen, rejected) are refused.
#pragma once

#include <cstdint>
#include <memory>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "garam/core/json.h"
#include "garam/data/data_config.h"
#include "garam/data/sources/row_source.h"

namespace garam {

enum class RowShape : std::uint8_t { messages, completion, instruction, labelled, text, token_ids };

// The value of a column: a member of the row, or a path into its maps ("data.turns"). Null counts as none.
const Json* find_column(const Json& row, std::string_view name);

// Where the parts of a row lie; an empty name: it has none.
struct RowColumns {
    RowShape shape = RowShape::text;
    std::string messages, prompt, completion, instruction, input, output, text, label;
    std::string input_ids, labels, attention_mask, completion_mask, assistant_masks;
    std::string system, tools, chat_template_kwargs;
    std::vector<std::string> class_names;  // that the schema declares of the label column
    std::vector<std::string> used;         // the columns that these names lie in
    // "messages from "conv" (ShareGPT), system from "sys"; 3 columns unused: id, url, score".
    std::string summary;
};

// `rows`: some first ones, from which values are shown and structure is told. Throws Error "<where>: ...".
RowColumns recognise_rows(const std::vector<ColumnSchema>& declared, const std::vector<Json>& rows,
                          const DataConfig& config, const std::string& where);

// The columns of each row: once for all where the source declares them, else by each row's own keys.
class RowRecogniser {
  public:
    // Throws Error "<source>: ..." for a declared schema that cannot be recognised. Keeps a reference to
    // config.
    RowRecogniser(const RowSchema& schema, const std::vector<Json>& first_rows,
                  const DataConfig& config, const std::string& source);
    // May be called from several threads. Throws Error "<where>: ...".
    std::shared_ptr<const RowColumns> columns_of(const Json& row, const std::string& where) const;
    // Of the first rows; empty where they cannot be recognised.
    const std::string& summary() const { return summary_; }
    const std::vector<std::string>& class_names() const;
    // Of a declared schema; null: each row has keys of its own.
    const RowColumns* declared() const { return declared_.get(); }

  private:
    struct Known {
        std::vector<std::pair<std::string, bool>> keys;  // and whether its value is null
        RowColumns columns;
    };
    static bool fits(const Known& known, const Json& row);

    const DataConfig& config_;
    std::shared_ptr<const RowColumns> declared_;
    std::string summary_;
    mutable std::shared_mutex lock_;
    mutable std::vector<std::shared_ptr<const Known>> known_;
};

}  // namespace garam
