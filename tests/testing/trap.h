// A kernel that fails on purpose, as a broken card or a wrong kernel would: from then on the process can
// compute nothing more on that card. For death tests, in builds with CUDA.
#pragma once

struct CUstream_st;  // at global scope, where CUDA has it

namespace garam::testing {

// On the card that this thread uses; returns once the card has failed.
void lose_card(CUstream_st* queue = nullptr);

}  // namespace garam::testing
