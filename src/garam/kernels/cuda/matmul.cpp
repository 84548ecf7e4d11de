#include "garam/kernels/cuda/matmul.h"

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "garam/core/error.h"

namespace garam::cuda {
namespace {

void check(cublasStatus_t status, const char* doing) {
    if (status == CUBLAS_STATUS_SUCCESS) return;
    check_card(doing);
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
    Problem(const ProductShape& x, const void* bias)
        : in_(x.inputs_are_bf16 ? CUDA_R_16BF : CUDA_R_32F),
          out_(x.c_is_bf16 ? CUDA_R_16BF : CUDA_R_32F),
          compute_(x.tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F) {
        check(cublasLtMatmulDescInit(&description_, compute_, CUDA_R_32F), "describing a product");
        set(&description_, CUBLASLT_MATMUL_DESC_TRANSA, x.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N);
        set(&description_, CUBLASLT_MATMUL_DESC_TRANSB, x.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N);
        if (x.bias) {
            set(&description_, CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
            set(&description_, CUBLASLT_MATMUL_DESC_BIAS_POINTER, bias);
            set(&description_, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, out_);
        }
        lay_out(first_, in_, x.transpose_b ? x.k : x.n, x.transpose_b ? x.n : x.k, x.b_pitch);
        lay_out(second_, in_, x.transpose_a ? x.m : x.k, x.transpose_a ? x.k : x.m, x.a_pitch);
        lay_out(added_, out_, x.n, x.m,
                x.addend != ProductAddend::none ? x.addend_pitch : x.c_pitch);
        lay_out(result_, out_, x.n, x.m, x.c_pitch);
    }
    cublasLtMatmulDesc_t description() { return &description_; }
    cublasLtMatrixLayout_t first() { return &first_; }
    cublasLtMatrixLayout_t second() { return &second_; }
    cublasLtMatrixLayout_t added() { return &added_; }
    cublasLtMatrixLayout_t result() { return &result_; }
    cudaDataType in() const { return in_; }
    cudaDataType out() const { return out_; }
    cublasComputeType_t compute() const { return compute_; }

  private:
    static void lay_out(cublasLtMatrixLayoutOpaque_t& layout, cudaDataType type, std::int64_t rows,
                        std::int64_t columns, std::int64_t pitch) {
        check(cublasLtMatrixLayoutInit(&layout, type, static_cast<std::uint64_t>(rows),
                                       static_cast<std::uint64_t>(columns), std::max(pitch, rows)),
              "describing a matrix");
    }
    cudaDataType in_, out_;
    cublasComputeType_t compute_;
    cublasLtMatmulDescOpaque_t description_{};
    cublasLtMatrixLayoutOpaque_t first_{}, second_{}, added_{}, result_{};
};

template <typename Value>
void prefer(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
            Value value) {
    check(cublasLtMatmulPreferenceSetAttribute(preference, attribute, &value, sizeof value),
          "stating a preference");
}

// Up to `most` algorithms of a product, the library's first choice first; none where it has none.
std::vector<cublasLtMatmulAlgo_t> choose(cublasLtHandle_t handle, Problem& problem,
                                         const ProductShape& shape, int most) {
    const auto alignment = [](std::int64_t bytes) { return static_cast<std::uint32_t>(bytes); };
    cublasLtMatmulPreferenceOpaque_t preference{};
    check(cublasLtMatmulPreferenceInit(&preference), "stating a preference");
    prefer(&preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
           static_cast<std::uint64_t>(kMatmulWorkspace));
    // Pieces of a sum meet in the workspace, in fp32 and in a fixed order: not in the result itself,
    // whose order would be chance.
    prefer(&preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK,
           static_cast<std::uint32_t>(CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE));
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(shape.b_alignment));
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(shape.a_alignment));
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES,
           alignment(shape.addend_alignment));
    prefer(&preference, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(shape.c_alignment));
    std::vector<cublasLtMatmulHeuristicResult_t> results(static_cast<std::size_t>(most));
    int found = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        handle, problem.description(), problem.first(), problem.second(), problem.added(),
        problem.result(), &preference, most, results.data(), &found);
    if (status == CUBLAS_STATUS_NOT_SUPPORTED) return {};
    check(status, "choosing an algorithm");
    results.resize(static_cast<std::size_t>(found));
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (const cublasLtMatmulHeuristicResult_t& result : results)
        if (result.state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(result.algo);
    return algorithms;
}

