// The adapters of a group on tensor cores (ops/lora.h has the contract), all parts from one reading: bf16,
// up to three parts whose ranks fill the tail in tiles of 8 (lora_fuses). Anything else is composed of
// products and masked copies by the op.
//
// A masked element is not rounded after its scaling: the factor multiplies the fp32 sum once.
//
// Floor: x or dy once, or dx twice, at the bandwidth of the memory. Only down makes masks; the backward reads
// the bits that it kept. Making them takes some 35 logical operations and 11 wide products for each 8 elements
// and part, on units that finish 64 and some 32 a clock in a multiprocessor: 8192 x 2560 x 3 take about 20 us
// on 132 of these, where the memory takes 14; for one part or two they are hidden.
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
    // Bits of the masks, [tokens, parts, lora_kept_words(in)]: word w has columns 32 w + c, even c in bit
    // c / 2, odd c in bit 16 + c / 2. down writes them unless it is nullptr, the others read them.
    std::uint32_t* kept = nullptr;
    int multiprocessors = 0;
    float* partial = nullptr;  // scratch
};

// dh = dy B and the gradients of B. Part m has columns [begin[m], end[m]) of dy.
struct LoraUpArguments {
    std::int64_t tokens = 0;
    int parts = 0, rank = 0, tail = 0;
    float scaling = 1;
    Rows dy;                          // [tokens, out]
    Rows B;                           // [out, tail]
    Rows u, dh;                       // [tokens, tail]
    Rows B_gradient[kLoraMostParts];  // f32 [end - begin, rank]; no data: not trained
    std::int64_t begin[kLoraMostParts] = {}, end[kLoraMostParts] = {};
    int multiprocessors = 0;
    float* partial = nullptr;  // scratch
};

struct LoraKernels {
    void (*down)(StreamHandle stream, const LoraArguments& arguments);  // with a mask
    void (*down_backward)(StreamHandle stream, const LoraArguments& arguments);
    void (*input_backward)(StreamHandle stream, const LoraArguments& arguments);  // with a mask
    void (*up_backward)(StreamHandle stream, const LoraUpArguments& arguments);
};
const LoraKernels& lora_kernels();

// Shapes that the kernels are made for. Rows and pitches are to be multiples of 16 bytes besides.
constexpr bool lora_fuses(std::int64_t parts, std::int64_t rank, std::int64_t in) {
    const bool rank_fits =
        rank == 8 || rank == 16 || (rank == 32 && parts <= 2) || (rank == 64 && parts == 1);
    return parts >= 1 && parts <= kLoraMostParts && rank_fits && in % 8 == 0;
}

// Words of a row of kept bits: such that four, which a warp writes at once, stay within 16 bytes.
constexpr std::int64_t lora_kept_words(std::int64_t in) {
    return (in + 127) / 128 * 4;
}

// How work is cut so that the card is full: `count` pieces, each of `each` units, at most lora_pieces().
struct LoraCut {
    std::int64_t count = 1, each = 1;
};
constexpr std::int64_t lora_pieces(std::int64_t units, std::int64_t wanted) {
    return wanted < 1 ? 1 : wanted > units ? units : wanted;
}
constexpr LoraCut lora_cut(std::int64_t units, std::int64_t wanted) {
    const std::int64_t pieces = lora_pieces(units, wanted);
    const std::int64_t each = (units + pieces - 1) / pieces;
    return {(units + each - 1) / each, each};
}
constexpr std::int64_t kLoraBlocksEach = 2;  // blocks that a multiprocessor runs at once
constexpr std::int64_t kLoraColumns = 32;    // of a warp's step

// down: blocks of 32 tokens, columns cut into pieces; units of 4 steps of 4 warps.
constexpr std::int64_t kLoraDownTokens = 32;
constexpr std::int64_t kLoraDownSteps = 4;
constexpr std::int64_t kLoraDownColumns = 4 * kLoraDownSteps * kLoraColumns;
constexpr LoraCut lora_down_cut(std::int64_t tokens, std::int64_t in, int multiprocessors) {
    const std::int64_t blocks = (tokens + kLoraDownTokens - 1) / kLoraDownTokens;
    return lora_cut((in + kLoraDownColumns - 1) / kLoraDownColumns,
                    kLoraBlocksEach * multiprocessors / blocks);
}
// Floats of scratch, when there is a mask: no less than all pieces hold, and no less for more tokens (a
// plan for the largest batch covers the others).
constexpr std::int64_t lora_down_scratch(std::int64_t tokens, std::int64_t in, std::int64_t columns,
                                         int multiprocessors) {
    const std::int64_t units = (in + kLoraDownColumns - 1) / kLoraDownColumns;
    const std::int64_t at_once = kLoraBlocksEach * multiprocessors * kLoraDownTokens;
    const std::int64_t rows = units * tokens < at_once ? units * tokens : at_once;
    return rows * columns;
}

