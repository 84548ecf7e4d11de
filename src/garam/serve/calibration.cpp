#include "garam/serve/calibration.h"

#include <algorithm>
#include <cmath>

#include "garam/core/error.h"

namespace garam {

void Calibration::add(double probability, bool right) {
    GARAM_CHECK(probability >= 0 && probability <= 1 + 1e-9, "no probability");
    const auto place = static_cast<std::int64_t>(std::ceil(probability * kBins)) - 1;
    Bin& bin = bins_[static_cast<std::size_t>(
        std::clamp<std::int64_t>(place, 0, static_cast<std::int64_t>(kBins) - 1))];
    ++bin.rows;
    bin.right += right;
    bin.probability += probability;
}

std::int64_t Calibration::total() const {
    std::int64_t rows = 0;
    for (const Bin& bin : bins_)
        rows += bin.rows;
    return rows;
}

double Calibration::expected_error() const {
    double sum = 0;
    for (const Bin& bin : bins_)
        sum += std::abs(static_cast<double>(bin.right) - bin.probability);
    const std::int64_t rows = total();
    return rows == 0 ? 0 : sum / static_cast<double>(rows);
}

}  // namespace garam
