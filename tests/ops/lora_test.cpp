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

// Whether lora_down leaves its masks as bits: such as nothing is composed for.
bool keeps(const LoraCase& c) {
    return c.fused() && c.dropout > 0;
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
        if (testing::keeps(c)) kept_ = run.integers(kept_words());
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
    // With the masks' bits in `words`, a tensor of whole numbers; by the formula.
    LoraMask mask_with(const std::vector<Tensor>& t, const Tensor& words, bool is_written) const {
        LoraMask mask = this->mask(t);
        mask.kept = Tensor(words.raw(), DType::u8, {words.elements() * 4}, words.device());
        mask.kept_is_written = is_written;
        return mask;
    }
    LoraMask mask_by_formula(const std::vector<Tensor>& t) const {
        return mask_with(t, t[at(kept_)], true);
    }
    // [tokens, parts, words]: word w has columns 32 w + c, even c in bit c / 2, odd c in bit 16 + c / 2.
    std::int64_t words() const { return (c_.in + 127) / 128 * 4; }
    std::vector<std::int32_t> kept_words() const {
        std::vector<std::uint32_t> bits(at(c_.tokens * parts() * words()));
        for (std::int64_t t = 0; t < c_.tokens; ++t)
            for (std::int64_t part = 0; part < parts(); ++part)
                for (std::int64_t i = 0; i < c_.in; ++i)
                    if (kept(part, t, i) != 0)
                        bits[at((t * parts() + part) * words() + i / 32)] |=
                            1u << (i % 2 * 16 + i % 32 / 2);
        return {bits.begin(), bits.end()};
    }

    std::int64_t owned() const { return parts() * c_.rank; }
    std::int64_t parts() const { return static_cast<std::int64_t>(c_.parts.size()); }
    // The mask's factor.
    double kept(std::int64_t part, std::int64_t token, std::int64_t column) const {
        if (c_.dropout == 0) return 1;
        const DropoutPlace place{kSeed, kStep, module_of(at(part))};
        return dropout_keeps(place, position_[at(token)], sample_[at(token)], column, c_.dropout)
                   ? dropout_scale(c_.dropout)
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
    int A_ = 0, B_ = 0, positions_ = 0, samples_ = 0, step_ = 0, kept_ = 0;
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

double between(const LoraCase& c, bool fused, double roundings) {
    return fused || c.dropout == 0 ? 0 : 1.01 * roundings * unit_of(c.dtype);
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
        const bool with_kept = keeps(c);
        const int kept =
            with_kept ? run.output(DType::i32, 1, c.tokens * group.parts() * group.words()) : 0;
        run.run(
            [&](Stream& stream, const std::vector<Tensor>& t) {
                const LoraMask mask =
                    with_kept ? group.mask_with(t, t[Group::at(kept)], false) : group.mask(t);
                EXPECT_EQ(lora_down(stream, group.group(t), mask, t[Group::at(x)], t[Group::at(u)]),
                          with_kept);
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
                sums.add(sum, size, c.in, c.dtype, between(c, c.fused(), 1));
            }
        }
        expect_within(run.values(u), sums.want, sums.bound, "u");
        if (!with_kept) continue;
        // Bits of columns beyond the last mean nothing.
        const std::vector<std::int32_t> want = group.kept_words();
        const std::vector<double> got = run.values(kept);
        for (std::size_t i = 0; i < want.size(); ++i) {
            const std::int64_t columns = c.in - static_cast<std::int64_t>(i) % group.words() * 32;
            const std::uint32_t half = columns >= 32 ? 0xffffu
                                       : columns > 0 ? (1u << columns / 2) - 1
                                                     : 0;
            ASSERT_EQ(
                static_cast<std::uint32_t>(static_cast<std::int32_t>(got[i])) & half * 0x10001u,
                static_cast<std::uint32_t>(want[i]))
                << "word " << i;
        }
    }
}

// The tail of an input that was made again: masks that are there already are made once more for it.
TEST_P(Lora, DownOfKeptMasks) {
    for (const LoraCase& c : lora_cases()) {
        if (!keeps(c)) continue;
        SCOPED_TRACE(describe(c));
        std::vector<std::vector<double>> results;
        for (const bool kept : {false, true}) {
            OpRun run(GetParam());
            const Group group(run, c);
            const int x = run.input(c.dtype, c.tokens, c.in, c.pad);
            const int u = run.output(c.dtype, c.tokens, c.tail, c.pad);
            run.run(
                [&](Stream& stream, const std::vector<Tensor>& t) {
                    const LoraMask mask = kept ? group.mask_by_formula(t) : group.mask(t);
                    EXPECT_EQ(
                        lora_down(stream, group.group(t), mask, t[Group::at(x)], t[Group::at(u)]),
                        kept);
                },
                {group.product_flops() + group.mask_flops(),
                 group.bytes(c.tokens + group.owned(), c.in) + group.mask_bytes(),
                 group.bytes(c.tokens, c.tail)});
            results.push_back(run.values(u));
        }
        EXPECT_EQ(results[0], results[1]);
    }
}

void check_down_backward(const DeviceProfile& profile, const LoraCase& c, bool with_kept) {
    SCOPED_TRACE(describe(c) + (with_kept ? ", masks kept" : ""));
    OpRun run(profile);
    const Group group(run, c);
    const int x = run.input(c.dtype, c.tokens, c.in, c.pad);
    const int dh = run.input(c.dtype, c.tokens, c.tail, c.pad);
    const double gradient_bytes = 4 * product(group.owned(), c.in);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            lora_down_backward(stream, group.group(t),
                               with_kept ? group.mask_by_formula(t) : group.mask(t),
                               t[Group::at(x)], t[Group::at(dh)]);
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
                sums.add(sum, size, c.tokens, DType::f32, between(c, with_kept, 1));
            }
        }
        expect_within(run.values(group.A_gradient(part)), sums.want, sums.bound, "A gradient");
        EXPECT_EQ(run.values(group.B_gradient(part)), run.before(group.B_gradient(part)));
    }
}

