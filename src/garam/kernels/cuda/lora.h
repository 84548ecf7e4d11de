// The adapters of a group on tensor cores (ops/lora.h has the contract), all parts from one reading: bf16,
// up to three parts whose ranks fill the tail in tiles of 8 (lora_fuses). Anything else is composed of
// products and masked copies by the op.
//
// A masked element is not rounded after its scaling: 1 / (1 - p) multiplies the fp32 sum once.
//
// Floor: x, or dx twice, at the bandwidth of the memory. With dropout the generator is above it: about 55
// integer instructions for each 4 elements and part, on units that finish 64 of them a clock in a
// multiprocessor; 8192 x 2560 x 3 take some 45 us on 132 of these.
#pragma once

#include "garam/kernels/cuda/dropout.h"
#include "garam/kernels/cuda/launch.h"

namespace garam::cuda {

constexpr int kLoraMostParts = 3;

// Dropout of all parts: their keys differ, all else is one. `key` of `common` is not used.
struct LoraMasks {
    bool active = false;
    DropoutMask common;
    std::uint64_t keys[kLoraMostParts] = {};
};

struct LoraArguments {
    std::int64_t tokens = 0, in = 0;
    int parts = 0, rank = 0, tail = 0;
    Rows x;                           // [tokens, in]: x; dx in input_backward
    Rows A;                           // [tail, in]
    Rows h;                           // [tokens, tail]: u of down, which it writes; else dh
    Rows A_gradient[kLoraMostParts];  // f32 [rank, in]; no data: not trained
    LoraMasks masks;
    int multiprocessors = 0;
    float* partial = nullptr;  // scratch
};

struct LoraKernels {
    void (*down)(StreamHandle stream, const LoraArguments& arguments);  // with a mask
    void (*down_backward)(StreamHandle stream, const LoraArguments& arguments);
    void (*input_backward)(StreamHandle stream, const LoraArguments& arguments);  // with a mask
};
const LoraKernels& lora_kernels();

// Shapes that the kernels are made for. Rows and pitches are to be multiples of 16 bytes besides.
constexpr bool lora_fuses(std::int64_t parts, std::int64_t rank, std::int64_t in) {
    const bool rank_fits =
        rank == 8 || rank == 16 || (rank == 32 && parts <= 2) || (rank == 64 && parts == 1);
    return parts >= 1 && parts <= kLoraMostParts && rank_fits && in % 8 == 0;
}

// How work is cut so that the card is full: `count` pieces, each of `each` units.
struct LoraCut {
    std::int64_t count = 1, each = 1;
};
constexpr LoraCut lora_cut(std::int64_t units, std::int64_t wanted) {
    const std::int64_t pieces = wanted < 1 ? 1 : wanted > units ? units : wanted;
    const std::int64_t each = (units + pieces - 1) / pieces;
    return {(units + each - 1) / each, each};
}
constexpr std::int64_t kLoraBlocksEach = 2;  // blocks that a multiprocessor runs at once
constexpr std::int64_t kLoraColumns = 32;    // of a warp's step

// down: blocks of 32 tokens, columns cut into pieces of 8 warps; units of 256 columns.
constexpr std::int64_t kLoraDownTokens = 32;
constexpr std::int64_t kLoraDownColumns = 8 * kLoraColumns;
constexpr LoraCut lora_down_cut(std::int64_t tokens, std::int64_t in, int multiprocessors) {
    const std::int64_t blocks = (tokens + kLoraDownTokens - 1) / kLoraDownTokens;
    return lora_cut((in + kLoraDownColumns - 1) / kLoraDownColumns,
                    kLoraBlocksEach * multiprocessors / blocks);
}
// Floats of scratch, when there is a mask.
constexpr std::int64_t lora_down_scratch(std::int64_t tokens, std::int64_t in, std::int64_t columns,
                                         int multiprocessors) {
    const std::int64_t pieces = lora_down_cut(tokens, in, multiprocessors).count;
    return pieces == 1 ? 0 : pieces * tokens * columns;
}

// down_backward: blocks of 64 columns, tokens cut into pieces; units of 64 tokens.
constexpr std::int64_t kLoraBackwardTokens = 64;
constexpr std::int64_t kLoraBackwardColumns = 2 * kLoraColumns;
constexpr LoraCut lora_down_backward_cut(std::int64_t tokens, std::int64_t in,
                                         int multiprocessors) {
    const std::int64_t blocks = (in + kLoraBackwardColumns - 1) / kLoraBackwardColumns;
    return lora_cut((tokens + kLoraBackwardTokens - 1) / kLoraBackwardTokens,
                    kLoraBlocksEach * multiprocessors / blocks);
}
constexpr std::int64_t lora_down_backward_scratch(std::int64_t tokens, std::int64_t in,
                                                  std::int64_t columns, int multiprocessors) {
    return lora_down_backward_cut(tokens, in, multiprocessors).count * columns * in;
}

// input_backward: blocks of 256 columns, tokens cut into pieces; units of 16 tokens.
constexpr LoraCut lora_input_backward_cut(std::int64_t tokens, std::int64_t in,
                                          int multiprocessors) {
    const std::int64_t blocks = (in + kLoraDownColumns - 1) / kLoraDownColumns;
    return lora_cut((tokens + 15) / 16, kLoraBlocksEach * multiprocessors / blocks);
}

}  // namespace garam::cuda
