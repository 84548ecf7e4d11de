#include "garam/kernels/cuda/matmul.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <mutex>
#include <optional>

#include "garam/core/error.h"

namespace garam::cuda {
namespace {

void check(cublasStatus_t status, const char* doing) {
    if (status != CUBLAS_STATUS_SUCCESS)
        throw Bug(std::string("cublasLt: ") + doing + ": " + cublasLtGetStatusString(status));
}

// The library loads code and takes memory for itself when it is first used. That is no work of the
// stream, so that it may happen while the stream is recorded; the runtime wants to be told.
class RelaxedRecording {
  public:
    RelaxedRecording() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    ~RelaxedRecording() { cudaThreadExchangeStreamCaptureMode(&mode_); }
    RelaxedRecording(const RelaxedRecording&) = delete;
    RelaxedRecording& operator=(const RelaxedRecording&) = delete;

  private:
    cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

// One handle a card for the life of the process.
cublasLtHandle_t handle_of(int ordinal) {
    static std::mutex mutex;
    static std::map<int, cublasLtHandle_t> handles;
    const std::lock_guard lock(mutex);
    const auto found = handles.find(ordinal);
    if (found != handles.end()) return found->second;
    cudaSetDevice(ordinal);
    cublasLtHandle_t handle = nullptr;
    check(cublasLtCreate(&handle), "opening");
    return handles[ordinal] = handle;
}

template <typename Value>
void set(cublasLtMatmulDesc_t description, cublasLtMatmulDescAttributes_t attribute, Value value) {
    check(cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value),
          "describing a product");
}

// The library's matrices are stored by columns: what lies here as rows is its transpose there, and
// c' = op(b)' op(a)' is computed. So its first operand is our b, its rows are our n.
class Problem {
  public:
    explicit Problem(const MatmulArguments& x) {
        const cudaDataType in = x.inputs_are_bf16 ? CUDA_R_16BF : CUDA_R_32F;
        const cudaDataType out = x.c_is_bf16 ? CUDA_R_16BF : CUDA_R_32F;
        const bool tf32 = x.tf32 && !x.inputs_are_bf16;
        check(cublasLtMatmulDescInit(&description_,
                                     tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F,
                                     CUDA_R_32F),
              "describing a product");
        set(&description_, CUBLASLT_MATMUL_DESC_TRANSA, x.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(&description_, CUBLASLT_MATMUL_DESC_TRANSB, x.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
        if (x.bias != nullptr) {
            set(&description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
            set(&description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, x.bias);
            set(&description_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out);
        }
        lay_out(first_, in, x.transpose_b ? x.k : x.n, x.transpose_b ? x.n : x.k, x.b.pitch);
        lay_out(second_, in, x.transpose_a ? x.m : x.k, x.transpose_a ? x.k : x.m, x.a.pitch);
        lay_out(added_, out, x.n, x.m, x.addend.data != nullptr ? x.addend.pitch : x.c.pitch);
        lay_out(result_, out, x.n, x.m, x.c.pitch);
    }
    cublasLtMatmulDesc_t description() { return &description_; }
    cublasLtMatrixLayout_t first() { return &first_; }
    cublasLtMatrixLayout_t second() { return &second_; }
    cublasLtMatrixLayout_t added() { return &added_; }
    cublasLtMatrixLayout_t result() { return &result_; }

  private:
    static void lay_out(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType type, std::int64_t rows,
                        std::int64_t columns, std::int64_t pitch) {
        check(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), std::max(pitch, rows)),
              "describing a matrix");
    }
    cublasLtMatmulDescOpaque_t description_{};
    cublasLtMatrixLayoutOpaque_t first_{}, second_{}, added_{}, result_{};
};

// The largest power of two, up to 256, that divides an address.
std::uint32_t alignment_of(const void* pointer) {
    const auto address = reinterpret_cast<std::uintptr_t>(pointer);
    return 1u << std::min(std::countr_zero(address | 256), 8);
}

struct Alignments {
    std::uint32_t first, second, added, result;
};
Alignments alignments_of(const MatmulArguments& x) {
    std::uint32_t result = alignment_of(x.c.data);
    if (x.bias != nullptr) result = std::min(result, alignment_of(x.bias));
    const void* const added = x.addend.data != nullptr ? x.addend.data : x.c.data;
    return {alignment_of(x.b.data), alignment_of(x.a.data), alignment_of(added), result};
}

template <typename Value>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            Value value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "stating a preference");
}

// The algorithm of a product; nothing where the library has none. All that the choice depends on is in
// the key of chosen(), so that the same product is computed alike from first to last.
std::optional<cublasLtMatmulAlgo_t> choose(cublasLtHandle_t handle, Problem& problem,
                                           const Alignments& alignments) {
    cublasLtMatmulPreferenceOpaque_t preference{};
    check(cublasLtMatmulPreferenceInit(&preference), "stating a preference");
    prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
           static_cast<std::uint64_t>(kMatmulWorkspace));
    // Pieces of a sum meet in the workspace, in fp32 and in a fixed order: not in the result itself,
    // whose order would be chance.
    prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignments.first);
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignments.second);
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignments.added);
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignments.result);
    cublasLtMatmulHeuristicResult_t best{};
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, problem.description(), problem.first(), problem.second(), problem.added(),
        problem.result(), &preference, 1, &best, &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED || (status == CUBLAS_STATUS_SUCCESS && found == 0))
        return std::nullopt;
    check(status, "choosing an algorithm");
    if (best.state != CUBLAS_STATUS_SUCCESS) return std::nullopt;
    return best.algo;
}

