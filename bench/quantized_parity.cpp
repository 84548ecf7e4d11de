// Quantises the values in a file on a card and decodes them again, for bench/bitsandbytes_parity.py.
//
//   quantized_parity VALUES bf16|f32 nf4|fp4 BLOCK plain|double OUT
//
// OUT: codes, absmax (f32; with double quantisation its codes, nested absmax and the offset), then the decoded values
// in the dtype of VALUES; all little-endian, one after the other.
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "garam/ops/dequantize.h"
#include "garam/runtime/transfer.h"

namespace garam::bench {
namespace {

std::vector<char> read_file(const std::string& path) {
    std::ifstream in(path, std::ios::binary | std::ios::ate);
    std::vector<char> bytes(in ? static_cast<std::size_t>(in.tellg()) : 0);
    in.seekg(0);
    if (!in.read(bytes.data(), static_cast<std::streamsize>(bytes.size())) || bytes.empty())
        throw std::runtime_error("cannot read " + path);
    return bytes;
}

bool is_first(const std::string& word, const char* first, const char* second) {
    if (word != first && word != second)
        throw std::runtime_error(word + " is neither " + first + " nor " + second);
    return word == first;
}

void run(const std::vector<std::string>& words) {
    const std::vector<char> bytes = read_file(words[0]);
    const DType dtype = is_first(words[1], "bf16", "f32") ? DType::bf16 : DType::f32;
    QuantizedMatrix matrix;
    matrix.format = is_first(words[2], "nf4", "fp4") ? QuantFormat::nf4 : QuantFormat::fp4;
    matrix.block = std::stoll(words[3]);
    const bool is_double = !is_first(words[4], "plain", "double");
    matrix.rows = 1;
    matrix.columns = static_cast<std::int64_t>(bytes.size() / size_of(dtype));

    const auto device = make_device(profile_of_device("cuda"));
    Arena arena(*device, 3 * static_cast<std::int64_t>(bytes.size()) + (std::int64_t{64} << 20));
    Meter meter;
    Stream stream(*device, arena, meter);
    const auto take = [&](DType type, std::int64_t count) {
        return arena.push(type, {count}, Purpose::weights);
    };
    std::vector<Tensor> parts{take(DType::u8, (matrix.columns + 1) / 2)};
    matrix.codes = parts.back();
    parts.push_back(take(is_double ? DType::u8 : DType::f32, matrix.blocks()));
    matrix.absmax = parts.back();
    if (is_double) {
        parts.push_back(
            take(DType::f32, (matrix.blocks() + matrix.nested_block - 1) / matrix.nested_block));
        matrix.nested_absmax = parts.back();
        parts.push_back(take(DType::f32, 1));
        matrix.offset = parts.back();
    }
    const Tensor values = arena.push(dtype, {1, matrix.columns}, Purpose::weights);
    const Tensor decoded = arena.push(dtype, {1, matrix.columns}, Purpose::weights);
    copy_to_device(stream, bytes.data(), values);
    quantize(stream, values, matrix);
    dequantize(stream, matrix, 0, decoded);
    parts.push_back(decoded);

    std::ofstream out(words[5], std::ios::binary);
    for (const Tensor& part : parts) {
        std::vector<char> host(static_cast<std::size_t>(part.bytes()));
        copy_to_host(stream, part, host.data());
        out.write(host.data(), static_cast<std::streamsize>(host.size()));
    }
    if (!out.flush()) throw std::runtime_error("cannot write " + words[5]);
}

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    if (words.size() != 6) {
        std::fprintf(stderr, "quantized_parity VALUES bf16|f32 nf4|fp4 BLOCK plain|double OUT\n");
        return 2;
    }
    try {
        garam::bench::run(words);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "quantized_parity: %s\n", error.what());
        return 1;
    }
    return 0;
}
