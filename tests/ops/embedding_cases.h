// Cases of embedding_forward and embedding_backward.
#pragma once

#include <vector>

#include "garam/runtime/stream.h"

namespace garam::testing {

struct EmbeddingCase {
    DType dtype;
    std::int64_t tokens, vocab, hidden, pad;
    Cost forward, backward;
};

inline const std::vector<EmbeddingCase>& embedding_cases() {
    static const std::vector<EmbeddingCase> kCases = {
        {DType::f32, 1, 1, 1, 0, {0, 8, 4}, {1, 12, 4}},
        {DType::f32, 65, 7, 63, 2, {0, 16640, 16380}, {4095, 33020, 16380}},
        // Pieces of 32 tokens: runs of equal ids cross them.
        {DType::f32, 200, 3, 1000, 0, {0, 800800, 800000}, {200000, 1600800, 800000}},
        {DType::bf16, 33, 100, 48, 1, {0, 3300, 3168}, {1584, 9636, 6336}},
        // Wide accesses.
        {DType::bf16, 70, 5, 1048, 8, {0, 147000, 146720}, {73360, 440440, 293440}},
        {DType::f32, 0, 4, 8, 0, {0, 0, 0}, {0, 0, 0}},
    };
    return kCases;
}

}  // namespace garam::testing
