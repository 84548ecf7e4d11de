// Times of an optimiser's step over an adapter (rank 16 on the seven linears of the 2.4B shape) and over one
// ten times as large, under each of AdamW's names, beside the time that its bytes need.
//
//   optimizer_bench [device]      cuda unless named
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <string>
#include <vector>

#include "garam/ops/elementwise.h"
#include "garam/optim/optimizer.h"
#include "garam/runtime/transfer.h"

namespace garam::bench {
namespace {

constexpr double kBandwidth = 3.0e12;  // bytes a second
constexpr int kSteps = 20;

// Masters and gradients end to end, as an adapter's lie.
struct Adapter {
    std::vector<Parameter> parameters;
    Buffer masters, gradients;

    Adapter(Device& device, std::int64_t rank) {
        const std::vector<std::pair<std::int64_t, std::int64_t>> linears = {
            {2560, 2560}, {2560, 640},  {2560, 640}, {2560, 2560},
            {2560, 7168}, {2560, 7168}, {7168, 2560}};
        std::vector<Shape> shapes;
        for (int layer = 0; layer < 30; ++layer) {
            for (const auto& [in, out] : linears) {
                shapes.push_back({rank, in});
                shapes.push_back({out, rank});
            }
        }
        std::int64_t bytes = 0;
        for (const Shape& shape : shapes)
            bytes += align_up(shape.elements() * 4);
        masters = Buffer(device, bytes, Purpose::adapter);
        gradients = Buffer(device, bytes, Purpose::gradients);
        std::int64_t offset = 0;
        for (const Shape& shape : shapes) {
            Parameter& parameter = parameters.emplace_back();
            parameter.master = masters.tensor(DType::f32, shape, offset);
            parameter.gradient = gradients.tensor(DType::f32, shape, offset);
            offset += align_up(parameter.master.bytes());
        }
    }
};

void time_step(Device& device, const char* name, std::int64_t rank) {
    Adapter adapter(device, rank);
    std::vector<Parameter*> pointers;
    std::int64_t elements = 0;
    for (Parameter& parameter : adapter.parameters) {
        pointers.push_back(&parameter);
        elements += parameter.master.elements();
    }
    Arena arena(device, 1 << 20);
    Meter meter;
    Stream stream(device, arena, meter);
    const Tensor scale = arena.push(DType::f32, {1}, Purpose::scratch);
    fill(stream, 1, scale);
    fill(stream, 0.01f, adapter.masters.tensor(DType::f32, {adapter.masters.bytes() / 4}));
    fill(stream, 0.02f, adapter.gradients.tensor(DType::f32, {adapter.gradients.bytes() / 4}));
    Optimizer optimizer(device, optimizer_from_name(name), pointers);
    std::vector<double> seconds;
    std::int64_t step = 0;
    for (int repeat = 0; repeat < 6; ++repeat) {
        optimizer.states();  // waits for pages
        stream.synchronize();
        meter.clear();
        meter.enable(true);
        const auto begin = std::chrono::steady_clock::now();
        for (int i = 0; i < kSteps; ++i)
            optimizer.step(stream, 1e-4, scale, ++step);
        stream.synchronize();
        optimizer.states();
        if (repeat > 0)
            seconds.push_back(
                std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count() /
                kSteps);
    }
    std::sort(seconds.begin(), seconds.end());
    const Cost cost = meter.total().cost;
    const double bytes = (cost.bytes_read + cost.bytes_written) / kSteps;
    const double floor = bytes / kBandwidth;
    const double median = seconds[seconds.size() / 2];
    const MemoryUse& use = device.memory();
    std::printf("%-18s %9lld %9.1f %9.1f %6.2f %9.1f %9.1f\n", name,
                static_cast<long long>(elements), median * 1e6, floor * 1e6, median / floor,
                static_cast<double>(use.current_by[static_cast<std::size_t>(Purpose::optimizer)]) /
                    1048576.0,
                static_cast<double>(device.pinned().current) / 1048576.0);
    std::fflush(stdout);
}

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    const auto device = garam::make_device(garam::profile_of_device(argc > 1 ? argv[1] : "cuda"));
    std::printf("%s\n%-18s %9s %9s %9s %6s %9s %9s\n", device->profile().name.c_str(), "optimiser",
                "elements", "us", "floor us", "ratio", "card MiB", "host MiB");
    for (const std::int64_t rank : {16, 160})
        for (const char* name :
             {"adamw_torch", "adamw_8bit", "paged_adamw_32bit", "paged_adamw_8bit"})
            garam::bench::time_step(*device, name, rank);
    return 0;
}
