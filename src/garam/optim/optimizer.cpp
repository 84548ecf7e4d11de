#include "garam/optim/optimizer.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/ops/optimizer_step.h"
#include "garam/runtime/transfer.h"

namespace garam {
namespace {

void check_range(const char* key, double value, double low, double high, bool high_is_in) {
    if (value >= low && (value < high || (high_is_in && value == high))) return;
    throw Error(std::string("train.") + key + ": " + std::to_string(value) +
                " is out of range; give a number from " + std::to_string(low) +
                (high_is_in ? " to " : " to below ") + std::to_string(high));
}

void check_options(const OptimizerOptions& options) {
    check_range("adam_beta1", options.beta1, 0, 1, false);
    check_range("adam_beta2", options.beta2, 0, 1, false);
    check_range("adam_epsilon", options.epsilon, 0, 1, true);
    check_range("weight_decay", options.weight_decay, 0, 1e6, true);
    check_range("momentum", options.momentum, 0, 1, false);
    if (options.nesterov && (options.momentum == 0 || options.dampening != 0))
        throw Error("train.nesterov: needs a momentum above 0 and no dampening");
}

// What a chunk of paged states takes: copies long enough for the bus, and little beside a model.
constexpr std::int64_t kChunkElements = 512 * 1024;  // 4 MiB in fp32
constexpr std::int64_t kChunkBlocks = 8192;          // 4 MiB of 8 bits

constexpr std::int64_t kFloat = 4;

// Pieces of several arrays, one behind the other and aligned: of [begin, end) of `count` items of
// that many bytes.
struct Arrays {
    std::int64_t count;
    std::vector<std::int64_t> item_bytes;

    std::int64_t offset(std::size_t array) const {
        std::int64_t offset = 0;
        for (std::size_t i = 0; i < array; ++i)
            offset += align_up(count * item_bytes[i]);
        return offset;
    }
    std::int64_t bytes() const { return offset(item_bytes.size()); }
    StatePages::Chunk pieces(std::int64_t base, std::int64_t begin, std::int64_t end) const {
        StatePages::Chunk chunk;
        for (std::size_t i = 0; i < item_bytes.size(); ++i)
            chunk.push_back(
                {base + offset(i) + begin * item_bytes[i], (end - begin) * item_bytes[i]});
        return chunk;
    }
};

// What lets parameters be updated as one.
bool learn_alike(const Parameter& a, const Parameter& b) {
    return a.weight_decay == b.weight_decay && a.rate_factor == b.rate_factor;
}

}  // namespace

const std::vector<std::string>& optimizer_names() {
    static const std::vector<std::string> names = {
        "adamw_torch",      "adamw_torch_fused", "adamw_8bit",  "adamw_bnb_8bit",
        "paged_adamw_8bit", "paged_adamw_32bit", "paged_adamw", "sgd"};
    return names;
}

OptimizerOptions optimizer_from_name(std::string_view name) {
    std::string known;
    for (const std::string& one : optimizer_names()) {
        if (one == name) {
            OptimizerOptions options;
            if (one == "sgd") options.kind = OptimizerKind::sgd;
            options.eight_bit = one.ends_with("8bit");
            options.paged = one.starts_with("paged");
            return options;
        }
        known += (known.empty() ? "" : ", ") + one;
    }
    throw Error("train.optim: \"" + std::string(name) + "\" is not supported; choose one of " +
                known);
}

std::string_view update_name(std::string_view name) {
    const OptimizerOptions options = optimizer_from_name(name);
    if (options.eight_bit) return "adamw_8bit";
    return options.paged ? "adamw_torch" : name;
}

Optimizer::Optimizer(Device& device, const OptimizerOptions& options,
                     std::vector<Parameter*> parameters)
    : options_(options), parameters_(std::move(parameters)), states_(parameters_.size()) {
    check_options(options_);
    const bool adamw = options_.kind == OptimizerKind::adamw;
    GARAM_CHECK(adamw || (!options_.eight_bit && !options_.paged), "only AdamW's states");
    for (const Parameter* parameter : parameters_) {
        const Tensor& master = parameter->master;
        GARAM_CHECK(master.dtype() == DType::f32 && master.is_dense(), parameter->name);
        GARAM_CHECK(parameter->gradient.dtype() == DType::f32 && parameter->gradient.is_dense() &&
                        parameter->gradient.shape() == master.shape(),
                    parameter->name);
    }
    gather_vectors();
    gather_lists();
    allocate_states(device);
}

bool Optimizer::has_8bit_states(const Parameter& parameter) const {
    return options_.eight_bit && parameter.master.elements() >= kFewest8bitElements;
}

void Optimizer::gather_vectors() {
    // Device memory is handed out in multiples of kAlignment: the pad behind a tensor is memory of
    // its own buffer.
    const auto follows = [](const Tensor& earlier, const Tensor& later) {
        return static_cast<char*>(earlier.raw()) + align_up(earlier.bytes()) == later.raw();
    };
    // From the start of one tensor to the end of another.
    const auto joined = [](const Tensor& first, const Tensor& last) {
        const std::int64_t before =
            static_cast<char*>(last.raw()) - static_cast<char*>(first.raw());
        return Tensor(first.raw(), DType::f32, {(before + last.bytes()) / kFloat}, first.device());
    };
    for (std::size_t begin = 0, end = 0; begin < parameters_.size(); begin = end) {
        const Parameter& first = *parameters_[begin];
        end = begin + 1;
        if (has_8bit_states(first)) continue;
        for (; end < parameters_.size(); ++end) {
            const Parameter& before = *parameters_[end - 1];
            const Parameter& next = *parameters_[end];
            if (has_8bit_states(next) || !learn_alike(first, next) ||
                !follows(before.master, next.master) || !follows(before.gradient, next.gradient))
                break;
        }
        const Parameter& last = *parameters_[end - 1];
        Run run;
        for (std::size_t i = begin; i < end; ++i)
            run.parameters.push_back(i);
        run.master = joined(first.master, last.master);
        run.gradient = joined(first.gradient, last.gradient);
        run.elements = run.master.elements();
        runs_.push_back(std::move(run));
    }
}

void Optimizer::gather_lists() {
    const std::size_t vectors = runs_.size();
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
        const Parameter& parameter = *parameters_[i];
        if (!has_8bit_states(parameter)) continue;
        auto run = runs_.begin() + static_cast<std::ptrdiff_t>(vectors);
        while (run != runs_.end() && !learn_alike(*parameters_[run->parameters[0]], parameter))
            ++run;
        if (run == runs_.end()) {
            runs_.emplace_back().eight_bit = true;
            run = runs_.end() - 1;
        }
        const std::int64_t n = parameter.master.elements();
        run->parameters.push_back(i);
        run->items.push_back(
            {parameter.master.reshape({n}), parameter.gradient.reshape({n}), run->blocks});
        run->blocks += adamw_8bit_blocks(n);
        run->elements += n;
    }
}