// One attribute of the library's algorithms, of the type that it has there.
template <typename Value>
bool read(const cublasLtMatmulAlgo_t& from, cublasLtMatmulAlgoConfigAttributes_t attribute,
          std::int64_t& to) {
    Value value{};
    std::size_t written = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(&from, attribute, &value, sizeof value, &written) !=
        CUBLAS_STATUS_SUCCESS)
        return false;
    to = static_cast<std::int64_t>(value);
    return true;
}
template <typename Value>
bool write(cublasLtMatmulAlgo_t& to, cublasLtMatmulAlgoConfigAttributes_t attribute,
           std::int64_t from) {
    // An algorithm may not have an attribute at all: then only its default can be meant.
    std::int64_t now = 0;
    if (read<Value>(to, attribute, now) && now == from) return true;
    const auto value = static_cast<Value>(from);
    return static_cast<std::int64_t>(value) == from &&
           cublasLtMatmulAlgoConfigSetAttribute(&to, attribute, &value, sizeof value) ==
               CUBLAS_STATUS_SUCCESS;
}

std::optional<ProductAlgorithm> terms_of(const cublasLtMatmulAlgo_t& algorithm) {
    ProductAlgorithm x;
    if (!read<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_ID, x.id)) return std::nullopt;
    read<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_TILE_ID, x.tile);
    read<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_STAGES_ID, x.stages);
    read<std::int32_t>(algorithm, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, x.split_k);
    read<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, x.reduction_scheme);
    read<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, x.swizzling);
    read<std::uint32_t>(algorithm, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, x.custom_option);
    read<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, x.inner_shape);
    read<std::uint16_t>(algorithm, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, x.cluster_shape);
    return x;
}

// What an algorithm asks of addresses and pitches, against what the operands have.
bool is_aligned(const cublasLtMatmulAlgo_t& algorithm, const ProductShape& shape) {
    const auto fits = [&](cublasLtMatmulAlgoCapAttributes_t attribute, std::int64_t alignment,
                          std::int64_t pitch, bool bf16) {
        std::uint32_t needed = 0;
        std::size_t written = 0;
        if (cublasLtMatmulAlgoCapGetAttribute(&algorithm, attribute, &needed, sizeof needed,
                                              &written) != CUBLAS_STATUS_SUCCESS ||
            needed == 0)
            return true;
        return alignment % needed == 0 && pitch * (bf16 ? 2 : 4) % needed == 0;
    };
    const bool in = shape.inputs_are_bf16;
    const bool out = shape.c_is_bf16;
    const bool adds = shape.addend != ProductAddend::none;
    return fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_A_BYTES, shape.b_alignment, shape.b_pitch, in) &&
           fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_B_BYTES, shape.a_alignment, shape.a_pitch, in) &&
           fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_C_BYTES, shape.addend_alignment,
                adds ? shape.addend_pitch : shape.c_pitch, out) &&
           fits(CUBLASLT_ALGO_CAP_MIN_ALIGNMENT_D_BYTES, shape.c_alignment, shape.c_pitch, out);
}

// The library's algorithm of these terms; nothing where it has none for the product.
std::optional<cublasLtMatmulAlgo_t> made_of(cublasLtHandle_t handle, Problem& problem,
                                            const ProductShape& shape, const ProductAlgorithm& x) {
    cublasLtMatmulAlgo_t made{};
    if (!is_deterministic(x) ||
        cublasLtMatmulAlgoInit(handle, problem.compute(), CUDA_R_32F, problem.in(), problem.in(),
                               problem.out(), problem.out(), static_cast<int>(x.id),
                               &made) != CUBLAS_STATUS_SUCCESS)
        return std::nullopt;
    if (!write<std::uint32_t>(made, CUBLASLT_ALGO_CONFIG_TILE_ID, x.tile) ||
        !write<std::uint32_t>(made, CUBLASLT_ALGO_CONFIG_STAGES_ID, x.stages) ||
        !write<std::int32_t>(made, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, x.split_k) ||
        !write<std::uint32_t>(made, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, x.reduction_scheme) ||
        !write<std::uint32_t>(made, CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, x.swizzling) ||
        !write<std::uint32_t>(made, CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, x.custom_option) ||
        !write<std::uint16_t>(made, CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, x.inner_shape) ||
        !write<std::uint16_t>(made, CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, x.cluster_shape))
        return std::nullopt;
    cublasLtMatmulHeuristicResult_t result{};
    if (cublasLtMatmulAlgoCheck(handle, problem.description(), problem.first(), problem.second(),
                                problem.added(), problem.result(), &made,
                                &result) != CUBLAS_STATUS_SUCCESS ||
        result.state != CUBLAS_STATUS_SUCCESS ||
        result.workspaceSize > static_cast<std::size_t>(kMatmulWorkspace) ||
        !is_aligned(made, shape))
        return std::nullopt;
    return made;
}

