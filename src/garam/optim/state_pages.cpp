#include "garam/optim/state_pages.h"

#include <algorithm>
#include <cstring>

namespace garam {

StatePages::StatePages(Device& device, std::int64_t bytes, std::vector<Chunk> chunks)
    : device_(device), chunks_(std::move(chunks)), host_(device, bytes) {
    for (const Chunk& chunk : chunks_) {
        std::int64_t size = 0;
        for (const Piece& piece : chunk) {
            GARAM_CHECK(piece.offset % kAlignment == 0 && piece.offset + piece.bytes <= bytes,
                        "a piece of the states' host memory");
            size += align_up(piece.bytes);
        }
        slot_bytes_ = std::max(slot_bytes_, size);
    }
    const auto count = static_cast<std::int64_t>(chunks_.size());
    staging_ = Buffer(device, slot_bytes_ * std::min(kSlots, count), Purpose::optimizer);
    if (device.kind() == DeviceKind::dry) return;
    std::memset(host_.raw(), 0, static_cast<std::size_t>(bytes));
    in_ = device.open_queue();
    out_ = device.open_queue();
    for (Slot& slot : slots_)
        slot = {device.make_event(), device.make_event(), device.make_event()};
    all_out_ = device.make_event();
}

StatePages::~StatePages() {
    device_.close_queue(in_);
    device_.close_queue(out_);
}

Tensor StatePages::host(DType dtype, const Shape& shape, std::int64_t offset) const {
    return Tensor(static_cast<char*>(host_.raw()) + offset, dtype, shape,
                  device_.kind() == DeviceKind::dry ? DeviceKind::dry : DeviceKind::cpu);
}

void StatePages::settle() {
    device_.synchronize(out_);
}

std::vector<void*> StatePages::places(std::int64_t chunk) const {
    char* place = static_cast<char*>(staging_.raw()) + chunk % kSlots * slot_bytes_;
    std::vector<void*> result;
    for (const Piece& piece : chunks_[static_cast<std::size_t>(chunk)]) {
        result.push_back(place);
        place += align_up(piece.bytes);
    }
    return result;
}

void StatePages::fill(Stream& stream, std::int64_t chunk) {
    if (chunk >= static_cast<std::int64_t>(chunks_.size()) || stream.is_dry()) return;
    const std::vector<void*> to = places(chunk);
    const Chunk& pieces = chunks_[static_cast<std::size_t>(chunk)];
    for (std::size_t i = 0; i < pieces.size(); ++i)
        device_.copy_in(in_, to[i], static_cast<char*>(host_.raw()) + pieces[i].offset,
                        pieces[i].bytes);
    if (DeviceEvent* filled = slot_of(chunk).filled.get()) filled->record(in_);
}

void StatePages::begin(Stream& stream) {
    // Both the host memory and the slots are the last step's until all of it is copied out.
    if (all_out_) all_out_->wait_in(in_);
    for (std::int64_t chunk = 0; chunk < kSlots; ++chunk)
        fill(stream, chunk);
}

std::vector<void*> StatePages::await(Stream& stream, std::int64_t chunk) {
    if (DeviceEvent* filled = slot_of(chunk).filled.get()) filled->wait_in(stream.queue());
    return places(chunk);
}

void StatePages::done(Stream& stream, std::int64_t chunk) {
    if (stream.is_dry()) return;
    Slot& slot = slot_of(chunk);
    if (slot.updated) {
        slot.updated->record(stream.queue());
        slot.updated->wait_in(out_);
    }
    const std::vector<void*> from = places(chunk);
    const Chunk& pieces = chunks_[static_cast<std::size_t>(chunk)];
    for (std::size_t i = 0; i < pieces.size(); ++i)
        device_.copy_out(out_, static_cast<char*>(host_.raw()) + pieces[i].offset, from[i],
                         pieces[i].bytes);
    if (slot.emptied) {
        slot.emptied->record(out_);
        slot.emptied->wait_in(in_);
        all_out_->record(out_);
    }
    fill(stream, chunk + kSlots);
}

}  // namespace garam
