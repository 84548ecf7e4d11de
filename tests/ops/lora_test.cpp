// The ops on groups of adapters exist on a card only: where there is none, nothing but their plan on a
// dry one is tested.
#include "garam/ops/lora.h"

#include <cmath>

#include "ops/dropout_cases.h"
#include "ops/lora_cases.h"
#include "ops/op_run.h"

namespace garam::testing {
namespace {

std::vector<DeviceProfile> cards() {
    std::vector<DeviceProfile> found;
    for (const DeviceProfile& profile : test_profiles())
        if (profile.is_cuda()) found.push_back(profile);
    return found;
}

class Lora : public OpTest {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(Lora);
INSTANTIATE_TEST_SUITE_P(Cuda, Lora, ::testing::ValuesIn(cards()),
                         [](const auto& test) { return profile_name(test.param); });

constexpr std::uint64_t kSeed = 0x0fedcba987654321u;
constexpr std::uint32_t kStep = 23;

double product(std::int64_t a, std::int64_t b) {
    return static_cast<double>(a) * static_cast<double>(b);
}

// A group with its tensors in a run. Gradients exist for all parts.
class Group {
  public:
    Group(OpRun& run, const LoraCase& c) : run_(run), c_(c) {
        A_ = run.input(c.dtype, c.tail, c.in, c.pad);
        B_ = run.input(c.dtype, c.out, c.tail, c.pad);
        std::vector<double> A = run.values(A_);
        for (std::int64_t r = owned(); r < c.tail; ++r)
            for (std::int64_t i = 0; i < c.in; ++i)
                A[at(r * c.in + i)] = 0;
        run.set(A_, A);
        std::vector<double> B = run.values(B_);
        for (std::int64_t row = 0; row < c.out; ++row)
            for (std::int64_t r = 0; r < c.tail; ++r)
                if (!holds(row, r)) B[at(row * c.tail + r)] = 0;
        run.set(B_, B);
        for (std::int64_t t = 0; t < c.tokens; ++t) {
            position_.push_back(static_cast<std::int32_t>(t % 30));
            sample_.push_back((t / 30 + 3) << (t % 2 == 0 ? 0 : 33));
        }
        positions_ = run.integers(position_);
        samples_ = run.integers64(sample_);
        step_ = run.integers({static_cast<std::int32_t>(kStep)});
        for (const LoraRows& rows : c.parts) {
            A_gradients_.push_back(run.in_place(DType::f32, c.rank, c.in, c.pad));
            B_gradients_.push_back(run.in_place(DType::f32, rows.end - rows.begin, c.rank, c.pad));
        }
    }

    LoraGroup group(const std::vector<Tensor>& t) const {
        LoraGroup group;
        group.rank = c_.rank;
        group.scaling = c_.scaling;
        group.dropout = c_.dropout;
        group.A = t[at(A_)];
        group.B = t[at(B_)];
        for (std::size_t i = 0; i < c_.parts.size(); ++i)
            group.parts.push_back({c_.parts[i].begin, c_.parts[i].end, module_of(i),
                                   t[at(A_gradients_[i])], t[at(B_gradients_[i])]});
        return group;
    }
    LoraMask mask(const std::vector<Tensor>& t) const {
        return {true, kSeed, t[at(step_)], t[at(positions_)], t[at(samples_)]};
    }

    std::int64_t owned() const { return parts() * c_.rank; }
    std::int64_t parts() const { return static_cast<std::int64_t>(c_.parts.size()); }
    // The mask's factor.
    double kept(std::int64_t part, std::int64_t token, std::int64_t column) const {
        if (c_.dropout == 0) return 1;
        const DropoutPlace place{kSeed, kStep, module_of(at(part))};
        return dropout_keeps(place, position_[at(token)], sample_[at(token)], column, c_.dropout)
                   ? 1 / (1 - static_cast<double>(c_.dropout))
                   : 0;
    }
    bool holds(std::int64_t row, std::int64_t r) const {
        const std::int64_t part = r / c_.rank;
        return part < parts() && row >= c_.parts[at(part)].begin && row < c_.parts[at(part)].end;
    }
    std::vector<double> A() const { return run_.values(A_); }
    std::vector<double> B() const { return run_.values(B_); }
    int A_gradient(std::int64_t part) const { return A_gradients_[at(part)]; }
    int B_gradient(std::int64_t part) const { return B_gradients_[at(part)]; }

    // Bytes of some elements in the case's dtype; of the mask's inputs; flops of masking.
    double bytes(std::int64_t rows, std::int64_t columns) const {
        return product(rows, columns) * static_cast<double>(size_of(c_.dtype));
    }
    double mask_bytes() const { return c_.dropout > 0 ? 12.0 * static_cast<double>(c_.tokens) : 0; }
    double mask_flops() const {
        return c_.dropout > 0 ? 2 * product(c_.tokens, c_.in) * static_cast<double>(parts()) : 0;
    }
    double product_flops() const {
        return 2 * product(c_.tokens, c_.in) * static_cast<double>(owned());
    }

