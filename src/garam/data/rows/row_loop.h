// Works on the rows of a source in parallel and hands over the results in the source's order.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/data/data_sources.h"
#include "garam/data/rows/row_encoder.h"
#include "garam/data/rows/row_schema.h"
#include "garam/data/samples/sample.h"
#include "garam/data/sources/row_source.h"

namespace garam {

struct RowLoopOptions {
    bool skip = false;          // rows that cannot be read are counted, not fatal
    std::int64_t max_rows = 0;  // 0: all
    std::function<bool(std::int64_t row)> counts;     // rows that are worked on; empty: all
    std::function<void(std::int64_t rows)> progress;  // after each batch
};

// work(const Json& row, const RowColumns&, const std::string& where) -> Result runs on any thread;
// take(Result&&, const std::string& where, std::int64_t row) runs on this one, in the order of the rows. A row
// whose work throws Error ends the loop with the first such error in the source's order, or is counted in
// report.skipped with `skip`; VocabularyError always ends it. So does a file that is broken: what lies behind
// is lost, which no count would tell. Counts report.rows; sets report.file and report.shape. Throws Error when
// there is no row or all were skipped. Holds two batches at a time: the next one is read meanwhile.
template <typename Result, typename Work, typename Take>
void for_each_row(OpenSource& source, const RowLoopOptions& options, ReadReport& report,
                  const Work& work, const Take& take) {
    constexpr std::int64_t kGrain = 16;
    struct Outcome {
        std::optional<Result> result;
        std::exception_ptr failure;  // neither: a row that does not count
    };
    report.file = source.name();
    std::unique_ptr<RowBatch> batch = source.next(report.rows);
    if (batch == nullptr) throw Error(report.file + ": holds no rows");
    report.shape = source.recogniser().summary();
    const auto wanted = [&] { return options.max_rows == 0 || report.rows < options.max_rows; };
    while (batch != nullptr && wanted()) {
        std::int64_t count = batch->size();
        if (options.max_rows > 0) count = std::min(count, options.max_rows - report.rows);
        std::future<std::unique_ptr<RowBatch>> following = std::async(
            std::launch::async,
            [&source, behind = report.rows + batch->size()] { return source.next(behind); });
        std::vector<Outcome> outcomes(static_cast<std::size_t>(count));
        parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
            for (std::int64_t i = begin; i < end; ++i) {
                Outcome& outcome = outcomes[static_cast<std::size_t>(i)];
                if (options.counts && !options.counts(report.rows + i)) continue;
                try {
                    const Json row = batch->row(i);
                    const std::string where = batch->where(i);
                    outcome.result = work(row, *source.recogniser().columns_of(row, where), where);
                } catch (const Error&) {
                    outcome.failure = std::current_exception();
                }
            }
        });
        for (std::int64_t i = 0; i < count; ++i) {
            Outcome& outcome = outcomes[static_cast<std::size_t>(i)];
            const std::int64_t row = report.rows++;
            if (!outcome.failure) {
                if (outcome.result) take(std::move(*outcome.result), batch->where(i), row);
                continue;
            }
            try {
                std::rethrow_exception(outcome.failure);
            } catch (const VocabularyError&) {
                throw;
            } catch (const Error& error) {
                if (!options.skip) throw;
                if (report.skipped.count++ == 0) {
                    report.skipped.first_where = batch->where(i);
                    report.skipped.first_example = error.what();
                }
            }
        }
        if (options.progress) options.progress(report.rows);
        batch = wanted() ? following.get() : nullptr;
    }
    if (report.skipped.count == report.rows) {
        throw Error(report.file + ": none of its " + std::to_string(report.rows) +
                    " rows can be read; the first: " + report.skipped.first_example);
    }
}

}  // namespace garam