std::optional<cublasLtMatmulAlgo_t> chosen(cublasLtHandle_t handle, Problem& problem,
                                           const MatmulArguments& x) {
    const Alignments alignments = alignments_of(x);
    const std::int64_t flags =
        (x.transpose_a ? 1 : 0) | (x.transpose_b ? 2 : 0) | (x.inputs_are_bf16 ? 4 : 0) |
        (x.c_is_bf16 ? 8 : 0) | (x.tf32 ? 16 : 0) | (x.bias != nullptr ? 32 : 0) |
        (x.addend.data != nullptr ? 64 : 0) | (x.addend.data == x.c.data ? 128 : 0) |
        static_cast<std::int64_t>(x.ordinal) << 8;
    using Key = std::array<std::int64_t, 10>;
    const Key key = {x.m,
                     x.n,
                     x.k,
                     x.a.pitch,
                     x.b.pitch,
                     x.c.pitch,
                     x.addend.data != nullptr ? x.addend.pitch : 0,
                     flags,
                     static_cast<std::int64_t>(alignments.first) << 32 | alignments.second,
                     static_cast<std::int64_t>(alignments.added) << 32 | alignments.result};
    static std::mutex mutex;
    static std::map<Key, std::optional<cublasLtMatmulAlgo_t>> choices;
    const std::lock_guard lock(mutex);
    const auto found = choices.find(key);
    if (found != choices.end()) return found->second;
    return choices[key] = choose(handle, problem, alignments);
}

void multiply(StreamHandle stream, const MatmulArguments& x) {
    if (x.k == 0) return plain_matmul(stream, x);
    if (gemv(stream, x)) return;
    const RelaxedRecording relaxed;
    const cublasLtHandle_t handle = handle_of(x.ordinal);
    Problem problem(x);
    const auto algorithm = chosen(handle, problem, x);
    if (!algorithm) return plain_matmul(stream, x);
    const float beta = x.addend.data != nullptr ? 1.0f : 0.0f;
    check(
        cublasLtMatmul(handle, problem.description(), &x.alpha, x.b.data, problem.first(), x.a.data,
                       problem.second(), &beta, x.addend.data != nullptr ? x.addend.data : x.c.data,
                       problem.added(), x.c.data, problem.result(), &*algorithm, x.workspace,
                       static_cast<std::size_t>(kMatmulWorkspace), stream),
        "multiplying");
}

}  // namespace

const MatmulKernels& matmul_kernels() {
    static constexpr MatmulKernels kTable{multiply};
    return kTable;
}

}  // namespace garam::cuda