    static std::size_t at(std::int64_t index) { return static_cast<std::size_t>(index); }

  private:
    static std::uint32_t module_of(std::size_t part) {
        return static_cast<std::uint32_t>(40 + part);
    }

    OpRun& run_;
    const LoraCase& c_;
    int A_ = 0, B_ = 0, positions_ = 0, samples_ = 0, step_ = 0;
    std::vector<std::int32_t> position_;
    std::vector<std::int64_t> sample_;
    std::vector<int> A_gradients_, B_gradients_;
};

// Sums with the sizes of their terms, and how far a result may be from them.
struct Sums {
    std::vector<double> want, bound;

    // `terms` in fp32, in any order; one rounding to `result`; `more` of the size of the terms where a
    // composition rounds in between.
    void add(double value, double size, std::int64_t terms, DType result, double more) {
        want.push_back(value);
        bound.push_back(static_cast<double>(terms + 8) * 0x1p-24 * size +
                        1.01 * unit_of(result) * std::abs(value) + more * size);
    }
};

double between(const LoraCase& c, double roundings) {
    return c.fused() || c.dropout == 0 ? 0 : 1.01 * roundings * unit_of(c.dtype);
}

std::string describe(const LoraCase& c) {
    return std::to_string(c.tokens) + " tokens, " + std::to_string(c.in) + " in, rank " +
           std::to_string(c.rank) + ", " + std::to_string(c.parts.size()) + " parts, dropout " +
           std::to_string(c.dropout) + " " + std::string(name_of(c.dtype));
}

TEST_P(Lora, Down) {
    for (const LoraCase& c : lora_cases()) {
        SCOPED_TRACE(describe(c));
        OpRun run(GetParam());
        const Group group(run, c);
        const int x = run.input(c.dtype, c.tokens, c.in, c.pad);
        const int u = run.output(c.dtype, c.tokens, c.tail, c.pad);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                lora_down(stream, group.group(t), group.mask(t), t[Group::at(x)], t[Group::at(u)]);
            },
            {group.product_flops() + group.mask_flops(),
             group.bytes(c.tokens + group.owned(), c.in) + group.mask_bytes(),
             group.bytes(c.tokens, c.tail)});
        const std::vector<double> in = run.values(x), A = group.A();
        Sums sums;
        for (std::int64_t t = 0; t < c.tokens; ++t) {
            for (std::int64_t r = 0; r < c.tail; ++r) {
                double sum = 0, size = 0;
                for (std::int64_t i = 0; r < group.owned() && i < c.in; ++i) {
                    const double term = group.kept(r / c.rank, t, i) * in[Group::at(t * c.in + i)] *
                                        A[Group::at(r * c.in + i)];
                    sum += term;
                    size += std::abs(term);
                }
                sums.add(sum, size, c.in, c.dtype, between(c, 1));
            }
        }
        expect_within(run.values(u), sums.want, sums.bound, "u");
    }
}

TEST_P(Lora, DownBackward) {
    for (const LoraCase& c : lora_cases()) {
        SCOPED_TRACE(describe(c));
        OpRun run(GetParam());
        const Group group(run, c);
        const int x = run.input(c.dtype, c.tokens, c.in, c.pad);
        const int dh = run.input(c.dtype, c.tokens, c.tail, c.pad);
        const double gradient_bytes = 4 * product(group.owned(), c.in);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                lora_down_backward(stream, group.group(t), group.mask(t), t[Group::at(x)],
                                   t[Group::at(dh)]);
            },
            {group.product_flops() + group.mask_flops(),
             group.bytes(c.tokens, c.in + group.owned()) + group.mask_bytes() + gradient_bytes,
             gradient_bytes});
        const std::vector<double> in = run.values(x), h = run.values(dh);
        for (std::int64_t part = 0; part < group.parts(); ++part) {
            const std::vector<double> held = run.before(group.A_gradient(part));
            Sums sums;
            for (std::int64_t r = 0; r < c.rank; ++r) {
                for (std::int64_t i = 0; i < c.in; ++i) {
                    double sum = held[Group::at(r * c.in + i)], size = std::abs(sum);
                    for (std::int64_t t = 0; t < c.tokens; ++t) {
                        const double term = group.kept(part, t, i) * in[Group::at(t * c.in + i)] *
                                            h[Group::at(t * c.tail + part * c.rank + r)];
                        sum += term;
                        size += std::abs(term);
                    }
                    sums.add(sum, size, c.tokens, DType::f32, between(c, 1));
                }
            }
            expect_within(run.values(group.A_gradient(part)), sums.want, sums.bound, "A gradient");
            EXPECT_EQ(run.values(group.B_gradient(part)), run.before(group.B_gradient(part)));
        }
    }
}

