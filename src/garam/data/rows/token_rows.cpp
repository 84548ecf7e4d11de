#include "garam/data/rows/token_rows.h"

#include <limits>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/token_batch.h"

namespace garam {
namespace {

// As many numbers as `ids`, each 0 or 1 (or a bool).
std::vector<bool> mask_of(const Json& value, std::size_t ids, const std::string& what) {
    const Json::Array& items = value.array(what);
    if (items.size() != ids)
        throw Error(what + " has " + std::to_string(items.size()) + " values for " +
                    std::to_string(ids) + " tokens");
    std::vector<bool> mask(ids);
    for (std::size_t i = 0; i < ids; ++i) {
        const std::string place = what + "[" + std::to_string(i) + "]";
        const std::int64_t bit =
            items[i].is_bool() ? (items[i].boolean() ? 1 : 0) : items[i].integer(place);
        if (bit != 0 && bit != 1) throw Error(place + " must be 0 or 1, not " + items[i].dump());
        mask[i] = bit == 1;
    }
    return mask;
}

std::vector<std::int32_t> numbers_of(const Json& value, std::int64_t vocab_size, bool labels,
                                     const std::string& what) {
    const std::int64_t limit =
        vocab_size > 0 ? vocab_size : std::numeric_limits<std::int32_t>::max();
    const Json::Array& items = value.array(what);
    std::vector<std::int32_t> numbers;
    numbers.reserve(items.size());
    for (std::size_t i = 0; i < items.size(); ++i) {
        const std::int64_t id = items[i].integer(what + "[" + std::to_string(i) + "]");
        if ((id < 0 || id >= limit) && !(labels && id == kIgnore))
            throw Error(what + "[" + std::to_string(i) + "] is " + std::to_string(id) +
                        (vocab_size > 0
                             ? ", but the model has embeddings for " + std::to_string(vocab_size) +
                                   " tokens: the row was made for another model"
                             : ", which is no token"));
        numbers.push_back(static_cast<std::int32_t>(id));
    }
    return numbers;
}

}  // namespace

Sample sample_of_token_ids(const Json& row, const RowColumns& columns,
                           const EncodingSettings& settings, const std::string& where) {
    const auto named = [&](const std::string& column) { return where + ": " + column; };
    const Json* const ids = find_column(row, columns.input_ids);
    if (ids == nullptr) throw Error(named(columns.input_ids) + " has no value");
    Sample sample;
    sample.ids = numbers_of(*ids, settings.vocab_size, false, named(columns.input_ids));
    sample.labels = sample.ids;
    const std::size_t count = sample.ids.size();
    if (const Json* const labels = find_column(row, columns.labels)) {
        sample.labels = numbers_of(*labels, settings.vocab_size, true, named(columns.labels));
        if (sample.labels.size() != count)
            throw Error(named(columns.labels) + " has " + std::to_string(sample.labels.size()) +
                        " values for " + std::to_string(count) + " tokens");
    }
    const auto keep_targets = [&](const std::string& column, bool wanted) {
        const Json* const value = find_column(row, column);
        if (value == nullptr) return;
        const std::vector<bool> mask = mask_of(*value, count, named(column));
        for (std::size_t i = 0; wanted && i < count; ++i)
            if (!mask[i]) sample.labels[i] = kIgnore;
    };
    keep_targets(columns.completion_mask, settings.completion_only_loss.value_or(true));
    keep_targets(columns.assistant_masks, settings.assistant_only_loss);
    const Json* const attention = find_column(row, columns.attention_mask);
    if (attention == nullptr) return sample;
    const std::vector<bool> mask = mask_of(*attention, count, named(columns.attention_mask));
    std::size_t begin = 0;
    std::size_t end = count;
    while (begin < end && !mask[begin])
        ++begin;
    while (end > begin && !mask[end - 1])
        --end;
    for (std::size_t i = begin; i < end; ++i)
        if (!mask[i])
            throw Error(
                named(columns.attention_mask) + "[" + std::to_string(i) +
                "] is 0 between tokens that count: only padding at the ends may be left out");
    const auto cut = [&](std::vector<std::int32_t>& list) {
        list = {list.begin() + static_cast<std::ptrdiff_t>(begin),
                list.begin() + static_cast<std::ptrdiff_t>(end)};
    };
    cut(sample.ids);
    cut(sample.labels);
    return sample;
}

}  // namespace garam
