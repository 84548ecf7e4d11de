// How fast samples are written to a table, found again and loaded, and what memory that takes.
//   loader_bench SAMPLES MEAN_TOKENS    made data, of lengths as chats have them (log-normal)
//   loader_bench TABLE MAX_LENGTH       a table of the cache: <digest>/samples
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "garam/core/philox.h"
#include "garam/data/loader.h"
#include "garam/data/prefetching_loader.h"
#include "garam/data/samples/content_digest.h"
#include "garam/data/samples/sample_table.h"
#include "own_process.h"

namespace garam::bench {
namespace {

void write_table(const std::filesystem::path& file, std::int64_t samples, double mean,
                 std::int64_t longest) {
    Random random(1);
    const auto begin = Clock::now();
    SampleTableWriter writer(file);
    Sample sample;
    ReadReport report;
    for (std::int64_t i = 0; i < samples; ++i) {
        const double drawn = mean * std::exp(0.7 * random.normal() - 0.245);
        const auto tokens = std::clamp<std::int64_t>(static_cast<std::int64_t>(drawn), 2, longest);
        sample.row = i;
        sample.ids.resize(static_cast<std::size_t>(tokens));
        sample.labels.resize(static_cast<std::size_t>(tokens));
        for (std::int64_t t = 0; t < tokens; ++t) {
            const auto at = static_cast<std::size_t>(t);
            sample.ids[at] = static_cast<std::int32_t>((i * 31 + t * 7) % 128000);
            sample.labels[at] = t * 2 < tokens ? kIgnore : sample.ids[at];
        }
        writer.append(sample, tokens);
        report.tokens += tokens;
    }
    report.rows = report.kept = samples;
    writer.finish(report);
    const double seconds = seconds_since(begin);
    const auto bytes = static_cast<double>(std::filesystem::file_size(file));
    std::printf("written and synced: %.0f MB in %.2f s; anonymous memory %.1f MB\n", bytes / 1e6,
                seconds, anonymous_megabytes());
}

void measure(const SampleTable& table, LoaderOptions options, const char* name) {
    auto begin = Clock::now();
    const Loader loader(table, options);
    const double made = seconds_since(begin);
    begin = Clock::now();
    loader.step(0);
    const double first = seconds_since(begin);
    const std::int64_t steps = std::min<std::int64_t>(loader.steps_per_epoch(), 20000);
    std::int64_t tokens = 0;
    begin = Clock::now();
    const double cpu = cpu_seconds();
    for (std::int64_t step = 0; step < steps; ++step)
        for (const TokenBatch& batch : loader.step(step))
            tokens += batch.tokens();
    const double seconds = seconds_since(begin);
    const double cpu_used = cpu_seconds() - cpu;
    PrefetchingLoader ahead(loader, 0, steps, 2);
    begin = Clock::now();
    while (!ahead.done())
        ahead.next();
    const double in_threads = seconds_since(begin);
    std::printf(
        "%-9s loader made in %.2f s, epoch arranged in %.2f s; %.1f M tokens/s on this thread "
        "(%.1f "
        "M of its own time), %.1f M with 2 workers; filled %.2f %%; anonymous memory %.1f MB\n",
        name, made, first, static_cast<double>(tokens) / seconds / 1e6,
        static_cast<double>(tokens) / cpu_used / 1e6,
        static_cast<double>(tokens) / in_threads / 1e6, loader.packing_efficiency() * 100,
        anonymous_megabytes());
}

void run(const char* samples_or_table, const char* length) {
    std::filesystem::path file = samples_or_table;
    std::int64_t max_length = std::atoll(length);
    const bool made = !std::filesystem::exists(file);
    if (made) {
        max_length = 1024;
        file = std::filesystem::temp_directory_path() / "loader_bench.samples";
        write_table(file, std::atoll(samples_or_table), std::atof(length), max_length);
    }
    auto begin = Clock::now();
    const double cpu = cpu_seconds();
    const std::string digest = content_digest(file);
    const auto bytes = static_cast<double>(std::filesystem::file_size(file));
    std::printf("digest %s: %.2f GB/s, %.2f GB/s of processors' time\n", digest.c_str(),
                bytes / seconds_since(begin) / 1e9, bytes / (cpu_seconds() - cpu) / 1e9);
    begin = Clock::now();
    {
        const SampleTable table(file);
        std::printf("opened: %lld samples in %.3f ms\n", static_cast<long long>(table.size()),
                    seconds_since(begin) * 1e3);
        LoaderOptions options;
        options.max_length = max_length;
        measure(table, options, "shuffled");
        options.group_by_length = true;
        measure(table, options, "grouped");
        options.group_by_length = false;
        options.packing = true;
        options.rows_per_micro_batch = 1;
        measure(table, options, "packed");
    }
    if (made) std::filesystem::remove(file);
}

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    if (argc < 3) {
        std::fprintf(stderr, "loader_bench SAMPLES MEAN_TOKENS | loader_bench TABLE MAX_LENGTH\n");
        return 2;
    }
    garam::bench::run(argv[1], argv[2]);
    return 0;
}