void Optimizer::allocate_states(Device& device) {
    const bool adamw = options_.kind == OptimizerKind::adamw;
    const auto arrays_of = [&](const Run& run) -> Arrays {
        if (run.eight_bit) return {run.blocks, {kAdamW8bitBlock, kAdamW8bitBlock, kFloat, kFloat}};
        if (adamw) return {run.elements, {kFloat, kFloat}};
        if (options_.momentum != 0) return {run.elements, {kFloat}};
        return {run.elements, {}};
    };
    // The processor's memory is where pages would go.
    const bool pages = options_.paged && device.profile().is_cuda();
    std::int64_t on_device = 0;
    std::int64_t on_host = 0;
    std::vector<std::int64_t> offsets;
    std::vector<StatePages::Chunk> chunks;
    for (Run& run : runs_) {
        const Arrays arrays = arrays_of(run);
        run.paged = pages && run.elements >= kFewestPagedElements;
        std::int64_t& used = run.paged ? on_host : on_device;
        offsets.push_back(used);
        used += arrays.bytes();
        if (!run.paged) continue;
        run.first_chunk = static_cast<std::int64_t>(chunks.size());
        const std::int64_t each = run.eight_bit ? kChunkBlocks : kChunkElements;
        for (std::int64_t begin = 0; begin < arrays.count; begin += each)
            chunks.push_back(
                arrays.pieces(offsets.back(), begin, std::min(begin + each, arrays.count)));
    }
    state_buffer_ = Buffer(device, on_device, Purpose::optimizer);
    if (on_host > 0) pages_ = std::make_unique<StatePages>(device, on_host, std::move(chunks));
    if (on_device > 0) {
        SetupStream setup(device);
        clear(setup.stream, state_buffer_.tensor(DType::u8, {on_device}));
        setup.stream.synchronize();
    }
    for (std::size_t i = 0; i < runs_.size(); ++i) {
        Run& run = runs_[i];
        const Arrays arrays = arrays_of(run);
        const auto array = [&](std::size_t number) {
            const std::int64_t offset = offsets[i] + arrays.offset(number);
            const std::int64_t bytes = arrays.count * arrays.item_bytes[number];
            const bool is_codes = arrays.item_bytes[number] == kAdamW8bitBlock;
            const DType dtype = is_codes ? DType::u8 : DType::f32;
            const Shape shape{is_codes ? bytes : bytes / kFloat};
            return run.paged ? pages_->host(dtype, shape, offset)
                             : state_buffer_.tensor(dtype, shape, offset);
        };
        for (std::size_t number = 0; number < arrays.item_bytes.size(); ++number)
            run.states.push_back(array(number));
        name_states(run);
    }
}

