#include "garam/serve/model_comparison.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <span>

#include "garam/core/error.h"
#include "garam/serve/scoring.h"
#include "garam/serve/session.h"

namespace garam {
namespace {

std::int64_t elements_of(const ModelFiles& files) {
    std::int64_t elements = 0;
    for (const StoredTensor& tensor : files.tensors())
        elements += tensor.shape.elements();
    return elements;
}

// Logits f32 [tokens, vocab].
std::vector<float> logits_of(const ComparedModel& model, const TokenBatch& batch, DType compute,
                             Device& device) {
    Decoder::Options options;
    options.compute = compute;
    if (model.adapter != nullptr) options.lora = model.adapter->settings;
    std::vector<std::int32_t> rows(batch.ids.size());
    for (std::size_t t = 0; t < rows.size(); ++t)
        rows[t] = static_cast<std::int32_t>(t);
    std::vector<float> logits;
    Meter meter;
    const auto dry_device = make_dry_device(device.profile());
    Arena dry_arena(*dry_device, dry_address_space());
    {
        Decoder dry(*dry_device, *model.files, options);
        Stream stream(*dry_device, dry_arena, meter);
        dry.logits(stream, batch, rows, logits);
    }
    Decoder decoder(device, *model.files, options);
    if (model.adapter != nullptr) decoder.load_adapter(*model.adapter, model.source);
    Arena arena(device, dry_arena.peak());
    Stream stream(device, arena, meter);
    decoder.logits(stream, batch, rows, logits);
    return logits;
}

double mean_loss(const std::vector<float>& logits, const std::vector<std::int32_t>& ids) {
    const std::size_t vocab = logits.size() / ids.size();
    double sum = 0;
    for (std::size_t t = 0; t + 1 < ids.size(); ++t)
        sum -= log_probability(std::span(logits).subspan(t * vocab, vocab), ids[t + 1]);
    return sum / static_cast<double>(ids.size() - 1);
}

}  // namespace

ModelComparison compare_models(const ComparedModel& before, const ComparedModel& after,
                               const std::vector<std::int32_t>& ids, const std::string& device) {
    GARAM_CHECK(ids.size() >= 2, "a text of two tokens or more");
    const std::unique_ptr<Device> opened = open_device(device);
    const std::int64_t elements = std::max(elements_of(*before.files), elements_of(*after.files));
    const std::int64_t room = opened->profile().memory_bytes / 2;
    ModelComparison result;
    result.compute = 4 * elements <= room ? DType::f32 : DType::bf16;
    if (2 * elements > room)
        throw Error("its weights take more than half of the memory of " + device);
    result.tokens = static_cast<std::int64_t>(ids.size());
    TokenBatch batch;
    batch.append(ids, ids, 0);
    const std::vector<float> a = logits_of(before, batch, result.compute, *opened);
    const std::vector<float> b = logits_of(after, batch, result.compute, *opened);
    if (a.size() != b.size()) throw Error("the vocabularies of both models differ");
    result.loss_before = mean_loss(a, ids);
    result.loss_after = mean_loss(b, ids);
    for (std::size_t i = 0; i < a.size(); ++i) {
        result.largest_logit = std::max(result.largest_logit, std::abs(a[i]));
        const float difference = std::abs(a[i] - b[i]);
        // Written so that NaN is the largest.
        if (!(difference <= result.largest_logit_difference))
            result.largest_logit_difference = difference;
    }
    return result;
}

}  // namespace garam
