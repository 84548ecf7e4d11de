// Whether a classifier is right as often as it says: the expected calibration error of Guo et al., "On
// Calibration of Modern Neural Networks" (2017), over equal bins of the prediction's probability.
#pragma once

#include <array>
#include <cstdint>

namespace garam {

class Calibration {
  public:
    static constexpr std::size_t kBins = 15;  // of the paper; bin b holds (b / 15, (b + 1) / 15]

    // `probability`, 0 to 1, of the label that was predicted.
    void add(double probability, bool right);

    std::int64_t total() const;
    // Mean over the rows of |accuracy - mean probability| of their bin; 0 without rows.
    double expected_error() const;

  private:
    struct Bin {
        std::int64_t rows = 0;
        std::int64_t right = 0;
        double probability = 0;  // summed
    };
    std::array<Bin, kBins> bins_{};
};

}  // namespace garam
