#include "testing/golden_batch.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "garam/io/safetensors.h"

namespace garam::testing {

GoldenFile::GoldenFile(const std::filesystem::path& path) {
    const auto file = SafetensorsFile::open(path);
    for (const StoredTensor& stored : file->tensors()) {
        GoldenTensor tensor;
        tensor.shape = stored.shape;
        const auto count = static_cast<std::size_t>(stored.shape.elements());
        if (stored.type == StoredType::i64) {
            tensor.integers.resize(count);
            std::memcpy(tensor.integers.data(), stored.data, stored.bytes);
        } else if (stored.type == StoredType::f32) {
            tensor.values.resize(count);
            std::memcpy(tensor.values.data(), stored.data, stored.bytes);
        }
        tensors_[stored.name] = std::move(tensor);
    }
}

std::vector<std::int64_t> GoldenFile::places(std::int64_t index) const {
    const GoldenTensor& mask = at("attention_mask");
    const std::int64_t length = mask.shape.back();
    const std::int64_t rows = mask.shape[mask.shape.rank() - 2];
    std::vector<std::int64_t> places;
    for (std::int64_t place = 0; place < rows * length; ++place) {
        if (mask.integers[static_cast<std::size_t>(index * rows * length + place)] != 0)
            places.push_back(place);
    }
    return places;
}

TokenBatch GoldenFile::batch(std::int64_t index) const {
    const GoldenTensor& ids = at("input_ids");
    const GoldenTensor& labels = at("labels");
    const std::int64_t length = ids.shape.back();
    const std::int64_t rows = ids.shape[ids.shape.rank() - 2];
    TokenBatch batch;
    std::vector<std::int32_t> row_ids;
    std::vector<std::int32_t> row_labels;
    std::int64_t row = 0;
    const auto finish_rows_before = [&](std::int64_t next) {
        for (; row < next; ++row) {
            batch.append(row_ids, row_labels, index * rows + row);
            row_ids.clear();
            row_labels.clear();
        }
    };
    for (const std::int64_t place : places(index)) {
        finish_rows_before(place / length);
        const auto at_place = static_cast<std::size_t>(index * rows * length + place);
        row_ids.push_back(static_cast<std::int32_t>(ids.integers[at_place]));
        row_labels.push_back(static_cast<std::int32_t>(labels.integers[at_place]));
    }
    finish_rows_before(rows);
    return batch;
}

double relative_error(const float* got, const std::vector<float>& want) {
    double difference = 0;
    double norm = 0;
    for (std::size_t i = 0; i < want.size(); ++i) {
        const double delta = static_cast<double>(got[i]) - static_cast<double>(want[i]);
        difference += delta * delta;
        norm += static_cast<double>(want[i]) * static_cast<double>(want[i]);
    }
    if (std::isnan(difference)) return std::numeric_limits<double>::infinity();
    if (norm == 0) return difference == 0 ? 0 : std::numeric_limits<double>::infinity();
    return std::sqrt(difference / norm);
}

}  // namespace garam::testing
