// Cases of cached_attention.
#pragma once

#include <vector>

#include "garam/ops/cached_attention.h"

namespace garam::testing {

struct CachedAttentionCase {
    DType dtype;
    AttentionShape shape;
    std::int64_t tokens, length;  // length: keys, the new tokens' with them
    std::int64_t rotary_dim;
    std::int64_t spare, pad;  // spare: rows of the cache that are not filled
    Cost cost;
};

inline const std::vector<CachedAttentionCase>& cached_attention_cases() {
    constexpr DType f32 = DType::f32;
    constexpr DType bf16 = DType::bf16;
    static const std::vector<CachedAttentionCase> kCases = {
        {f32, {4, 2, 16, 0.25f}, 1, 1, 16, 0, 0, {544, 580, 512}},
        {f32, {4, 2, 24, 0.2f}, 3, 40, 10, 5, 2, {45468, 16644, 2304}},
        {bf16, {4, 2, 80, 0.11f}, 5, 300, 80, 0, 8, {1914400, 196820, 6400}},
        {bf16, {4, 2, 20, 0.2f}, 1, 140, 20, 3, 1, {45160, 22644, 320}},
        // One token of a card's one kernel: alone, in a chunk's first and last place, of several chunks; all
        // instantiations, windows and caps, more heads than a tile's rows, entries that do not turn.
        {bf16, {8, 2, 80, 0.11f}, 1, 1, 80, 4, 0, {4960, 2244, 1920}},
        {bf16, {8, 2, 80, 0.11f}, 1, 128, 80, 0, 8, {330080, 83524, 1920}},
        {bf16, {8, 2, 80, 0.11f}, 1, 129, 80, 300, 0, {332640, 84164, 1920}},
        {bf16, {32, 8, 80, 0.11f}, 1, 1500, 80, 100, 16, {15369600, 3845444, 7680}},
        {bf16, {6, 2, 64, 0.125f}, 1, 700, 64, 9, 0, {1076736, 359428, 1280}},
        {bf16, {4, 4, 96, 0.1f}, 1, 200, 48, 0, 0, {308352, 308164, 2304}},
        {bf16, {4, 1, 128, 0.09f}, 1, 333, 128, 50, 8, {683904, 172036, 1536}},
        {bf16, {4, 2, 256, 0.0625f}, 1, 190, 256, 0, 0, {782848, 392196, 4096}},
        {bf16, {2, 1, 256, 0.0625f}, 1, 321, 64, 70, 0, {657984, 329988, 2048}},
        {bf16, {40, 1, 64, 0.125f}, 1, 400, 64, 0, 0, {4103872, 107780, 5376}},
        {bf16, {4, 2, 80, 0.11f, 100}, 1, 420, 80, 0, 0, {129440, 269764, 1280}},
        {bf16, {4, 2, 80, 0.11f, 128, 3.0f}, 1, 384, 80, 40, 0, {165280, 246724, 1280}},
        {bf16, {2, 1, 128, 0.09f, 1}, 1, 257, 128, 0, 0, {2176, 132612, 1024}},
        {bf16, {8, 4, 256, 0.0625f, 256, 50.0f}, 1, 700, 256, 20, 0, {2106368, 2872324, 8192}},
        // No entry turns.
        {bf16, {4, 2, 128, 0.09f}, 1, 200, 0, 3, 8, {409600, 205828, 2048}},
        {f32, {4, 2, 16, 0.25f}, 3, 40, 0, 1, 2, {29952, 11020, 1536}},
    };
    return kCases;
}

}  // namespace garam::testing