TEST_P(Lora, InputBackward) {
    for (const LoraCase& c : lora_cases()) {
        SCOPED_TRACE(describe(c));
        OpRun run(GetParam());
        const Group group(run, c);
        const int dh = run.input(c.dtype, c.tokens, c.tail, c.pad);
        const int dx = run.in_place(c.dtype, c.tokens, c.in, c.pad);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                lora_input_backward(stream, group.group(t), group.mask(t), t[Group::at(dh)],
                                    t[Group::at(dx)]);
            },
            {group.product_flops() + group.mask_flops(),
             group.bytes(c.tokens, c.in) + group.bytes(c.tokens + c.in, group.owned()) +
                 group.mask_bytes(),
             group.bytes(c.tokens, c.in)});
        const std::vector<double> h = run.values(dh), held = run.before(dx), A = group.A();
        Sums sums;
        for (std::int64_t t = 0; t < c.tokens; ++t) {
            for (std::int64_t i = 0; i < c.in; ++i) {
                double sum = held[Group::at(t * c.in + i)], size = std::abs(sum);
                for (std::int64_t r = 0; r < group.owned(); ++r) {
                    const double term = group.kept(r / c.rank, t, i) *
                                        h[Group::at(t * c.tail + r)] * A[Group::at(r * c.in + i)];
                    sum += term;
                    size += std::abs(term);
                }
                // Without a mask it is a product that is added to dx, which cuBLASLt may round before.
                const double more = c.dropout == 0
                                        ? 1.01 * unit_of(c.dtype)
                                        : between(c, static_cast<double>(group.parts() + 1));
                sums.add(sum, size, group.owned(), c.dtype, more);
            }
        }
        expect_within(run.values(dx), sums.want, sums.bound, "dx");
    }
}

TEST_P(Lora, UpBackward) {
    for (const LoraCase& c : lora_cases()) {
        SCOPED_TRACE(describe(c));
        OpRun run(GetParam());
        const Group group(run, c);
        const int dy = run.input(c.dtype, c.tokens, c.out, c.pad);
        const int u = run.input(c.dtype, c.tokens, c.tail, c.pad);
        const int dh = run.output(c.dtype, c.tokens, c.tail, c.pad);
        std::int64_t outputs = 0;
        for (const LoraRows& rows : c.parts)
            outputs += rows.end - rows.begin;
        const double gradient_bytes = 4 * product(outputs, c.rank);
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                lora_up_backward(stream, group.group(t), t[Group::at(dy)], t[Group::at(u)],
                                 t[Group::at(dh)]);
            },
            {4 * product(c.tokens, outputs) * static_cast<double>(c.rank),
             group.bytes(c.tokens, c.out + group.owned()) + group.bytes(outputs, c.rank) +
                 gradient_bytes,
             group.bytes(c.tokens, c.tail) + gradient_bytes});
        const std::vector<double> y = run.values(dy), h = run.values(u), B = group.B();
        Sums sums;
        for (std::int64_t t = 0; t < c.tokens; ++t) {
            for (std::int64_t r = 0; r < c.tail; ++r) {
                double sum = 0, size = 0;
                for (std::int64_t o = 0; o < c.out; ++o) {
                    const double term = y[Group::at(t * c.out + o)] * B[Group::at(o * c.tail + r)];
                    sum += term;
                    size += std::abs(term);
                }
                sums.add(sum, size, c.out, c.dtype, 0);
            }
        }
        expect_within(run.values(dh), sums.want, sums.bound, "dh");
        for (std::int64_t part = 0; part < group.parts(); ++part) {
            const LoraRows rows = c.parts[Group::at(part)];
            const std::vector<double> held = run.before(group.B_gradient(part));
            Sums gradient;
            for (std::int64_t o = rows.begin; o < rows.end; ++o) {
                for (std::int64_t r = 0; r < c.rank; ++r) {
                    double sum = held[Group::at((o - rows.begin) * c.rank + r)];
                    double size = std::abs(sum);
                    for (std::int64_t t = 0; t < c.tokens; ++t) {
                        const double term = static_cast<double>(c.scaling) *
                                            y[Group::at(t * c.out + o)] *
                                            h[Group::at(t * c.tail + part * c.rank + r)];
                        sum += term;
                        size += std::abs(term);
                    }
                    gradient.add(sum, size, c.tokens, DType::f32, 0);
                }
            }
            expect_within(run.values(group.B_gradient(part)), gradient.want, gradient.bound,
                          "B gradient");
        }
    }
}

