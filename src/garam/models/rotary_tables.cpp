#include "garam/models/rotary_tables.h"

#include "garam/models/rope.h"

namespace garam {

Buffer make_rotary_tables(Device& device, Stream& stream, const RopeConfig& rope,
                          std::int64_t rotary_dim, std::int64_t positions, bool long_too,
                          RotaryTables& tables) {
    const std::int64_t sets = long_too ? 2 : 1;
    const Shape shape{sets * positions, rotary_dim / 2};
    const std::int64_t each = align_up(shape.elements() * static_cast<std::int64_t>(sizeof(float)));
    Buffer buffer(device, 2 * each, Purpose::weights);
    tables = {buffer.tensor(DType::f32, shape), buffer.tensor(DType::f32, shape, each)};
    if (device.kind() == DeviceKind::dry) return buffer;
    HostTensor cos(stream, tables.cos, false);
    HostTensor sin(stream, tables.sin, false);
    for (std::int64_t set = 0; set < sets; ++set) {
        const std::int64_t row = set * positions;
        fill_rope_tables(rope_inverse_frequencies(rope, rotary_dim, set == 0 ? 0 : positions),
                         rope.attention_scaling, cos.tensor().slice_rows(row, row + positions),
                         sin.tensor().slice_rows(row, row + positions));
    }
    cos.write();
    sin.write();
    return buffer;
}

}  // namespace garam
