#include "garam/models/device_batch.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <vector>

#include "garam/runtime/transfer.h"

namespace garam {
namespace {

// Up to the next multiple of an eighth of its power of two, by no more than kMostExtra: the longest batches
// are few, and memory is short where they are.
constexpr std::int64_t kMostExtra = 2048;
std::int64_t rounded_up(std::int64_t count, std::int64_t least) {
    if (count <= least) return least;
    const auto power = static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(count)));
    const std::int64_t step = std::clamp<std::int64_t>(power / 8, 1, kMostExtra);
    return (count + step - 1) / step * step;
}

template <typename T>
void write(std::byte* bytes, const Tensor& memory, const Tensor& part, const std::vector<T>& values,
           T fill) {
    GARAM_CHECK(static_cast<std::int64_t>(values.size()) <= part.elements(),
                "batch beyond its shape");
    const auto offset = static_cast<std::byte*>(part.raw()) - static_cast<std::byte*>(memory.raw());
    T* const to = reinterpret_cast<T*>(bytes + offset);
    std::fill(std::copy(values.begin(), values.end(), to), to + part.elements(), fill);
}

}  // namespace

BatchShape shape_of(const TokenBatch& batch) {
    return {batch.tokens(), batch.samples(), batch.num_targets()};
}

BatchShape shared_shape(const BatchShape& shape) {
    constexpr std::int64_t kFewestTokens = 64;
    constexpr std::int64_t kFewestTargets = 16;
    // One more for the extra tokens.
    const auto samples =
        std::bit_ceil(static_cast<std::uint64_t>(std::max<std::int64_t>(shape.samples, 1)));
    return {rounded_up(shape.tokens, kFewestTokens), static_cast<std::int64_t>(samples) + 1,
            rounded_up(shape.targets, kFewestTargets)};
}

DeviceBatch reserve_batch(Stream& stream, const BatchShape& shape) {
    DeviceBatch batch;
    batch.shape = shape;
    struct Part {
        Tensor* tensor;
        DType dtype;
        std::int64_t count;
    };
    const std::vector<Part> parts = {{&batch.ids, DType::i32, shape.tokens},
                                     {&batch.positions, DType::i32, shape.tokens},
                                     {&batch.rotary_rows, DType::i32, shape.tokens},
                                     {&batch.samples, DType::i64, shape.tokens},
                                     {&batch.step, DType::i32, 1},
                                     {&batch.target_rows, DType::i32, shape.targets},
                                     {&batch.targets, DType::i32, shape.targets},
                                     {&batch.segments.device_cu_q, DType::i32, shape.samples + 1},
                                     {&batch.segments.device_cu_k, DType::i32, shape.samples + 1}};
    const auto bytes_of = [](const Part& part) {
        return align_up(part.count * static_cast<std::int64_t>(size_of(part.dtype)));
    };
    std::int64_t bytes = 0;
    for (const Part& part : parts)
        bytes += bytes_of(part);
    batch.memory = stream.arena().push(DType::u8, {bytes}, Purpose::batch);
    std::int64_t offset = 0;
    for (const Part& part : parts) {
        *part.tensor = Tensor(static_cast<char*>(batch.memory.raw()) + offset, part.dtype,
                              {part.count}, batch.memory.device());
        offset += bytes_of(part);
    }
    return batch;
}

void lay_out_batch(const TokenBatch& tokens, const BatchPlace& place, DeviceBatch& batch,
                   std::byte* bytes) {
    std::vector<std::int64_t> samples;
    samples.reserve(tokens.ids.size());
    std::vector<std::int32_t> rotary_rows = tokens.positions;
    for (std::size_t s = 0; s < tokens.sample_ids.size(); ++s) {
        const std::int32_t length = tokens.cu_seqlens[s + 1] - tokens.cu_seqlens[s];
        samples.insert(samples.end(), static_cast<std::size_t>(length), tokens.sample_ids[s]);
        if (place.longest_short == 0 || length <= place.longest_short) continue;
        for (std::int32_t t = tokens.cu_seqlens[s]; t < tokens.cu_seqlens[s + 1]; ++t)
            rotary_rows[static_cast<std::size_t>(t)] += static_cast<std::int32_t>(place.long_rows);
    }
    std::vector<std::int32_t> target_rows;
    std::vector<std::int32_t> targets;
    for (std::size_t t = 0; t < tokens.targets.size(); ++t) {
        if (tokens.targets[t] == kIgnore) continue;
        target_rows.push_back(static_cast<std::int32_t>(t));
        targets.push_back(tokens.targets[t]);
    }
    std::vector<std::int32_t> cu = tokens.cu_seqlens;
    GARAM_CHECK(static_cast<std::int64_t>(cu.size()) + (tokens.tokens() < batch.tokens() ? 1 : 0) <=
                    batch.shape.samples + 1,
                "batch beyond its shape");
    cu.resize(static_cast<std::size_t>(batch.shape.samples) + 1,
              static_cast<std::int32_t>(batch.tokens()));

    const auto put = [&](const Tensor& part, const auto& values, auto fill) {
        write(bytes, batch.memory, part, values, fill);
    };
    put(batch.ids, tokens.ids, std::int32_t{0});
    put(batch.positions, tokens.positions, std::int32_t{0});
    put(batch.rotary_rows, rotary_rows, std::int32_t{0});
    put(batch.samples, samples, std::int64_t{0});
    put(batch.step, std::vector<std::int32_t>{static_cast<std::int32_t>(place.steps_done)},
        std::int32_t{0});
    put(batch.target_rows, target_rows, std::int32_t{-1});
    put(batch.targets, targets, std::int32_t{-1});
    put(batch.segments.device_cu_q, cu, std::int32_t{0});
    batch.segments.cu_q = cu;
    for (std::size_t s = 1; s < cu.size(); ++s)
        cu[s] += static_cast<std::int32_t>(place.cached);
    put(batch.segments.device_cu_k, cu, std::int32_t{0});
    batch.segments.cu_k = std::move(cu);
}

DeviceBatch upload(Stream& stream, const TokenBatch& batch, const BatchShape& shape,
                   const BatchPlace& place) {
    DeviceBatch device = reserve_batch(stream, shape);
    std::vector<std::byte> bytes(static_cast<std::size_t>(device.memory.bytes()));
    lay_out_batch(batch, place, device, bytes.data());
    copy_to_device(stream, bytes.data(), device.memory);
    return device;
}

}  // namespace garam
