#include "garam/ops/product_tuning.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/philox.h"
#include "garam/kernels/cuda/matmul.h"

namespace garam {
namespace {

// Beyond every second-level cache: so many bytes are touched before an operand comes again.
constexpr std::int64_t kColdBytes = std::int64_t{256} << 20;
// Seconds that a recorded sequence of calls takes about.
constexpr double kSequenceSeconds = 1.5e-3;
constexpr std::int64_t kMostCalls = 128;

std::int64_t size_in(const ProductShape& shape) {
    return shape.inputs_are_bf16 ? 2 : 4;
}
std::int64_t size_out(const ProductShape& shape) {
    return shape.c_is_bf16 ? 2 : 4;
}

// Bytes from the first to the last element of rows, with room to shift the first to its alignment.
std::int64_t extent(std::int64_t rows, std::int64_t columns, std::int64_t pitch,
                    std::int64_t size) {
    return align_up(((rows - 1) * pitch + columns) * size + kAlignment);
}
std::int64_t extent_a(const ProductShape& x) {
    return x.transpose_a ? extent(x.k, x.m, x.a_pitch, size_in(x))
                         : extent(x.m, x.k, x.a_pitch, size_in(x));
}
std::int64_t extent_b(const ProductShape& x) {
    return x.transpose_b ? extent(x.n, x.k, x.b_pitch, size_in(x))
                         : extent(x.k, x.n, x.b_pitch, size_in(x));
}
std::int64_t extent_c(const ProductShape& x) {
    return extent(x.m, x.n, x.c_pitch, size_out(x));
}
std::int64_t extent_addend(const ProductShape& x) {
    return x.addend == ProductAddend::separate ? extent(x.m, x.n, x.addend_pitch, size_out(x)) : 0;
}
// Of one call, without c.
std::int64_t input_bytes(const ProductShape& x) {
    const std::int64_t bias = x.bias ? align_up(x.n * 4) : 0;
    return extent_a(x) + extent_b(x) + extent_addend(x) + bias;
}

// About what a call takes, by rough rates of a large card.
double guessed_seconds(const ProductShape& x) {
    const double flops =
        2.0 * static_cast<double>(x.m) * static_cast<double>(x.n) * static_cast<double>(x.k);
    const auto bytes = static_cast<double>(input_bytes(x) + extent_c(x));
    const double rate = x.inputs_are_bf16 ? 5e14 : x.tf32 ? 2e14 : 4e13;
    return std::max(flops / rate, bytes / 2e12) + 2e-6;
}

// How calls of one shape are timed.
struct Sequence {
    std::int64_t sets;   // of operands, taken in turn
    std::int64_t calls;  // a multiple of the sets
};
Sequence sequence_of(const ProductShape& x) {
    const std::int64_t bytes = input_bytes(x) + extent_c(x);
    const auto enough = static_cast<std::int64_t>(kSequenceSeconds / guessed_seconds(x));
    const std::int64_t sets = std::clamp<std::int64_t>(kColdBytes / bytes + 1, 2, 64);
    const std::int64_t calls = std::clamp<std::int64_t>(enough, sets, kMostCalls);
    return {sets, (calls + sets - 1) / sets * sets};
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

// One way to multiply a shape.
struct Way {
    std::optional<ProductAlgorithm> algorithm;
    // With two products: the tail's; and whether there are two.
    bool two_products = false;
    std::optional<ProductAlgorithm> tail_algorithm;

    std::unique_ptr<RecordedWork> work;
    std::vector<double> seconds;  // of a call, one a round
    double median_us() const { return median(seconds) * 1e6; }
};

class Tuner {
  public:
    Tuner(Device& device, const TuningOptions& options, const std::vector<ProductShape>& shapes)
        : device_(device), options_(options), queue_(device.open_queue()) {
        std::int64_t inputs = 0;
        std::int64_t outputs = 0;
        for (const ProductShape& shape : shapes) {
            const std::int64_t sets = sequence_of(shape).sets;
            inputs = std::max(inputs, sets * input_bytes(shape));
            outputs = std::max(outputs, sets * extent_c(shape));
        }
        workspace_ = Buffer(device, cuda::kMatmulWorkspace, Purpose::scratch);
        inputs_ = Buffer(device, inputs, Purpose::scratch);
        outputs_ = Buffer(device, outputs, Purpose::scratch);
        fill_inputs();
    }
    ~Tuner() { device_.close_queue(queue_); }
    Tuner(const Tuner&) = delete;
    Tuner& operator=(const Tuner&) = delete;

    // The best algorithm for one product.
    TunedProduct tune(const ProductShape& shape) {
        std::vector<Way> ways(1);
        for (const ProductAlgorithm& algorithm : cuda::matmul_kernels().candidates(
                 device_.profile().ordinal, shape, options_.candidates)) {
            ways.emplace_back();
            ways.back().algorithm = algorithm;
        }
        return best_of(shape, std::move(ways));
    }

    // The same against two products, whose best algorithms are known.
    TunedProduct tune_tail(const ProductShape& shape, const TunedProduct& whole,
                           const TunedProduct& main, const TunedProduct& tail) {
        std::vector<Way> ways(2);
        ways[0].algorithm = whole.algorithm;
        ways[1].algorithm = main.algorithm;
        ways[1].two_products = true;
        ways[1].tail_algorithm = tail.algorithm;
        TunedProduct result = best_of(shape, std::move(ways));
        if (!result.two_products) return whole;
        // Against the heuristic's single product, not the best one.
        result.heuristic_us = whole.heuristic_us;
        return result;
    }

  private:
    // Values as of activations: about normal, no two alike. Read as f32, pairs of them are such too.
    void fill_inputs() {
        constexpr std::int64_t kBlock = std::int64_t{8} << 20;  // bytes
        std::vector<bfloat16> values(kBlock / 2);
        Random random(11);
        for (bfloat16& value : values) {
            double sum = 0;
            for (int i = 0; i < 4; ++i)
                sum += random.uniform(-0.5, 0.5);
            value = bfloat16(static_cast<float>(sum));
        }
        auto* const to = static_cast<char*>(inputs_.raw());
        for (std::int64_t at = 0; at < inputs_.bytes(); at += kBlock)
            device_.copy_in(queue_, to + at, values.data(), std::min(kBlock, inputs_.bytes() - at));
        device_.clear(queue_, outputs_.raw(), outputs_.bytes());
        device_.synchronize(queue_);
    }

    cuda::MatmulArguments arguments(const ProductShape& shape, std::int64_t set) {
        // The first address of that alignment exactly, in a piece that begins at a larger one.
        const auto place = [](char* piece, std::int64_t alignment) {
            return piece + (alignment < kAlignment ? alignment : 0);
        };
        char* in = static_cast<char*>(inputs_.raw()) + set * input_bytes(shape);
        char* const out = static_cast<char*>(outputs_.raw()) + set * extent_c(shape);
        cuda::MatmulArguments x;
        x.m = shape.m;
        x.n = shape.n;
        x.k = shape.k;
        x.a = {place(in, shape.a_alignment), shape.a_pitch};
        in += extent_a(shape);
        x.b = {place(in, shape.b_alignment), shape.b_pitch};
        in += extent_b(shape);
        x.c = {place(out, shape.c_alignment), shape.c_pitch};
        if (shape.addend == ProductAddend::in_place) x.addend = x.c;
        if (shape.addend == ProductAddend::separate) {
            x.addend = {place(in, shape.addend_alignment), shape.addend_pitch};
            in += extent_addend(shape);
        }
        if (shape.bias) x.bias = in;
        x.transpose_a = shape.transpose_a;
        x.transpose_b = shape.transpose_b;
        x.inputs_are_bf16 = shape.inputs_are_bf16;
        x.c_is_bf16 = shape.c_is_bf16;
        x.tf32 = shape.tf32;
        x.ordinal = device_.profile().ordinal;
        x.workspace = workspace_.raw();
        return x;
    }

    void enqueue(const ProductShape& shape, const Way& way, std::int64_t set) {
        const auto multiply = [&](const cuda::MatmulArguments& product,
                                  const std::optional<ProductAlgorithm>& algorithm) {
            cuda::MatmulArguments x = product;
            if (algorithm) x.algorithm = &*algorithm;
            cuda::matmul_kernels().multiply(queue_, x);
        };
        const cuda::MatmulArguments x = arguments(shape, set);
        if (!way.two_products) return multiply(x, way.algorithm);
        const auto [main, tail] = cuda::split_at_tail(x, shape.tail);
        multiply(main, way.algorithm);
        multiply(tail, way.tail_algorithm);
    }

    // Of the first way and the others the first that is clearly faster than all, timed in turns.
    TunedProduct best_of(const ProductShape& shape, std::vector<Way> ways) {
        prepare(shape, ways);
        time(shape, ways, options_.rounds);
        TunedProduct result;
        result.heuristic_us = result.tuned_us = ways[0].median_us();
        std::stable_sort(ways.begin() + 1, ways.end(),
                         [](const Way& a, const Way& b) { return a.median_us() < b.median_us(); });
        for (std::size_t i = 1; i < ways.size(); ++i) {
            if (ways[i].median_us() >= (1 - options_.margin) * ways[0].median_us()) break;
            // The least of many medians is partly luck: once more, the two alone.
            std::vector<Way> two;
            two.push_back(std::move(ways[0]));
            two.push_back(std::move(ways[i]));
            time(shape, two, options_.rounds);
            result.heuristic_us = result.tuned_us = two[0].median_us();
            if (two[1].median_us() < (1 - options_.margin) * two[0].median_us() &&
                gives_the_same_bits(shape, two[1])) {
                result.algorithm = two[1].algorithm;
                result.two_products = two[1].two_products;
                result.tuned_us = two[1].median_us();
                return result;
            }
            ways[0] = std::move(two[0]);
        }
        return result;
    }

    // Records the calls of each way; leaves out ways that the library refuses after all.
    void prepare(const ProductShape& shape, std::vector<Way>& ways) {
        const Sequence sequence = sequence_of(shape);
        // What the last shape left may be no numbers when read as another type.
        device_.clear(queue_, outputs_.raw(), outputs_.bytes());
        std::vector<Way> usable;
        for (Way& way : ways) {
            try {
                enqueue(shape, way, 0);
            } catch (const Bug&) {
                if (usable.empty()) throw;  // the heuristic's own choice must do
                continue;
            }
            device_.begin_recording(queue_);
            for (std::int64_t call = 0; call < sequence.calls; ++call)
                enqueue(shape, way, call % sequence.sets);
            way.work = device_.end_recording(queue_);
            way.work->enqueue(queue_);
            device_.synchronize(queue_);
            usable.push_back(std::move(way));
        }
        ways = std::move(usable);
    }

    void time(const ProductShape& shape, std::vector<Way>& ways, int rounds) {
        constexpr double kHopeless = 1.25;  // times the first way's, after two rounds
        const auto calls = static_cast<double>(sequence_of(shape).calls);
        const auto begin = device_.make_event();
        const auto end = device_.make_event();
        for (Way& way : ways)
            way.seconds.clear();
        for (int round = 0; round < rounds; ++round) {
            for (Way& way : ways) {
                if (round >= 2 && &way != &ways[0] &&
                    *std::min_element(way.seconds.begin(), way.seconds.end()) >
                        kHopeless *
                            *std::min_element(ways[0].seconds.begin(), ways[0].seconds.end()))
                    continue;
                // Something to do while the calls are handed over, which is not to be timed.
                for (int i = 0; i < 4; ++i)
                    device_.clear(queue_, workspace_.raw(), workspace_.bytes());
                begin->record(queue_);
                way.work->enqueue(queue_);
                end->record(queue_);
                way.seconds.push_back(end->seconds_since(*begin) / calls);
            }
        }
    }

    // c of two calls, compared by the bytes at its beginning.
    bool gives_the_same_bits(const ProductShape& shape, const Way& way) {
        constexpr std::int64_t kCompared = std::int64_t{8} << 20;
        const std::int64_t bytes = std::min(kCompared, extent_c(shape));
        std::vector<char> results[2];
        for (std::vector<char>& result : results) {
            device_.clear(queue_, outputs_.raw(), extent_c(shape));
            enqueue(shape, way, 0);
            result.resize(static_cast<std::size_t>(bytes));
            device_.copy_out(queue_, result.data(), outputs_.raw(), bytes);
            device_.synchronize(queue_);
        }
        return results[0] == results[1];
    }

    Device& device_;
    TuningOptions options_;
    QueueHandle queue_;
    Buffer workspace_, inputs_, outputs_;
};

}  // namespace

ProductTable tune_products(Device& device, const ProductCounts& counts,
                           const TuningOptions& options,
                           const std::function<void(const TuningProgress&)>& progress) {
    GARAM_CHECK(device.kind() == DeviceKind::cuda, "products are tuned on a card");
    std::vector<ProductShape> shapes;
    for (const auto& [shape, calls] : counts)
        if (shape.m > cuda::kMostGemvRows) shapes.push_back(shape);
    const auto work = [&](const ProductShape& shape) {
        return guessed_seconds(shape) * std::max(counts.at(shape), 0.01);
    };
    std::stable_sort(
        shapes.begin(), shapes.end(),
        [&](const ProductShape& a, const ProductShape& b) { return work(a) > work(b); });
    if (static_cast<std::int64_t>(shapes.size()) > options.most)
        shapes.resize(static_cast<std::size_t>(options.most));

    std::vector<ProductShape> all = shapes;
    for (const ProductShape& shape : shapes)
        if (shape.tail > 0) all.insert(all.end(), {without_tail(shape), only_tail(shape)});
    Tuner tuner(device, options, all);
    ProductTable table;
    table.home = product_home(device.profile());
    std::map<ProductShape, TunedProduct> known;  // parts of products too
    const auto tuned = [&](const ProductShape& shape) -> const TunedProduct& {
        const auto found = known.find(shape);
        return found != known.end() ? found->second : known[shape] = tuner.tune(shape);
    };
    std::int64_t done = 0;
    for (const ProductShape& shape : shapes) {
        TunedProduct result = tuned(shape);
        if (shape.tail > 0) {
            const ProductShape main = without_tail(shape);
            const ProductShape tail = only_tail(shape);
            result = tuner.tune_tail(shape, result, tuned(main), tuned(tail));
            if (result.two_products) {
                result.algorithm.reset();
                table.products.emplace(main, tuned(main));
                table.products.emplace(tail, tuned(tail));
            }
        }
        result.calls = counts.at(shape);
        table.products[shape] = result;
        if (progress) progress({++done, static_cast<std::int64_t>(shapes.size()), &shape, &result});
    }
    return table;
}

ProductHome product_home(const DeviceProfile& card) {
    return {card.name, card.compute_capability, cuda::matmul_kernels().library_version()};
}

std::string misfit_of(const ProductTable& table, const DeviceProfile& card) {
    const ProductHome here = product_home(card);
    if (!(table.home == here))
        return "made for " + table.home.to_string() + ", here is " + here.to_string();
    for (const auto& [shape, tuned] : table.products)
        if (tuned.algorithm &&
            !cuda::matmul_kernels().accepts(card.ordinal, shape, *tuned.algorithm))
            return "its algorithm for " + shape.to_string() + " is none that this card has";
    return "";
}

SharedProductTable load_products(const std::filesystem::path& path, const DeviceProfile& card) {
    auto table = std::make_shared<const ProductTable>(ProductTable::read(path));
    const std::string misfit = misfit_of(*table, card);
    if (!misfit.empty())
        throw Error(path.string() + ": " + misfit + "; run garam tune again on this card");
    return table;
}

}  // namespace garam
