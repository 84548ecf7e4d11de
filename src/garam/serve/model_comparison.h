// Two models on one text: whether a merged model says what its base and adapter did.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "garam/core/dtype.h"
#include "garam/io/model_files.h"
#include "garam/io/peft_adapter.h"

namespace garam {

// A model, and the adapters that are applied to it: at most one.
struct ComparedModel {
    const ModelFiles* files = nullptr;
    const PeftAdapter* adapter = nullptr;
    std::string source;  // the adapter's, for messages
};

struct ModelComparison {
    DType compute = DType::f32;
    std::int64_t tokens = 0;
    double loss_before = 0;  // mean negative log-probability of the tokens but the first
    double loss_after = 0;
    float largest_logit = 0;             // in magnitude, of `before`
    float largest_logit_difference = 0;  // over all tokens and the vocabulary
};

// Computes both one after the other, in fp32 where its weights take at most half of the device's memory, else in
// bf16. Throws Error where a model is larger than that, and where the vocabularies differ.
ModelComparison compare_models(const ComparedModel& before, const ComparedModel& after,
                               const std::vector<std::int32_t>& ids, const std::string& device);

}  // namespace garam
