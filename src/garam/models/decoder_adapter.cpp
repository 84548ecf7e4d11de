// Values of a Decoder's adapter from a file, and into the tensors that compute.
#include <algorithm>
#include <set>

#include "garam/core/error.h"
#include "garam/models/decoder.h"
#include "garam/ops/elementwise.h"
#include "garam/runtime/transfer.h"

namespace garam {

void Decoder::refresh_copies() {
    SetupStream setup(device_);
    std::vector<CastItem> items;
    for (const Parameter& parameter : parameters_)
        for (const Parameter::Copy& copy : parameter.copies)
            items.push_back({copy.rows ? copy.rows : parameter.master, copy.place, copy.factor});
    cast_many(setup.stream, items);
    setup.stream.synchronize();
}

void Decoder::load_adapter(const PeftAdapter& adapter, const std::string& source) {
    SetupStream setup(device_);
    std::set<std::string> loaded;
    for (const AdapterTensor& tensor : adapter.tensors) {
        const std::string name = own_adapter_key(*config_.family, tensor.name);
        const auto found = std::find_if(parameters_.begin(), parameters_.end(),
                                        [&](const Parameter& p) { return p.name == name; });
        if (found == parameters_.end())
            throw Error(source + ": " + tensor.name +
                        " has no place in this model: the adapter belongs to another base");
        if (!(found->master.shape() == tensor.shape))
            throw Error(source + ": " + tensor.name + " has shape " + tensor.shape.to_string() +
                        ", the model needs " + found->master.shape().to_string() +
                        ": the adapter belongs to another base");
        copy_to_device(setup.stream, tensor.values.data(), found->master);
        loaded.insert(name);
    }
    for (const Parameter& parameter : parameters_) {
        if (!loaded.contains(parameter.name))
            throw Error(source + ": " + parameter.name + " is missing");
    }
    setup.stream.synchronize();
    refresh_copies();
}

}  // namespace garam
