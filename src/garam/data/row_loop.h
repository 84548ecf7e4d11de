// Works on the rows of a JSON Lines file in parallel and hands over the results in the file's
// order.
#pragma once

#include <cstdint>
#include <exception>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/data/json_lines.h"
#include "garam/data/row_encoder.h"
#include "garam/data/sample.h"

namespace garam {

// work(const Json& row, const std::string& where) -> Result runs on any thread; take(Result&&,
// std::int64_t line, std::int64_t row) runs on this one, in the order of the rows. A row whose work
// throws Error ends the loop with the first such error in the file's order, or is counted in
// report.skipped if `skip` is set; VocabularyError always ends it. Counts report.rows. Throws Error
// when the file holds no row or all were skipped.
template <typename Result, typename Work, typename Take>
void for_each_row(const std::filesystem::path& file, bool skip, ReadReport& report,
                  const Work& work, const Take& take) {
    // Enough rows to keep every core busy, few enough bytes that a file larger than memory streams.
    constexpr std::size_t kLines = 4096;
    constexpr std::size_t kBytes = std::size_t{16} << 20;
    constexpr std::int64_t kGrain = 16;
    struct Outcome {
        std::optional<Result> result;
        std::exception_ptr failure;
    };
    report.file = file.string();
    JsonLines reader(file);
    std::vector<JsonLines::Line> lines;
    while (reader.next(lines, kLines, kBytes)) {
        std::vector<Outcome> outcomes(lines.size());
        const auto count = static_cast<std::int64_t>(lines.size());
        parallel_for(count, kGrain, [&](std::int64_t begin, std::int64_t end) {
            for (auto i = static_cast<std::size_t>(begin); i < static_cast<std::size_t>(end); ++i) {
                const std::string where = report.file + ":" + std::to_string(lines[i].number);
                try {
                    outcomes[i].result = work(parse_row(lines[i].text, where), where);
                } catch (const Error&) {
                    outcomes[i].failure = std::current_exception();
                }
            }
        });
        for (std::size_t i = 0; i < lines.size(); ++i) {
            const std::int64_t row = report.rows++;
            if (!outcomes[i].failure) {
                take(std::move(*outcomes[i].result), lines[i].number, row);
                continue;
            }
            try {
                std::rethrow_exception(outcomes[i].failure);
            } catch (const VocabularyError&) {
                throw;
            } catch (const Error& error) {
                if (!skip) throw;
                if (report.skipped.count++ == 0) {
                    report.skipped.first_line = lines[i].number;
                    report.skipped.first_example = error.what();
                }
            }
        }
    }
    if (report.rows == 0) throw Error(report.file + ": holds no rows");
    if (report.skipped.count == report.rows) {
        throw Error(report.file + ": none of its " + std::to_string(report.rows) +
                    " rows can be read; the first: " + report.skipped.first_example);
    }
}

}  // namespace garam
