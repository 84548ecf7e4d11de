#include "garam/kernels/cuda/embedding.h"

#include "garam/core/error.h"

namespace garam::cuda {

const EmbeddingKernels& embedding_kernels() {
    throw Bug("this build has no CUDA");
}

}  // namespace garam::cuda
