#include "garam/data/loader.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

// Keeps the shuffles apart from everything else that is drawn with the run's seed.
constexpr std::uint64_t kShuffleKey = 0x73687566666c6500;  // "shuffle"

std::int64_t divide_up(std::int64_t count, std::int64_t by) {
    return count / by + (count % by != 0);
}

// Fisher and Yates' shuffle.
template <typename T>
void shuffle(std::vector<T>& items, Random& random) {
    for (std::size_t i = items.size(); i > 1; --i)
        std::swap(items[i - 1], items[static_cast<std::size_t>(random.below(i))]);
}

// Sum of the `count` largest values.
std::int64_t sum_of_largest(std::vector<std::int64_t> values, std::int64_t count) {
    const auto taken =
        static_cast<std::ptrdiff_t>(std::min(count, static_cast<std::int64_t>(values.size())));
    std::partial_sort(values.begin(), values.begin() + taken, values.end(), std::greater<>());
    return std::accumulate(values.begin(), values.begin() + taken, std::int64_t{0});
}

void require_positive(std::int64_t value, const char* what) {
    if (value < 1)
        throw Error(std::string(what) + " must be at least 1, not " + std::to_string(value));
}

}  // namespace

Loader::Loader(SampleTable samples, const LoaderOptions& options)
    : samples_(std::move(samples)), options_(options) {
    if (samples_.empty()) throw Error("there are no samples to load");
    require_positive(options.rows_per_micro_batch, "train.per_device_train_batch_size");
    require_positive(options.micro_batches_per_step, "train.gradient_accumulation_steps");
    units_ = samples_.size();
    if (options.packing) {
        require_positive(options.max_length, "train.max_length");
        std::vector<std::int64_t> lengths;
        lengths.reserve(static_cast<std::size_t>(samples_.size()));
        for (std::int64_t i = 0; i < samples_.size(); ++i)
            lengths.push_back(samples_.tokens(i));
        layout_.emplace(lengths, options.max_length);
        units_ = layout_->bins();
    }
    micro_batches_ = divide_up(units_, options.rows_per_micro_batch);
    steps_ = divide_up(micro_batches_, options.micro_batches_per_step);
    largest_ = find_largest();
    if (largest_.tokens > std::numeric_limits<std::int32_t>::max()) {
        throw Error("a micro-batch could hold " + std::to_string(largest_.tokens) +
                    " tokens: lower train.per_device_train_batch_size");
    }
}

double Loader::packing_efficiency() const {
    if (!layout_) return 1.0;
    std::int64_t tokens = 0;
    for (std::int64_t i = 0; i < samples_.size(); ++i)
        tokens += samples_.tokens(i);
    return static_cast<double>(tokens) /
           (static_cast<double>(units_) * static_cast<double>(options_.max_length));
}

Loader::Position Loader::position(std::int64_t step) const {
    GARAM_CHECK(step >= 0, "steps count from 0");
    return {step / steps_, step % steps_};
}

double Loader::epoch_at(std::int64_t step) const {
    const Position at = position(step);
    const std::int64_t done =
        std::min((at.step + 1) * options_.micro_batches_per_step, micro_batches_);
    return static_cast<double>(at.epoch) +
           static_cast<double>(done) / static_cast<double>(micro_batches_);
}

// As Transformers groups them: runs of up to 50 steps of the shuffled order, at least four of them, each
// sorted from long to short. Equal lengths stay in their order.
void Loader::group_by_length(std::vector<std::int64_t>& order) const {
    const auto count = static_cast<std::int64_t>(order.size());
    const std::int64_t step = options_.rows_per_micro_batch * options_.micro_batches_per_step;
    const std::int64_t run = step * std::clamp<std::int64_t>(count / (step * 4), 1, 50);
    const auto length = [this](std::int64_t sample) { return samples_.tokens(sample); };
    for (std::int64_t begin = 0; begin < count; begin += run)
        std::stable_sort(order.begin() + begin, order.begin() + std::min(begin + run, count),
                         [&](std::int64_t a, std::int64_t b) { return length(a) > length(b); });
}

Loader::Epoch Loader::arrange(std::int64_t number) const {
    Random random(options_.seed ^ kShuffleKey, static_cast<std::uint64_t>(number));
    std::vector<std::int64_t> order(static_cast<std::size_t>(samples_.size()));
    std::iota(order.begin(), order.end(), std::int64_t{0});
    if (options_.shuffle) shuffle(order, random);
    if (options_.group_by_length) group_by_length(order);
    if (!layout_) {
        Epoch units;
        units.reserve(order.size());
        for (const std::int64_t sample : order)
            units.push_back({sample});
        return units;
    }
    Epoch units = layout_->assign(order);
    // Bins come longest samples first: shuffled again, or put back as near to the rows' order as
    // bins can be.
    if (options_.shuffle)
        shuffle(units, random);
    else
        std::sort(units.begin(), units.end());
    return units;
}

