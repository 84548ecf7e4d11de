#include "garam/models/adapter_init.h"

#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

// Rows of unit length, each orthogonal to all others: Gram and Schmidt, twice, on normal ones.
std::vector<double> orthogonal_rows(std::int64_t r, Random& random) {
    const auto n = static_cast<std::size_t>(r);
    std::vector<double> q(n * n);
    for (std::size_t row = 0; row < n; ++row) {
        double* const own = q.data() + row * n;
        for (std::size_t k = 0; k < n; ++k)
            own[k] = random.normal();
        for (int pass = 0; pass < 2; ++pass) {
            for (std::size_t before = 0; before < row; ++before) {
                const double* const other = q.data() + before * n;
                double dot = 0;
                for (std::size_t k = 0; k < n; ++k)
                    dot += own[k] * other[k];
                for (std::size_t k = 0; k < n; ++k)
                    own[k] -= dot * other[k];
            }
        }
        double squares = 0;
        for (std::size_t k = 0; k < n; ++k)
            squares += own[k] * own[k];
        for (std::size_t k = 0; k < n; ++k)
            own[k] /= std::sqrt(squares);
    }
    return q;
}

// [count, r]: each a normal mixture of every second row of q from `first` on, over 10.
std::vector<float> mixtures(std::int64_t count, std::int64_t r, std::int64_t first,
                            const std::vector<double>& q, Random& random) {
    std::vector<float> out(static_cast<std::size_t>(count * r));
    std::vector<double> sum(static_cast<std::size_t>(r));
    for (std::int64_t i = 0; i < count; ++i) {
        sum.assign(sum.size(), 0);
        for (std::int64_t row = first; row < r; row += 2) {
            const double weight = random.normal() / 10;
            for (std::int64_t k = 0; k < r; ++k)
                sum[static_cast<std::size_t>(k)] +=
                    weight * q[static_cast<std::size_t>(row * r + k)];
        }
        for (std::int64_t k = 0; k < r; ++k)
            out[static_cast<std::size_t>(i * r + k)] =
                static_cast<float>(sum[static_cast<std::size_t>(k)]);
    }
    return out;
}

}  // namespace

LoraInit lora_init_from_name(const std::string& name) {
    using Kind = LoraInit::Kind;
    if (name == "true") return {Kind::kaiming};
    if (name == "gaussian") return {Kind::gaussian};
    if (name == "orthogonal") return {Kind::orthogonal};
    if (name == "pissa") return {Kind::pissa};
    if (name == "loftq") return {Kind::loftq};
    constexpr std::string_view kRounds = "pissa_niter_";
    if (name.starts_with(kRounds)) {
        std::int64_t iterations = 0;
        const char* const end = name.data() + name.size();
        const auto [stop, error] = std::from_chars(name.data() + kRounds.size(), end, iterations);
        if (error == std::errc() && stop == end && iterations >= 0)
            return {Kind::pissa, iterations};
    }
    throw Error(
        "lora.init_lora_weights: \"" + name +
        "\" is not supported; choose one of true, gaussian, orthogonal, pissa, pissa_niter_N, "
        "loftq");
}

void initialise_lora(LoraInit::Kind init, std::uint64_t seed, std::uint64_t number, const Tensor& A,
                     const Tensor& B) {
    const std::int64_t r = A.extent(0);
    const std::int64_t in = A.extent(1);
    float* const a = A.data<float>();
    Random random(seed, number);
    switch (init) {
        case LoraInit::Kind::kaiming: {
            const double bound = 1 / std::sqrt(static_cast<double>(in));
            for (std::int64_t e = 0; e < r * in; ++e)
                a[e] = static_cast<float>(random.uniform(-bound, bound));
            return;
        }
        case LoraInit::Kind::gaussian:
            for (std::int64_t e = 0; e < r * in; ++e)
                a[e] = static_cast<float>(random.normal() / static_cast<double>(r));
            return;
        case LoraInit::Kind::orthogonal:
            break;
        case LoraInit::Kind::pissa:
        case LoraInit::Kind::loftq:
            GARAM_CHECK(false, "PiSSA and LoftQ begin with the weight");
    }
    if (r % 2 != 0)
        throw Error("lora.init_lora_weights=orthogonal needs an even rank, not " +
                    std::to_string(r));
    const std::vector<double> q = orthogonal_rows(r, random);
    const std::vector<float> a_columns = mixtures(in, r, 0, q, random);
    for (std::int64_t k = 0; k < r; ++k)
        for (std::int64_t i = 0; i < in; ++i)
            a[k * in + i] = a_columns[static_cast<std::size_t>(i * r + k)];
    const std::vector<float> b = mixtures(B.extent(0), r, 1, q, random);
    std::copy(b.begin(), b.end(), B.data<float>());
}

void initialise_embedding_lora(std::uint64_t seed, std::uint64_t number, const Tensor& B) {
    Random random(seed, number);
    float* const b = B.data<float>();
    for (std::int64_t e = 0; e < B.elements(); ++e)
        b[e] = static_cast<float>(random.normal());
}

}  // namespace garam