// The algorithm of a product; nothing where the library has none. All that the choice depends on is in
// the key, so that the same product is computed alike from first to last.
std::optional<cublasLtMatmulAlgo_t> chosen(cublasLtHandle_t handle, Problem& problem,
                                           const ProductShape& shape, const MatmulArguments& x) {
    struct Key {
        ProductShape shape;
        std::optional<ProductAlgorithm> algorithm;
        int ordinal;
        auto operator<=>(const Key&) const = default;
    };
    Key key{shape, std::nullopt, x.ordinal};
    if (x.algorithm != nullptr) key.algorithm = *x.algorithm;
    static std::mutex mutex;
    static std::map<Key, std::optional<cublasLtMatmulAlgo_t>> choices;
    const std::lock_guard lock(mutex);
    const auto found = choices.find(key);
    if (found != choices.end()) return found->second;
    std::optional<cublasLtMatmulAlgo_t> choice;
    if (key.algorithm) {
        choice = made_of(handle, problem, shape, *key.algorithm);
        if (!choice) throw Bug("cublasLt: no such algorithm for " + shape.to_string());
    } else {
        const auto first = choose(handle, problem, shape, 1);
        if (!first.empty()) choice = first.front();
    }
    return choices[key] = choice;
}

void multiply(StreamHandle stream, const MatmulArguments& x) {
    if (x.k == 0) return plain_matmul(stream, x);
    if (gemv(stream, x)) return;
    const RelaxedRecording relaxed;
    const cublasLtHandle_t handle = handle_of(x.ordinal);
    const ProductShape shape = product_shape(x);
    Problem problem(shape, x.bias);
    const auto algorithm = chosen(handle, problem, shape, x);
    if (!algorithm) return plain_matmul(stream, x);
    const float beta = x.addend.data != nullptr ? 1.0f : 0.0f;
    check(
        cublasLtMatmul(handle, problem.description(), &x.alpha, x.b.data, problem.first(), x.a.data,
                       problem.second(), &beta, x.addend.data != nullptr ? x.addend.data : x.c.data,
                       problem.added(), x.c.data, problem.result(), &*algorithm, x.workspace,
                       static_cast<std::size_t>(kMatmulWorkspace), stream),
        "multiplying");
}

std::int64_t library_version() {
    return static_cast<std::int64_t>(cublasLtGetVersion());
}

// Where a bias would lie while nothing is multiplied.
const void* some_bias(const ProductShape& shape) {
    return reinterpret_cast<const void*>(static_cast<std::uintptr_t>(shape.c_alignment));
}

std::vector<ProductAlgorithm> candidates(int ordinal, const ProductShape& shape, int most) {
    const cublasLtHandle_t handle = handle_of(ordinal);
    Problem problem(shape, some_bias(shape));
    std::vector<ProductAlgorithm> found;
    for (const cublasLtMatmulAlgo_t& proposed : choose(handle, problem, shape, most)) {
        const std::optional<ProductAlgorithm> terms = terms_of(proposed);
        // Only what can be made again from its terms can be kept in a table.
        if (!terms || std::find(found.begin(), found.end(), *terms) != found.end() ||
            !made_of(handle, problem, shape, *terms))
            continue;
        found.push_back(*terms);
    }
    return found;
}

bool accepts(int ordinal, const ProductShape& shape, const ProductAlgorithm& algorithm) {
    Problem problem(shape, some_bias(shape));
    return made_of(handle_of(ordinal), problem, shape, algorithm).has_value();
}

}  // namespace

const MatmulKernels& matmul_kernels() {
    static constexpr MatmulKernels kTable{multiply, library_version, candidates, accepts};
    return kTable;
}

}  // namespace garam::cuda
