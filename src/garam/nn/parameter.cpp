#include "garam/nn/parameter.h"

#include <algorithm>

#include "garam/ops/dequantize.h"
#include "garam/ops/elementwise.h"

namespace garam {

void refresh_dora(Stream& stream, const Parameter& parameter) {
    const DoraScale& dora = *parameter.dora;
    if (!parameter.dora_base) return dora_scale(stream, dora);
    const std::int64_t rows = parameter.dora_base.rows;
    for (std::int64_t row = 0; row < rows; row += parameter.decoded.rows()) {
        const std::int64_t end = std::min(rows, row + parameter.decoded.rows());
        DoraScale some = dora;
        some.weight = parameter.decoded.slice_rows(0, end - row);
        some.B = dora.B.slice_rows(row, end);
        some.magnitude = dora.magnitude.slice_elements(row, end);
        some.scale = dora.scale.slice_elements(row, end);
        some.norm = dora.norm.slice_elements(row, end);
        dequantize(stream, parameter.dora_base, row, some.weight);
        dora_scale(stream, some);
    }
}

void refresh_copies(Stream& stream, std::span<Parameter* const> parameters) {
    std::vector<CastItem> items;
    for (const Parameter* parameter : parameters)
        for (const Parameter::Copy& copy : parameter->copies)
            items.push_back({copy.rows ? copy.rows : parameter->master, copy.place, copy.factor});
    if (!items.empty()) cast_many(stream, items);
    for (const Parameter* parameter : parameters)
        if (parameter->dora) refresh_dora(stream, *parameter);
}

}  // namespace garam