TEST_P(Lora, DownBackward) {
    for (const LoraCase& c : lora_cases()) {
        if (keeps(c)) check_down_backward(GetParam(), c, true);
        check_down_backward(GetParam(), c, false);
    }
}

void check_input_backward(const DeviceProfile& profile, const LoraCase& c, bool with_kept) {
    SCOPED_TRACE(describe(c) + (with_kept ? ", masks kept" : ""));
    OpRun run(profile);
    const Group group(run, c);
    const int dh = run.input(c.dtype, c.tokens, c.tail, c.pad);
    const int dx = run.in_place(c.dtype, c.tokens, c.in, c.pad);
    run.run(
        [&](Stream& stream, const std::vector<Tensor>& t) {
            lora_input_backward(stream, group.group(t),
                                with_kept ? group.mask_by_formula(t) : group.mask(t),
                                t[Group::at(dh)], t[Group::at(dx)]);
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
                const double term = group.kept(r / c.rank, t, i) * h[Group::at(t * c.tail + r)] *
                                    A[Group::at(r * c.in + i)];
                sum += term;
                size += std::abs(term);
            }
            // Without a mask it is a product that is added to dx, which cuBLASLt may round before.
            const double more = c.dropout == 0
                                    ? 1.01 * unit_of(c.dtype)
                                    : between(c, with_kept, static_cast<double>(group.parts() + 1));
            sums.add(sum, size, group.owned(), c.dtype, more);
        }
    }
    expect_within(run.values(dx), sums.want, sums.bound, "dx");
}

TEST_P(Lora, InputBackward) {
    for (const LoraCase& c : lora_cases()) {
        if (keeps(c)) check_input_backward(GetParam(), c, true);
        check_input_backward(GetParam(), c, false);
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
            LoraMask mask{true, 1, take(DType::i32, {1}), take(DType::i32, {tokens}),
                          take(DType::i64, {tokens})};
            if (lora_kept_bytes(group, kIn) > 0)
                mask.kept = take(DType::u8, {tokens, lora_kept_bytes(group, kIn)});
            const Tensor x = take(DType::bf16, {tokens, kIn});
            const Tensor h = take(DType::bf16, {tokens, kTail});
            const std::int64_t operands = arena.used();
            mask.kept_is_written = lora_down(stream, group, mask, x, h);
            EXPECT_EQ(mask.kept_is_written, rank == 16);
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