// Masks that an op leaves as bits serve the others like masks that they make: to the bit, but for gradients,
// whose sums over the tokens are cut otherwise.
TEST_P(Lora, KeptMasks) {
    for (const LoraCase& c : lora_cases()) {
        if (c.dropout == 0) continue;
        SCOPED_TRACE(describe(c));
        std::vector<std::vector<double>> results[2], gradients[2];
        for (const bool keeps : {false, true}) {
            OpRun run(GetParam());
            const Group group(run, c);
            const int x = run.input(c.dtype, c.tokens, c.in, c.pad);
            const int u = run.output(c.dtype, c.tokens, c.tail, c.pad);
            const int dh = run.input(c.dtype, c.tokens, c.tail, c.pad);
            const int dx = run.in_place(c.dtype, c.tokens, c.in, c.pad);
            const double gradient_bytes = 4 * product(group.owned(), c.in);
            const double A_bytes = group.bytes(group.owned(), c.in);
            const double h_bytes = group.bytes(c.tokens, group.owned());
            const double x_bytes = group.bytes(c.tokens, c.in);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    const LoraGroup of = group.group(t);
                    LoraMask mask = group.mask(t);
                    const ScratchScope scope(stream.arena());
                    const std::int64_t bytes = lora_kept_bytes(of, c.in);
                    if (keeps && bytes > 0)
                        mask.kept = stream.arena().scratch(DType::u8, {c.tokens, bytes});
                    mask.kept_is_written =
                        lora_down(stream, of, mask, t[Group::at(x)], t[Group::at(u)]);
                    EXPECT_EQ(mask.kept_is_written, keeps && c.fused());
                    lora_down_backward(stream, of, mask, t[Group::at(x)], t[Group::at(dh)]);
                    lora_input_backward(stream, of, mask, t[Group::at(dh)], t[Group::at(dx)]);
                },
                {3 * (group.product_flops() + group.mask_flops()),
                 3 * (x_bytes + group.mask_bytes()) + 2 * (A_bytes + h_bytes) + gradient_bytes,
                 group.bytes(c.tokens, c.tail) + gradient_bytes + x_bytes});
            auto& into = results[keeps ? 1 : 0];
            into = {run.values(u), run.values(dx)};
            for (std::int64_t part = 0; part < group.parts(); ++part)
                gradients[keeps ? 1 : 0].push_back(run.values(group.A_gradient(part)));
        }
        EXPECT_EQ(results[0], results[1]);
        const double bound = 4e-6 * static_cast<double>(c.tokens + 1);
        for (std::size_t part = 0; part < gradients[0].size(); ++part)
            for (std::size_t i = 0; i < gradients[0][part].size(); ++i)
                ASSERT_NEAR(gradients[0][part][i], gradients[1][part][i], bound)
                    << "part " << part << ", element " << i;
    }
}

// Plans count on it: the largest micro-batch needs the most.
TEST(LoraPlan, ScratchGrowsWithTheTokens) {
    DeviceProfile card;
    card.kind = DeviceKind::cuda;
    card.name = "a card";
    card.compute_capability = 90;
    card.multiprocessors = 132;
    card.shared_bytes = 227 << 10;
    card.fast_bf16 = true;
    for (const std::int64_t rank : {16, 24}) {
        std::int64_t before = 0;
        for (std::int64_t tokens = 1; tokens <= 20000; tokens += tokens < 3000 ? 13 : 200) {
            const auto device = make_dry_device(card);
            Arena arena(*device, std::int64_t{1} << 40);
            Meter meter;
            Stream stream(*device, arena, meter);
            constexpr std::int64_t kIn = 2560, kTail = 64;
            const auto take = [&](DType dtype, const Shape& shape) {
                return arena.push(dtype, shape, Purpose::batch);
            };
            LoraGroup group;
            group.rank = rank;
            group.dropout = 0.1f;
            group.A = take(DType::bf16, {kTail, kIn});
            group.B = take(DType::bf16, {kIn, kTail});
            for (std::uint32_t part = 0; part < 2; ++part)
                group.parts.push_back({part * 1280, (part + 1) * 1280, part,
                                       take(DType::f32, {rank, kIn}),
                                       take(DType::f32, {1280, rank})});
            const LoraMask mask{true, 1, take(DType::i32, {1}), take(DType::i32, {tokens}),
                                take(DType::i64, {tokens})};
            const Tensor x = take(DType::bf16, {tokens, kIn});
            const Tensor h = take(DType::bf16, {tokens, kTail});
            const std::int64_t operands = arena.used();
            lora_down(stream, group, mask, x, h);
            lora_up_backward(stream, group, x, h, h);
            lora_down_backward(stream, group, mask, x, h);
            lora_input_backward(stream, group, mask, h, x);
            EXPECT_GE(arena.peak() - operands, before) << tokens << " tokens";
            before = arena.peak() - operands;
        }
    }
}

}  // namespace
}  // namespace garam::testing
