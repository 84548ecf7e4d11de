// Values of a file's tensors into a card's memory: read and converted by all cores into one piece of pinned
// memory while another is on its way. On the CPU they are read into place; on a dry device only
// the pinned memory is counted.
#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include "garam/io/stored_tensor.h"
#include "garam/runtime/stream.h"

namespace garam {

class WeightUpload {
  public:
    // Takes its pinned memory when it is first needed. The stream must outlive this.
    explicit WeightUpload(Stream& stream) : stream_(stream) {}
    // The stream has done all copies when this is gone.
    ~WeightUpload();
    WeightUpload(const WeightUpload&) = delete;
    WeightUpload& operator=(const WeightUpload&) = delete;

    // Its bytes will be read soon: the system may begin to.
    static void expect(const StoredTensor& stored);
    // In the tensor's dtype (f32 or bf16); it may have a pitch. Throws Error as read_tensor() does.
    void values(const StoredTensor& stored, const Tensor& place);
    // Bytes as they are; dense.
    void bytes(const std::byte* from, const Tensor& place);

  private:
    struct Piece {
        PinnedBuffer memory;
        std::unique_ptr<DeviceEvent> copied;
        bool is_on_its_way = false;
    };
    // A piece that can be written.
    Piece& next(std::int64_t bytes);
    void sent(Piece& piece);

    Stream& stream_;
    std::array<Piece, 2> pieces_;
    std::size_t next_ = 0;
};

}  // namespace garam