// down_backward: blocks of 32 or 64 columns, tokens cut into pieces; units of a block's step, of 64 tokens
// or more.
constexpr std::int64_t kLoraBackwardTokens = 64;
constexpr std::int64_t kLoraBackwardColumns = 2 * kLoraColumns;
constexpr std::int64_t kLoraMostBlocksEach = 3;
constexpr LoraCut lora_down_backward_cut(std::int64_t tokens, std::int64_t unit, std::int64_t in,
                                         std::int64_t columns, std::int64_t at_once) {
    const std::int64_t blocks = (in + columns - 1) / columns;
    return lora_cut((tokens + unit - 1) / unit, at_once / blocks);
}
// Floats of the most pieces of any.
constexpr std::int64_t lora_down_backward_scratch(std::int64_t tokens, std::int64_t in,
                                                  std::int64_t columns, int multiprocessors) {
    const std::int64_t blocks = (in + kLoraBackwardColumns - 1) / kLoraBackwardColumns;
    const std::int64_t units = (tokens + kLoraBackwardTokens - 1) / kLoraBackwardTokens;
    return lora_pieces(units, kLoraMostBlocksEach * multiprocessors / blocks) * columns * in;
}

// input_backward: blocks of 256 columns, 32 a warp, tokens cut into pieces; units of 16 tokens.
constexpr std::int64_t kLoraInputColumns = 8 * kLoraColumns;
constexpr LoraCut lora_input_backward_cut(std::int64_t tokens, std::int64_t in,
                                          int multiprocessors) {
    const std::int64_t blocks = (in + kLoraInputColumns - 1) / kLoraInputColumns;
    return lora_cut((tokens + 15) / 16, kLoraBlocksEach * multiprocessors / blocks);
}

// up_backward: blocks of some columns of one part, tokens cut into pieces; units of 64 tokens, steps of 16.
constexpr std::int64_t kLoraUpTokens = 64;
constexpr std::int64_t kLoraUpStep = 16;
constexpr bool lora_up_fuses(std::int64_t parts, std::int64_t rank) {
    return parts >= 1 && parts <= kLoraMostParts && (rank == 8 || rank == 16 || rank == 32);
}
constexpr std::int64_t lora_up_columns(std::int64_t rank) {
    return rank <= 16 ? 512 : 256;
}
// Blocks side by side.
constexpr std::int64_t lora_up_chunks(const LoraUpArguments& x) {
    std::int64_t chunks = 0;
    for (int part = 0; part < x.parts; ++part)
        chunks +=
            (x.end[part] - x.begin[part] + lora_up_columns(x.rank) - 1) / lora_up_columns(x.rank);
    return chunks;
}
constexpr std::int64_t lora_up_outputs(const LoraUpArguments& x) {
    std::int64_t outputs = 0;
    for (int part = 0; part < x.parts; ++part)
        outputs += x.end[part] - x.begin[part];
    return outputs;
}
constexpr LoraCut lora_up_cut(const LoraUpArguments& x) {
    return lora_cut((x.tokens + kLoraUpTokens - 1) / kLoraUpTokens,
                    kLoraBlocksEach * x.multiprocessors / lora_up_chunks(x));
}
// Floats of the blocks' parts of dh, which come first, and of all scratch.
constexpr std::int64_t lora_up_dh_scratch(const LoraUpArguments& x) {
    const std::int64_t steps = (x.tokens + kLoraUpStep - 1) / kLoraUpStep;
    return lora_up_chunks(x) * steps * kLoraUpStep * x.rank;
}
constexpr std::int64_t lora_up_scratch(const LoraUpArguments& x) {
    const std::int64_t units = (x.tokens + kLoraUpTokens - 1) / kLoraUpTokens;
    const std::int64_t pieces =
        lora_pieces(units, kLoraBlocksEach * x.multiprocessors / lora_up_chunks(x));
    return lora_up_dh_scratch(x) + pieces * lora_up_outputs(x) * x.rank;
}

}  // namespace garam::cuda
