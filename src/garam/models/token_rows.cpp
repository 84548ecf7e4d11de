#include "garam/models/token_rows.h"

#include <set>

#include "garam/core/error.h"
#include "garam/runtime/transfer.h"

namespace garam {

void check_token_indices(const std::vector<std::int64_t>& indices, std::int64_t vocab_size) {
    std::set<std::int64_t> seen;
    for (const std::int64_t index : indices) {
        if (index < 0 || index >= vocab_size)
            throw Error("lora.trainable_token_indices: " + std::to_string(index) +
                        " is outside the model's vocabulary of " + std::to_string(vocab_size));
        if (!seen.insert(index).second)
            throw Error("lora.trainable_token_indices: " + std::to_string(index) + " comes twice");
    }
}

std::vector<Parameter::Copy> token_row_copies(const std::vector<std::int64_t>& indices,
                                              const Tensor& values, const Tensor& table) {
    std::vector<Parameter::Copy> copies;
    for (std::size_t begin = 0, end = 0; begin < indices.size(); begin = end) {
        for (end = begin + 1; end < indices.size() && indices[end] == indices[end - 1] + 1;)
            ++end;
        const auto first = static_cast<std::int64_t>(begin);
        const auto last = static_cast<std::int64_t>(end);
        copies.push_back({table.slice_rows(indices[begin], indices[end - 1] + 1), 1,
                          values.slice_rows(first, last)});
    }
    return copies;
}

void read_rows(const StoredTensor& stored, const std::vector<std::int64_t>& rows, float* out) {
    const std::int64_t columns = stored.shape[1];
    const std::size_t bytes = stored.bytes / static_cast<std::size_t>(stored.shape[0]);
    for (std::size_t i = 0; i < rows.size(); ++i) {
        StoredTensor row = stored;
        row.shape = {1, columns};
        row.data += static_cast<std::size_t>(rows[i]) * bytes;
        row.bytes = bytes;
        read_tensor(row, out + static_cast<std::int64_t>(i) * columns);
    }
}

Buffer make_token_tables(Device& device, Stream& stream, const std::vector<std::int64_t>& indices,
                         std::int64_t vocab_size, Tensor& places, Tensor& ids) {
    const auto count = static_cast<std::int64_t>(indices.size());
    const auto bytes = [](std::int64_t elements) {
        return align_up(elements * static_cast<std::int64_t>(sizeof(std::int32_t)));
    };
    Buffer buffer(device, bytes(vocab_size) + bytes(count), Purpose::adapter);
    places = buffer.tensor(DType::i32, {vocab_size});
    ids = buffer.tensor(DType::i32, {count}, bytes(vocab_size));
    if (device.kind() == DeviceKind::dry) return buffer;
    std::vector<std::int32_t> numbers(static_cast<std::size_t>(vocab_size), -1);
    for (std::size_t i = 0; i < indices.size(); ++i)
        numbers[static_cast<std::size_t>(indices[i])] = static_cast<std::int32_t>(i);
    const std::vector<std::int32_t> tokens(indices.begin(), indices.end());
    copy_to_device(stream, numbers.data(), places);
    copy_to_device(stream, tokens.data(), ids);
    stream.synchronize();
    return buffer;
}

}  // namespace garam
