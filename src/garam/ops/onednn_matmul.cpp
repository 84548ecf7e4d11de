#include "garam/ops/onednn_matmul.h"

#include <cstring>
#include <functional>
#include <list>
#include <mutex>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>

namespace garam {
namespace {

using dnnl::memory;

const dnnl::engine& cpu_engine() {
    static const dnnl::engine kEngine(dnnl::engine::kind::cpu, 0);
    return kEngine;
}

memory::data_type data_type(DType dtype) {
    return dtype == DType::bf16 ? memory::data_type::bf16 : memory::data_type::f32;
}

class Prepared final : public PreparedProduct {
  public:
    explicit Prepared(const OnednnProduct& p) {
        const memory::desc a({p.m, p.k}, data_type(p.in), {p.a_row, p.a_column});
        const memory::desc b({p.k, p.n}, data_type(p.in), {p.b_row, p.b_column});
        const memory::desc c({p.m, p.n}, data_type(p.out), {p.c_row, 1});
        dnnl::primitive_attr attributes;
        attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
        if (p.alpha != 1.0f) attributes.set_output_scales(0, {p.alpha});
        if (p.accumulate) {
            dnnl::post_ops sum;
            sum.append_sum(1.0f);
            attributes.set_post_ops(sum);
        }
        description_ =
            dnnl::matmul::primitive_desc(dnnl::matmul::desc(a, b, c), attributes, cpu_engine());
        product_ = dnnl::matmul(description_);
    }

    std::int64_t scratch_bytes() const override {
        return static_cast<std::int64_t>(description_.scratchpad_desc().get_size());
    }

    void execute(const void* a, const void* b, void* c, void* scratch) const override {
        dnnl::stream stream(cpu_engine());
        const auto view = [](const memory::desc& desc, const void* data) {
            return memory(desc, cpu_engine(), const_cast<void*>(data));
        };
        product_.execute(stream,
                         {{DNNL_ARG_SRC, view(description_.src_desc(), a)},
                          {DNNL_ARG_WEIGHTS, view(description_.weights_desc(), b)},
                          {DNNL_ARG_DST, view(description_.dst_desc(), c)},
                          {DNNL_ARG_SCRATCHPAD, view(description_.scratchpad_desc(), scratch)}});
        stream.wait();
    }

  private:
    dnnl::matmul::primitive_desc description_;
    dnnl::matmul product_;
};

struct Hash {
    std::size_t operator()(const OnednnProduct& p) const {
        std::size_t hash = 0;
        const auto mix = [&hash](std::int64_t value) {
            hash ^=
                std::hash<std::int64_t>{}(value) + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
        };
        for (const std::int64_t value :
             {p.m, p.n, p.k, p.a_row, p.a_column, p.b_row, p.b_column, p.c_row,
              static_cast<std::int64_t>(p.in), static_cast<std::int64_t>(p.out),
              static_cast<std::int64_t>(p.accumulate), static_cast<std::int64_t>(p.threads)})
            mix(value);
        mix(static_cast<std::int64_t>(std::hash<float>{}(p.alpha)));
        return hash;
    }
};

class Cache {
  public:
    std::shared_ptr<const PreparedProduct> get(const OnednnProduct& product) {
        const std::lock_guard<std::mutex> guard(lock_);
        if (const auto found = index_.find(product); found != index_.end()) {
            recent_.splice(recent_.begin(), recent_, found->second);
            return recent_.front().second;
        }
        recent_.emplace_front(product, std::make_shared<const Prepared>(product));
        index_.emplace(product, recent_.begin());
        if (recent_.size() > kCapacity) {
            index_.erase(recent_.back().first);
            recent_.pop_back();
        }
        return recent_.front().second;
    }

  private:
    // A ragged stream of batches brings a set of some twenty shapes for each number of tokens.
    static constexpr std::size_t kCapacity = 1024;
    using Entry = std::pair<OnednnProduct, std::shared_ptr<const PreparedProduct>>;
    std::mutex lock_;
    std::list<Entry> recent_;
    std::unordered_map<OnednnProduct, std::list<Entry>::iterator, Hash> index_;
};

}  // namespace

std::shared_ptr<const PreparedProduct> prepare(const OnednnProduct& product) {
    static Cache cache;
    return cache.get(product);
}

}  // namespace garam
