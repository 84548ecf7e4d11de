#include "garam/models/weight_upload.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <exception>

#include "garam/core/error.h"
#include "garam/core/parallel.h"

namespace garam {
namespace {

constexpr std::int64_t kPieceBytes = std::int64_t{32} << 20;

void read(const StoredTensor& stored, DType dtype, void* out) {
    if (dtype == DType::f32) {
        read_tensor(stored, static_cast<float*>(out));
    } else {
        read_tensor(stored, static_cast<bfloat16*>(out));
    }
}

}  // namespace

WeightUpload::~WeightUpload() {
    try {
        stream_.synchronize();
    } catch (const std::exception&) {
        return;  // a lost device, of which whoever waits for the model is told
    }
}

WeightUpload::Piece& WeightUpload::next(std::int64_t bytes) {
    Piece& piece = pieces_[next_];
    next_ = (next_ + 1) % pieces_.size();
    if (piece.is_on_its_way) piece.copied->synchronize();
    piece.is_on_its_way = false;
    if (piece.memory.bytes() < bytes) {
        piece.memory = PinnedBuffer();
        piece.memory = PinnedBuffer(stream_.device(), std::max(bytes, kPieceBytes));
    }
    return piece;
}

void WeightUpload::sent(Piece& piece) {
    if (!piece.copied) piece.copied = stream_.device().make_event();
    piece.copied->record(stream_.queue());
    piece.is_on_its_way = true;
}

void WeightUpload::expect(const StoredTensor& stored) {
    static const auto kPage = static_cast<std::uintptr_t>(::sysconf(_SC_PAGESIZE));
    const auto begin = reinterpret_cast<std::uintptr_t>(stored.data);
    const std::uintptr_t first = begin / kPage * kPage;
    // A hint: where it fails, pages are read when they are touched.
    ::madvise(reinterpret_cast<void*>(first), begin - first + stored.bytes, MADV_WILLNEED);
}

void WeightUpload::values(const StoredTensor& stored, const Tensor& place) {
    if (!stream_.is_for_cuda()) {
        GARAM_CHECK(place.is_dense(), "values of a tensor with gaps");
        if (!stream_.is_dry()) read(stored, place.dtype(), place.raw());
        return;
    }
    const std::int64_t rows = place.rows();
    const std::int64_t row_bytes =
        place.columns() * static_cast<std::int64_t>(size_of(place.dtype()));
    // Rows that are read together: of a head whose rows are permuted, of a tensor whose rows are not whole
    // blocks.
    const bool by_rows =
        stored.shape.rank() == 2 &&
        (stored.four_bit != nullptr || place.columns() % block_elements(stored.type) == 0);
    const std::int64_t together = !by_rows                    ? rows
                                  : stored.permuted_heads > 0 ? rows / stored.permuted_heads
                                                              : 1;
    const std::int64_t most =
        std::max<std::int64_t>(kPieceBytes / std::max<std::int64_t>(row_bytes * together, 1), 1) *
        together;
    Device& device = stream_.device();
    for (std::int64_t row = 0; row < rows; row += most) {
        const std::int64_t count = std::min(most, rows - row);
        Piece& piece = next(count * row_bytes);
        if (stream_.is_dry()) continue;
        if (count == rows) {
            read(stored, place.dtype(), piece.memory.raw());
        } else {
            try {
                read(rows_of(stored, row, count), place.dtype(), piece.memory.raw());
            } catch (const Error&) {
                check_finite(stored);  // which names the element by its place in the whole
                throw;
            }
        }
        const std::int64_t pitch =
            place.pitch() * static_cast<std::int64_t>(size_of(place.dtype()));
        device.copy_rows_in(stream_.queue(), static_cast<char*>(place.raw()) + row * pitch, pitch,
                            piece.memory.raw(), row_bytes, count);
        sent(piece);
    }
}

void WeightUpload::bytes(const std::byte* from, const Tensor& place) {
    GARAM_CHECK(place.is_dense(), "bytes of a tensor with gaps");
    Device& device = stream_.device();
    const std::int64_t bytes = place.bytes();
    if (!stream_.is_for_cuda()) {
        if (stream_.is_dry()) return;
        parallel_for(bytes, kPieceBytes / 32, [&](std::int64_t begin, std::int64_t end) {
            std::memcpy(static_cast<std::byte*>(place.raw()) + begin, from + begin,
                        static_cast<std::size_t>(end - begin));
        });
        return;
    }
    for (std::int64_t first = 0; first < bytes; first += kPieceBytes) {
        const std::int64_t count = std::min(kPieceBytes, bytes - first);
        Piece& piece = next(count);
        if (stream_.is_dry()) continue;
        parallel_for(count, kPieceBytes / 32, [&](std::int64_t begin, std::int64_t end) {
            std::memcpy(static_cast<std::byte*>(piece.memory.raw()) + begin, from + first + begin,
                        static_cast<std::size_t>(end - begin));
        });
        device.copy_in(stream_.queue(), static_cast<char*>(place.raw()) + first, piece.memory.raw(),
                       count);
        sent(piece);
    }
}

}  // namespace garam