std::shared_ptr<const Loader::Epoch> Loader::epoch(std::int64_t number) const {
    const std::lock_guard<std::mutex> guard(lock_);
    if (cached_number_ != number) {
        cached_ = std::make_shared<const Epoch>(arrange(number));
        cached_number_ = number;
    }
    return cached_;
}

std::vector<TokenBatch> Loader::step(std::int64_t step) const {
    const Position at = position(step);
    const std::shared_ptr<const Epoch> units = epoch(at.epoch);
    const std::int64_t first = at.step * options_.micro_batches_per_step;
    const std::int64_t last = std::min(first + options_.micro_batches_per_step, micro_batches_);
    std::vector<TokenBatch> batches;
    for (std::int64_t micro_batch = first; micro_batch < last; ++micro_batch) {
        TokenBatch& batch = batches.emplace_back();
        const std::int64_t begin = micro_batch * options_.rows_per_micro_batch;
        const std::int64_t end = begin + std::min(options_.rows_per_micro_batch, units_ - begin);
        for (std::int64_t unit = begin; unit < end; ++unit) {
            for (const std::int64_t index : (*units)[static_cast<std::size_t>(unit)]) {
                samples_.append_to(batch, index, samples_.row(index));
            }
        }
    }
    return batches;
}

std::vector<Loader::Shape> Loader::shapes(std::int64_t step) const {
    const Position at = position(step);
    const std::shared_ptr<const Epoch> units = epoch(at.epoch);
    const std::int64_t first = at.step * options_.micro_batches_per_step;
    const std::int64_t last = std::min(first + options_.micro_batches_per_step, micro_batches_);
    std::vector<Shape> shapes;
    for (std::int64_t micro_batch = first; micro_batch < last; ++micro_batch) {
        Shape& shape = shapes.emplace_back();
        const std::int64_t begin = micro_batch * options_.rows_per_micro_batch;
        shape.units = std::min(options_.rows_per_micro_batch, units_ - begin);
        for (std::int64_t unit = begin; unit < begin + shape.units; ++unit) {
            for (const std::int64_t index : (*units)[static_cast<std::size_t>(unit)]) {
                const std::int64_t tokens = samples_.tokens(index);
                shape.tokens += tokens;
                shape.longest = std::max(shape.longest, tokens);
            }
        }
    }
    return shapes;
}

Loader::Largest Loader::find_largest() const {
    Largest largest;
    std::vector<std::int64_t> tokens;
    std::vector<std::int64_t> counts;
    std::vector<std::int64_t> targets;
    // The most targets among the samples of a length: what any place of that length may receive.
    std::map<std::int64_t, std::int64_t> most_targets;
    std::int64_t all_targets = 0;
    for (std::int64_t i = 0; i < samples_.size(); ++i) {
        const std::int64_t sample_targets = samples_.targets(i);
        const std::int64_t sample_tokens = samples_.tokens(i);
        largest.longest = std::max(largest.longest, sample_tokens);
        std::int64_t& most = most_targets[sample_tokens];
        most = std::max(most, sample_targets);
        all_targets += sample_targets;
        if (layout_) continue;
        tokens.push_back(sample_tokens);
        counts.push_back(1);
        targets.push_back(sample_targets);
    }
    if (layout_) {
        std::vector<std::int64_t> order(static_cast<std::size_t>(samples_.size()));
        std::iota(order.begin(), order.end(), std::int64_t{0});
        for (const std::vector<std::int64_t>& bin : layout_->assign(order)) {
            tokens.push_back(0);
            targets.push_back(0);
            counts.push_back(static_cast<std::int64_t>(bin.size()));
            for (const std::int64_t index : bin) {
                const std::int64_t length = samples_.tokens(index);
                tokens.back() += length;
                targets.back() += most_targets[length];
            }
        }
    }
    largest.tokens = sum_of_largest(std::move(tokens), options_.rows_per_micro_batch);
    largest.samples = sum_of_largest(std::move(counts), options_.rows_per_micro_batch);
    largest.targets =
        std::min(all_targets, sum_of_largest(std::move(targets), options_.rows_per_micro_batch));
    return largest;
}

std::vector<TokenBatch> evaluation_batches(const SampleTable& samples, std::int64_t max_tokens) {
    GARAM_CHECK(max_tokens > 0 && max_tokens <= std::numeric_limits<std::int32_t>::max(),
                "tokens of an evaluation batch");
    std::vector<TokenBatch> batches;
    for (std::int64_t i = 0; i < samples.size(); ++i) {
        if (batches.empty() || batches.back().tokens() + samples.tokens(i) > max_tokens)
            batches.emplace_back();
        samples.append_to(batches.back(), i, samples.row(i));
    }
    return batches;
}

}  // namespace garam
