// How fast rows are read from a file or folder: batches alone, and every row of them.
//   rows_bench PATH [PASSES]    a line of JSON a pass: seconds and processor seconds of next() alone, of next() with
//                               row(i), and of row(i) spread over all processors; rows; bytes of text in them; peak of
//                               anonymous memory in MB
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "garam/core/error.h"
#include "garam/data/sources/row_source.h"
#include "own_process.h"

namespace garam::bench {
namespace {

// Bytes of all texts within a value: what every reader has to touch.
std::size_t text_bytes(const Json& value) {
    if (value.is_string()) return value.string().size();
    std::size_t bytes = 0;
    if (value.is_array())
        for (const Json& element : value.array())
            bytes += text_bytes(element);
    if (value.is_object())
        for (const Json::Member& member : value.object())
            bytes += text_bytes(member.second);
    return bytes;
}

struct Pass {
    double seconds = 0;
    double cpu = 0;
    std::int64_t rows = 0;
    std::size_t bytes = 0;
    double megabytes = 0;
};

template <typename Use>
Pass read(const std::string& path, const Use& use) {
    Pass pass;
    const auto begin = Clock::now();
    const double cpu = cpu_seconds();
    const auto source = open_rows(path);
    std::int64_t batches = 0;
    while (const auto batch = source->next()) {
        pass.rows += batch->size();
        pass.bytes += use(*batch);
        if (batches++ % 16 == 0) pass.megabytes = std::max(pass.megabytes, anonymous_megabytes());
    }
    pass.seconds = seconds_since(begin);
    pass.cpu = cpu_seconds() - cpu;
    return pass;
}

std::size_t read_rows(const RowBatch& batch, std::int64_t begin, std::int64_t end) {
    std::size_t bytes = 0;
    for (std::int64_t i = begin; i < end; ++i)
        bytes += text_bytes(batch.row(i));
    return bytes;
}

void run(const std::string& path, int passes) {
    // Loads the module of the table formats, and lets the heap grow.
    read(path, [](const RowBatch&) { return std::size_t{0}; });
    for (int i = 0; i < passes; ++i) {
        const Pass batches = read(path, [](const RowBatch&) { return std::size_t{0}; });
        const Pass rows =
            read(path, [](const RowBatch& batch) { return read_rows(batch, 0, batch.size()); });
        const Pass spread = read(path, [](const RowBatch& batch) {
            const auto count =
                static_cast<std::int64_t>(std::max(1U, std::thread::hardware_concurrency()));
            std::atomic<std::size_t> bytes = 0;
            std::vector<std::jthread> threads;
            for (std::int64_t t = 0; t < count; ++t)
                threads.emplace_back([&, t] {
                    bytes +=
                        read_rows(batch, batch.size() * t / count, batch.size() * (t + 1) / count);
                });
            threads.clear();
            return bytes.load();
        });
        std::printf("{");
        const std::pair<const char*, const Pass*> all[] = {
            {"batches", &batches}, {"rows", &rows}, {"spread", &spread}};
        for (const auto& [name, pass] : all)
            std::printf("\"%s\": [%.6f, %.6f], ", name, pass->seconds, pass->cpu);
        std::printf("\"count\": %lld, \"bytes\": %zu, \"peak\": %.1f}\n",
                    static_cast<long long>(rows.rows), rows.bytes,
                    std::max(batches.megabytes, rows.megabytes));
        std::fflush(stdout);
    }
}

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    if (argc < 2) {
        std::fprintf(stderr, "rows_bench PATH [PASSES]\n");
        return 2;
    }
    try {
        garam::bench::run(argv[1], argc > 2 ? std::atoi(argv[2]) : 1);
    } catch (const garam::Error& error) {
        std::fprintf(stderr, "%s\n", error.what());
        return 2;
    }
    return 0;
}
