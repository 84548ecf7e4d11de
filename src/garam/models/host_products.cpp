#include "garam/models/host_products.h"

namespace garam {
namespace {

// What a product takes: a dry run of it.
std::int64_t scratch_of(const DeviceProfile& profile, const Tensor& a, const Tensor& b,
                        const Tensor& c, const MatmulOptions& options) {
    const auto dry = make_dry_device(profile);
    Arena arena(*dry, dry_address_space());
    Meter meter;
    Stream stream(*dry, arena, meter);
    const auto like = [&](const Tensor& tensor) {
        return arena.push(tensor.dtype(), tensor.shape(), Purpose::scratch);
    };
    const Tensor dry_a = like(a);
    const Tensor dry_b = like(b);
    const Tensor dry_c = like(c);
    const std::int64_t operands = arena.used();
    matmul(stream, dry_a, dry_b, dry_c, options);
    return arena.peak() - operands;
}

}  // namespace

HostProducts::HostProducts(const DeviceProfile& profile) : cpu_(make_cpu_device(profile)) {}

void HostProducts::matmul(const Tensor& a, const Tensor& b, const Tensor& c,
                          const MatmulOptions& options) {
    const std::int64_t scratch = scratch_of(cpu_->profile(), a, b, c, options);
    if (!arena_ || arena_->capacity() < scratch) {
        arena_.reset();
        arena_.emplace(*cpu_, scratch);
    }
    Stream stream(*cpu_, *arena_, meter_);
    garam::matmul(stream, a, b, c, options);
}

}  // namespace garam
