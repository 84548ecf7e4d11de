// Values of a Decoder's adapter from a file, and into the tensors that compute; what PiSSA takes out of the base.
#include <algorithm>
#include <set>

#include "garam/core/error.h"
#include "garam/models/decoder.h"
#include "garam/models/pissa.h"
#include "garam/runtime/transfer.h"

namespace garam {

void Decoder::refresh_copies() {
    SetupStream setup(device_);
    garam::refresh_copies(setup.stream, pointers());
    setup.stream.synchronize();
}

void Decoder::take_out() {
    SetupStream setup(device_);
    HostProducts products;
    for (const TakenOut& taken : taken_out_) {
        std::vector<float> values(static_cast<std::size_t>(taken.weight->shape.elements()));
        read_tensor(*taken.weight, values.data());
        const Tensor w(values.data(), DType::f32, taken.weight->shape, DeviceKind::cpu);
        const HostTensor a(setup.stream, taken.A);
        const HostTensor b(setup.stream, taken.B);
        garam::take_out(products, w, taken.scaling, a.tensor(), b.tensor());
        HostTensor place(setup.stream, taken.place, false);
        if (place.tensor().dtype() == DType::f32) {
            std::copy(values.begin(), values.end(), place.tensor().data<float>());
        } else {
            std::transform(values.begin(), values.end(), place.tensor().data<bfloat16>(),
                           [](float value) { return bfloat16(value); });
        }
        place.write();
    }
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