void Optimizer::name_states(const Run& run) {
    for (std::size_t k = 0; k < run.parameters.size(); ++k) {
        const std::size_t i = run.parameters[k];
        const Parameter& parameter = *parameters_[i];
        const Shape& shape = parameter.master.shape();
        const std::int64_t n = parameter.master.elements();
        const auto add = [&](const char* suffix, const Tensor& all, std::int64_t begin,
                             std::int64_t count, const Shape& as) {
            states_[i].emplace_back(parameter.name + suffix,
                                    all.slice_elements(begin, begin + count).reshape(as));
        };
        if (run.eight_bit) {
            const std::int64_t block = run.items[k].first_block;
            const std::int64_t blocks = adamw_8bit_blocks(n);
            add(".exp_avg.codes", run.states[0], block * kAdamW8bitBlock, n, shape);
            add(".exp_avg.absmax", run.states[2], block, blocks, {blocks});
            add(".exp_avg_sq.codes", run.states[1], block * kAdamW8bitBlock, n, shape);
            add(".exp_avg_sq.absmax", run.states[3], block, blocks, {blocks});
            continue;
        }
        const std::int64_t begin =
            (static_cast<char*>(parameter.master.raw()) - static_cast<char*>(run.master.raw())) /
            kFloat;
        if (options_.kind == OptimizerKind::adamw) {
            add(".exp_avg", run.states[0], begin, n, shape);
            add(".exp_avg_sq", run.states[1], begin, n, shape);
        } else if (!run.states.empty()) {
            add(".momentum_buffer", run.states[0], begin, n, shape);
        }
    }
}

void Optimizer::step(Stream& stream, double learning_rate, const Tensor& gradient_scale,
                     std::int64_t step) {
    GARAM_CHECK(step >= 1, "updates are counted from 1");
    if (pages_) pages_->begin(stream);
    for (const Run& run : runs_) {
        if (!run.paged) {
            const std::int64_t count = run.eight_bit ? run.blocks : run.elements;
            update(stream, run, run.states, 0, count, learning_rate, gradient_scale, step);
            continue;
        }
        const std::int64_t count = run.eight_bit ? run.blocks : run.elements;
        const std::int64_t each = run.eight_bit ? kChunkBlocks : kChunkElements;
        std::int64_t chunk = run.first_chunk;
        for (std::int64_t begin = 0; begin < count; begin += each, ++chunk) {
            const std::int64_t end = std::min(begin + each, count);
            const std::vector<void*> places = pages_->await(stream, chunk);
            std::vector<Tensor> states;
            for (std::size_t i = 0; i < places.size(); ++i) {
                const DType dtype = run.states[i].dtype();
                const std::int64_t of_one = dtype == DType::u8 ? kAdamW8bitBlock : 1;
                states.emplace_back(places[i], dtype, Shape{(end - begin) * of_one},
                                    stream.device().kind());
            }
            update(stream, run, states, begin, end, learning_rate, gradient_scale, step);
            pages_->done(stream, chunk);
        }
    }
    refresh_copies(stream);
}

void Optimizer::update(Stream& stream, const Run& run, const std::vector<Tensor>& states,
                       std::int64_t begin, std::int64_t end, double learning_rate,
                       const Tensor& gradient_scale, std::int64_t step) const {
    const Parameter& any = *parameters_[run.parameters[0]];
    const double rate = learning_rate * any.rate_factor;
    const double decay = any.weight_decay ? options_.weight_decay : 0.0;
    if (options_.kind == OptimizerKind::sgd) {
        const SgdOptions sgd{.learning_rate = rate,
                             .momentum = options_.momentum,
                             .dampening = options_.dampening,
                             .nesterov = options_.nesterov,
                             .weight_decay = decay,
                             .step = step};
        sgd_step(stream, sgd, run.master, run.gradient, gradient_scale,
                 states.empty() ? Tensor() : states[0]);
        return;
    }
    const AdamWOptions adamw{.learning_rate = rate,
                             .beta1 = options_.beta1,
                             .beta2 = options_.beta2,
                             .epsilon = options_.epsilon,
                             .weight_decay = decay,
                             .step = step};
    if (run.eight_bit)
        adamw_8bit_step(stream, adamw, run.items, {states[0], states[1], states[2], states[3]},
                        begin, gradient_scale);
    else
        adamw_step(stream, adamw, run.master.slice_elements(begin, end),
                   run.gradient.slice_elements(begin, end), gradient_scale, states[0], states[1]);
}

void Optimizer::refresh_copies(Stream& stream) {
    garam::refresh_copies(stream, parameters_);
}

std::vector<std::pair<std::string, Tensor>> Optimizer::states() const {
    if (pages_) pages_->settle();
    std::vector<std::pair<std::string, Tensor>> named;
    for (const auto& states : states_)
        named.insert(named.end(), states.begin(), states.end());
    return named;
}

}  // namespace garam
