#include "garam/data/sample_selection.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "garam/core/error.h"
#include "garam/core/philox.h"

namespace garam {
namespace {

// By whether their row is held out.
Chosen with_rows(const SourceSamples& source, const std::vector<std::int64_t>& rows, bool held_out) {
    Chosen chosen;
    for (std::int64_t i = 0; i < source.table.size(); ++i)
        if (std::binary_search(rows.begin(), rows.end(), source.table.row(i)) == held_out)
            chosen.push_back(i);
    return chosen;
}

// `weight` times, the samples of each pass in their order.
Chosen repeated(const Chosen& once, double weight, std::uint64_t seed, std::uint64_t source) {
    constexpr std::uint64_t kStream = 0x77656967;
    Chosen all;
    const double whole = std::floor(weight);
    for (std::int64_t pass = 0; pass < static_cast<std::int64_t>(whole); ++pass)
        all.insert(all.end(), once.begin(), once.end());
    const auto rest = static_cast<std::size_t>(
        std::llround((weight - whole) * static_cast<double>(once.size())));
    if (rest == 0) return all;
    Chosen part = once;
    Random random(seed, kStream + source);
    for (std::size_t i = 0; i < rest; ++i)
        std::swap(part[i], part[i + random.below(part.size() - i)]);
    std::sort(part.begin(), part.begin() + static_cast<std::ptrdiff_t>(rest));
    all.insert(all.end(), part.begin(), part.begin() + static_cast<std::ptrdiff_t>(rest));
    return all;
}

bool is_all(const SampleTable& table, const Chosen& chosen) {
    if (static_cast<std::int64_t>(chosen.size()) != table.size()) return false;
    for (std::size_t i = 0; i < chosen.size(); ++i)
        if (chosen[i] != static_cast<std::int64_t>(i)) return false;
    return true;
}

}  // namespace

std::vector<Chosen> training_samples(const std::vector<SourceSamples>& sources,
                                     const std::vector<double>& weights, double held_out_fraction,
                                     std::uint64_t seed) {
    std::vector<Chosen> all;
    for (std::size_t s = 0; s < sources.size(); ++s) {
        const std::vector<std::int64_t> out =
            held_out_rows(sources[s].report.rows, held_out_fraction, seed, s);
        const Chosen once = with_rows(sources[s], out, false);
        all.push_back(weights.empty() ? once : repeated(once, weights.at(s), seed, s));
    }
    return all;
}

std::vector<Chosen> held_out_samples(const std::vector<SourceSamples>& sources, double fraction,
                                     std::uint64_t seed) {
    std::vector<Chosen> all;
    for (std::size_t s = 0; s < sources.size(); ++s)
        all.push_back(with_rows(
            sources[s], held_out_rows(sources[s].report.rows, fraction, seed, s), true));
    return all;
}

SourceSamples joined(const std::vector<SourceSamples>& sources, const std::vector<Chosen>& chosen) {
    std::vector<ReadReport> reports;
    for (const SourceSamples& source : sources)
        reports.push_back(source.report);
    ReadReport report = join(reports);
    if (sources.size() == 1 && is_all(sources[0].table, chosen[0])) return sources[0];
    report.kept = report.truncated = report.tokens = report.target_tokens = report.longest = 0;
    SampleTableWriter writer;
    for (std::size_t s = 0; s < sources.size(); ++s) {
        for (const std::int64_t i : chosen[s]) {
            const SampleTable& table = sources[s].table;
            const Sample sample = table.sample(i);
            ++report.kept;
            report.truncated += table.full_tokens(i) > table.tokens(i);
            report.tokens += sample.tokens();
            report.target_tokens += sample.targets();
            report.longest = std::max(report.longest, sample.tokens());
            writer.append(sample, table.full_tokens(i));
        }
    }
    if (report.kept == 0)
        throw Error(report.file +
                    ": no sample is left of it: see data.validation_fraction and data.weights");
    SampleTable table = writer.finish(report);
    return {std::move(table), std::move(report), true};
}

SourceSamples joined(const std::vector<SourceSamples>& sources) {
    std::vector<Chosen> all;
    for (const SourceSamples& source : sources) {
        Chosen chosen(static_cast<std::size_t>(source.table.size()));
        std::iota(chosen.begin(), chosen.end(), 0);
        all.push_back(std::move(chosen));
    }
    return joined(sources, all);
}

}  // namespace garam
