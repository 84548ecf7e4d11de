#include "garam/models/sharded_weights.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "garam/core/json.h"
#include "garam/io/atomic_write.h"

namespace garam {
namespace {

using Shard = std::vector<const WeightPiece*>;

std::string shard_name(std::size_t number, std::size_t count) {
    if (count == 1) return "model.safetensors";
    char name[64];
    std::snprintf(name, sizeof(name), "model-%05zu-of-%05zu.safetensors", number + 1, count);
    return name;
}

std::vector<Shard> cut(const std::vector<WeightPiece>& pieces, std::int64_t shard_bytes) {
    std::vector<Shard> shards(1);
    std::int64_t bytes = 0;
    for (const WeightPiece& piece : pieces) {
        if (!shards.back().empty() && bytes + piece.bytes() > shard_bytes) {
            shards.emplace_back();
            bytes = 0;
        }
        bytes += piece.bytes();
        shards.back().push_back(&piece);
    }
    const auto element = [](const WeightPiece* piece) {
        return size_of(piece->entries.front().dtype);
    };
    for (Shard& shard : shards)
        std::stable_sort(shard.begin(), shard.end(),
                         [&](const auto* a, const auto* b) { return element(a) > element(b); });
    return shards;
}

void write_index(const std::filesystem::path& folder, const std::vector<Shard>& shards) {
    Json::Object map;
    std::int64_t bytes = 0;
    for (std::size_t s = 0; s < shards.size(); ++s) {
        for (const WeightPiece* piece : shards[s]) {
            bytes += piece->bytes();
            for (const SafetensorsWriter::Entry& entry : piece->entries)
                map.emplace_back(entry.name, Json(shard_name(s, shards.size())));
        }
    }
    Json index;
    index.set("metadata", Json(Json::Object{{"total_size", Json(bytes)}}));
    index.set("weight_map", Json(std::move(map)));
    write_file_atomically(folder / "model.safetensors.index.json", index.dump(2) + "\n");
}

}  // namespace

std::int64_t WeightPiece::bytes() const {
    std::int64_t sum = 0;
    for (const SafetensorsWriter::Entry& entry : entries)
        sum += entry.bytes();
    return sum;
}

void write_sharded_weights(const std::filesystem::path& folder,
                           const std::vector<WeightPiece>& pieces, std::int64_t shard_bytes) {
    const std::vector<Shard> shards = cut(pieces, shard_bytes);
    for (std::size_t s = 0; s < shards.size(); ++s) {
        std::vector<SafetensorsWriter::Entry> entries;
        for (const WeightPiece* piece : shards[s])
            entries.insert(entries.end(), piece->entries.begin(), piece->entries.end());
        SafetensorsWriter writer(folder / shard_name(s, shards.size()), std::move(entries),
                                 {{"format", "pt"}});
        for (const WeightPiece* piece : shards[s])
            piece->write(writer);
        writer.commit();
    }
    if (shards.size() > 1) write_index(folder, shards);
}

}  // namespace garam
