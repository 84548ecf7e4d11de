// Adapters as tests of their files need them: moved off where they start, and written.
#pragma once

#include <filesystem>
#include <utility>
#include <vector>

#include "garam/core/philox.h"
#include "garam/io/peft_adapter.h"
#include "models/decoder_harness.h"

namespace garam::testing {

// Moves every trained tensor of the model.
inline PeftAdapter moved_adapter(DecoderHarness& run) {
    PeftAdapter adapter{*run.model.lora(), {}};
    Random random(11);
    for (const Parameter& parameter : run.model.parameters()) {
        AdapterTensor tensor{parameter.name, parameter.master.shape(),
                             run.values(parameter.master)};
        for (float& value : tensor.values)
            value += static_cast<float>(random.uniform(-0.3, 0.3));
        adapter.tensors.push_back(std::move(tensor));
    }
    run.model.load_adapter(adapter, "moved");
    return adapter;
}

// The folder is made where it is absent.
inline void write_adapter(const PeftAdapter& adapter, const std::filesystem::path& folder) {
    std::vector<std::pair<std::string, Tensor>> tensors;
    for (const AdapterTensor& tensor : adapter.tensors)
        tensors.emplace_back(tensor.name, Tensor(const_cast<float*>(tensor.values.data()),
                                                 DType::f32, tensor.shape, DeviceKind::cpu));
    std::filesystem::create_directories(folder);
    write_peft_adapter(folder, adapter.settings, tensors);
}

}  // namespace garam::testing
