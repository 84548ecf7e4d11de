#include "garam/nn/parameter.h"

#include "garam/ops/elementwise.h"

namespace garam {

void refresh_copies(Stream& stream, std::span<Parameter* const> parameters) {
    std::vector<CastItem> items;
    for (const Parameter* parameter : parameters)
        for (const Parameter::Copy& copy : parameter->copies)
            items.push_back({copy.rows ? copy.rows : parameter->master, copy.place, copy.factor});
    if (!items.empty()) cast_many(stream, items);
    for (const Parameter* parameter : parameters)
        if (parameter->dora) dora_scale(stream, *parameter->dora);
}

}  // namespace garam
