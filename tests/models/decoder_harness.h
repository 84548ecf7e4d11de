// A decoder with the device, arena, meter and stream that it runs with: the processor or a card.
#pragma once

#include <memory>
#include <utility>

#include "garam/models/decoder.h"
#include "garam/ops/elementwise.h"
#include "garam/runtime/transfer.h"
#include "testing/cards.h"

namespace garam::testing {

struct DecoderHarness {
    std::unique_ptr<Device> device;
    Arena arena;
    Meter meter;
    Stream stream;
    Decoder model;
    OwnedTensor loss_sum;

    DecoderHarness(const ModelFiles& files, const Decoder::Options& options,
                   const DeviceProfile& profile = detect_cpu_profile())
        : device(make_device(profile)),
          arena(*device, std::int64_t{256} << 20),
          stream(*device, arena, meter),
          model(*device, files, options),
          loss_sum(*device, DType::f32, {1}, Purpose::scratch) {}

    DecoderHarness(const ModelFiles&& files, const Decoder::Options& options,
                   const DeviceProfile& profile = detect_cpu_profile()) = delete;

    // Gradients of one optimiser step over the micro-batches; returns the summed loss.
    float gradients(const std::vector<TokenBatch>& micro_batches, const TrainingPass& pass = {}) {
        fill(stream, 0, model.all_gradients());
        fill(stream, 0, loss_sum.tensor);
        for (const TokenBatch& batch : micro_batches)
            model.train_step(stream, batch, pass, loss_sum.tensor);
        return read_scalar(stream, loss_sum.tensor);
    }
    std::vector<float> all_gradients() { return values(model.all_gradients()); }
    std::vector<float> values(const Tensor& tensor) {
        std::vector<float> result(static_cast<std::size_t>(tensor.elements()));
        copy_to_host(stream, tensor, result.data());
        return result;
    }
    // Logits of every token of a batch.
    std::vector<float> logits(const TokenBatch& batch) {
        std::vector<std::int32_t> rows(static_cast<std::size_t>(batch.tokens()));
        for (std::size_t t = 0; t < rows.size(); ++t)
            rows[t] = static_cast<std::int32_t>(t);
        std::vector<float> result;
        model.logits(stream, batch, rows, result);
        return result;
    }
};

}  // namespace garam::testing
