// The weights of a Hugging Face folder: model.safetensors, or shards with an index where they are larger than one
// file shall be.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <vector>

#include "garam/io/safetensors_writer.h"

namespace garam {

// Tensors that lie together in one file, and what writes them in their order.
struct WeightPiece {
    std::vector<SafetensorsWriter::Entry> entries;
    std::function<void(SafetensorsWriter& writer)> write;

    std::int64_t bytes() const;
};

// A file as Transformers begins them anew.
constexpr std::int64_t kShardBytes = std::int64_t{5} * 1000 * 1000 * 1000;

// Writes the pieces into `folder`, which exists. A file is begun anew before it exceeds shard_bytes. Within a file
// pieces whose first tensor has larger elements come first, so that each lies aligned where pieces are whole
// multiples of their elements.
void write_sharded_weights(const std::filesystem::path& folder,
                           const std::vector<WeightPiece>& pieces, std::int64_t shard_bytes);

}  // namespace garam
