#include "garam/data/loader.h"

#include <algorithm>
#include <limits>
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

// How often each value occurs; values are tokens of a sample or bin.
class Histogram {
  public:
    void add(std::int64_t value) {
        const auto at = static_cast<std::size_t>(value);
        if (at >= counts_.size()) counts_.resize(at + 1);
        ++counts_[at];
    }
    std::int64_t sum_of_largest(std::int64_t count) const {
        std::int64_t sum = 0;
        for (std::size_t at = counts_.size(); at-- > 0 && count > 0;) {
            const std::int64_t taken = std::min(count, counts_[at]);
            sum += taken * static_cast<std::int64_t>(at);
            count -= taken;
        }
        return sum;
    }

  private:
    std::vector<std::int64_t> counts_;
};

std::vector<std::uint32_t> in_order(std::int64_t count) {
    std::vector<std::uint32_t> order(static_cast<std::size_t>(count));
    std::iota(order.begin(), order.end(), std::uint32_t{0});
    return order;
}

void require_positive(std::int64_t value, const char* what) {
    if (value < 1)
        throw Error(std::string(what) + " must be at least 1, not " + std::to_string(value));
}

}  // namespace

Loader::Loader(SampleSelection samples, const LoaderOptions& options)
    : samples_(std::move(samples)), options_(options) {
    if (samples_.empty()) throw Error("there are no samples to load");
    require_positive(options.rows_per_micro_batch, "train.per_device_train_batch_size");
    require_positive(options.micro_batches_per_step, "train.gradient_accumulation_steps");
    GARAM_CHECK(options.rank >= 0 && options.rank < options.world_size, "a rank of the world");
    units_ = samples_.size();
    if (units_ >= std::int64_t{std::numeric_limits<std::uint32_t>::max()})
        throw Error("an epoch of " + std::to_string(units_) +
                    " samples; 4294967294 are the most: lower data.weights");
    if (options.packing) {
        require_positive(options.max_length, "train.max_length");
        std::vector<std::uint32_t> lengths(static_cast<std::size_t>(units_));
        for (std::int64_t i = 0; i < units_; ++i)
            lengths[static_cast<std::size_t>(i)] = static_cast<std::uint32_t>(samples_.tokens(i));
        layout_.emplace(std::move(lengths), options.max_length);
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
    return static_cast<double>(layout_->tokens()) /
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
void Loader::group_by_length(std::vector<std::uint32_t>& order) const {
    const auto count = static_cast<std::int64_t>(order.size());
    const std::int64_t step = options_.rows_per_micro_batch * options_.micro_batches_per_step;
    const std::int64_t run = step * std::clamp<std::int64_t>(count / (step * 4), 1, 50);
    std::vector<std::uint64_t> keys;  // ~length, then the place in the run
    std::vector<std::uint32_t> sorted;
    for (std::int64_t begin = 0; begin < count; begin += run) {
        const auto first = order.begin() + begin;
        const auto last = order.begin() + std::min(begin + run, count);
        keys.clear();
        for (auto at = first; at != last; ++at) {
            const auto length = static_cast<std::uint64_t>(samples_.tokens(*at));
            keys.push_back((~length << 32) | static_cast<std::uint64_t>(at - first));
        }
        std::sort(keys.begin(), keys.end());
        sorted.clear();
        for (const std::uint64_t key : keys)
            sorted.push_back(first[static_cast<std::ptrdiff_t>(key & 0xffffffff)]);
        std::copy(sorted.begin(), sorted.end(), first);
    }
}

Loader::Epoch Loader::arrange(std::int64_t number) const {
    Random random(options_.seed ^ kShuffleKey, static_cast<std::uint64_t>(number));
    Epoch epoch;
    epoch.order = in_order(samples_.size());
    if (options_.shuffle) shuffle(epoch.order, random);
    if (options_.group_by_length) group_by_length(epoch.order);
    if (!layout_) return epoch;
    epoch.bins = layout_->assign(epoch.order);
    epoch.order = in_order(units_);
    // Bins come longest samples first: shuffled again, or put back as near to the rows' order as
    // bins can be.
    if (options_.shuffle)
        shuffle(epoch.order, random);
    else
        std::sort(epoch.order.begin(), epoch.order.end(),
                  [&bins = epoch.bins](std::uint32_t a, std::uint32_t b) {
                      return bins[a].front() < bins[b].front();
                  });
    return epoch;
}

std::shared_ptr<const Loader::Epoch> Loader::epoch(std::int64_t number) const {
    const std::lock_guard<std::mutex> guard(lock_);
    const auto found =
        std::find_if(cached_.begin(), cached_.end(),
                     [number](const NumberedEpoch& one) { return one.first == number; });
    if (found != cached_.end()) {
        std::rotate(cached_.begin(), found, found + 1);
    } else {
        if (cached_.size() == 2) cached_.pop_back();
        cached_.insert(cached_.begin(), {number, std::make_shared<const Epoch>(arrange(number))});
    }
    return cached_.front().second;
}

std::vector<TokenBatch> Loader::step(std::int64_t step) const {
    const Position at = position(step);
    const std::shared_ptr<const Epoch> units = epoch(at.epoch);
    const std::int64_t first = at.step * options_.micro_batches_per_step;
    const std::int64_t count = std::min(options_.micro_batches_per_step, micro_batches_ - first);
    std::vector<TokenBatch> batches;
    for (std::int64_t m = options_.rank; m < count; m += options_.world_size) {
        TokenBatch& batch = batches.emplace_back();
        const std::int64_t begin = (first + m) * options_.rows_per_micro_batch;
        const std::int64_t end = begin + std::min(options_.rows_per_micro_batch, units_ - begin);
        for (std::int64_t i = begin; i < end; ++i) {
            const std::uint32_t unit = units->order[static_cast<std::size_t>(i)];
            if (!layout_) {
                samples_.append_to(batch, unit);
                continue;
            }
            for (const std::uint32_t sample : units->bins[unit])
                samples_.append_to(batch, sample);
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
        const auto add = [&](std::uint32_t sample) {
            const std::int64_t tokens = samples_.tokens(sample);
            shape.tokens += tokens;
            shape.longest = std::max(shape.longest, tokens);
        };
        for (std::int64_t i = begin; i < begin + shape.units; ++i) {
            const std::uint32_t unit = units->order[static_cast<std::size_t>(i)];
            if (!layout_) {
                add(unit);
                continue;
            }
            for (const std::uint32_t sample : units->bins[unit])
                add(sample);
        }
    }
    return shapes;
}

Loader::Largest Loader::find_largest() const {
    Largest largest;
    Histogram tokens;
    Histogram counts;
    Histogram targets;
    // The most targets among the samples of a length: what any place of that length may receive.
    std::vector<std::int64_t> most_targets;
    std::int64_t all_targets = 0;
    for (std::int64_t i = 0; i < samples_.size(); ++i) {
        const std::int64_t sample_targets = samples_.targets(i);
        const std::int64_t sample_tokens = samples_.tokens(i);
        largest.longest = std::max(largest.longest, sample_tokens);
        all_targets += sample_targets;
        if (layout_) {
            const auto length = static_cast<std::size_t>(sample_tokens);
            if (length >= most_targets.size()) most_targets.resize(length + 1);
            most_targets[length] = std::max(most_targets[length], sample_targets);
        } else {
            tokens.add(sample_tokens);
            counts.add(1);
            targets.add(sample_targets);
        }
    }
    if (layout_) {
        const Bins bins = layout_->assign(in_order(samples_.size()));
        for (std::int64_t b = 0; b < bins.size(); ++b) {
            std::int64_t bin_tokens = 0;
            std::int64_t bin_targets = 0;
            for (const std::uint32_t sample : bins[b]) {
                const std::int64_t length = samples_.tokens(sample);
                bin_tokens += length;
                bin_targets += most_targets[static_cast<std::size_t>(length)];
            }
            tokens.add(bin_tokens);
            counts.add(static_cast<std::int64_t>(bins[b].size()));
            targets.add(bin_targets);
        }
    }
    largest.tokens = tokens.sum_of_largest(options_.rows_per_micro_batch);
    largest.samples = counts.sum_of_largest(options_.rows_per_micro_batch);
    largest.targets = std::min(all_targets, targets.sum_of_largest(options_.rows_per_micro_batch));
    return largest;
}

std::vector<TokenBatch> evaluation_batches(const SampleSelection& samples,
                                           std::int64_t max_tokens) {
    GARAM_CHECK(max_tokens > 0 && max_tokens <= std::numeric_limits<std::int32_t>::max(),
                "tokens of an evaluation batch");
    std::vector<TokenBatch> batches;
    for (std::int64_t i = 0; i < samples.size(); ++i) {
        if (batches.empty() || batches.back().tokens() + samples.tokens(i) > max_tokens)
            batches.emplace_back();
        samples.append_to(batches.back(), i);
    }
    return batches;
}

}  // namespace garam
