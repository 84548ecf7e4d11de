#include "garam/data/samples/content_digest.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <vector>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/data/samples/spill_file.h"

namespace garam {
namespace {

constexpr std::size_t kBlock = 64;
constexpr std::size_t kLanes = 8;
// Contents are cut here, whatever reads them, and the pieces' digests are digested.
constexpr std::int64_t kPiece = std::int64_t{4} << 20;
constexpr std::size_t kRead = std::size_t{128} << 10;  // stays in a core's own cache

static_assert(std::endian::native == std::endian::little, "words are read as they lie in memory");

using Words = std::array<std::uint64_t, 2>;

// Odd, with about as many ones as zeros: the fractional parts of square roots of primes.
constexpr std::array<std::uint64_t, kLanes> kStart = {
    0x6a09e667f3bcc909, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179};
constexpr std::uint64_t kMultiply = 0x9e3779b97f4a7c15;  // 2^64 divided by the golden ratio

// Every bit of the argument reaches every bit of the result (the finaliser of Steele's SplitMix64).
std::uint64_t spread(std::uint64_t word) {
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9;
    word = (word ^ (word >> 27)) * 0x94d049bb133111eb;
    return word ^ (word >> 31);
}

// Eight lanes of 64 bits, which the processor works on at once. Each step of a lane can be undone, so that a
// changed word always changes its lane. Multiplication carries a bit upwards only: what a word's high bits do
// to its own lane, low bits of the next word could take back. Each word therefore reaches the lane beside it
// too, with its halves exchanged.
class Digest {
  public:
    // All but the last call: a multiple of kBlock bytes.
    void add(const std::byte* data, std::size_t bytes) {
        length_ += bytes;
        Lanes lanes = lanes_;  // in registers
        for (; bytes >= kBlock; data += kBlock, bytes -= kBlock)
            add_block(lanes, data);
        if (bytes > 0) {
            std::array<std::byte, kBlock> last{};
            std::memcpy(last.data(), data, bytes);
            add_block(lanes, last.data());
        }
        lanes_ = lanes;
    }
    Words value() const {
        Words value = {spread(length_ + kStart[0]), spread(length_ + kStart[1])};
        for (std::size_t i = 0; i < kLanes; ++i) {
            value[0] = spread(value[0] + lanes_[i]);
            value[1] = spread(value[1] ^ std::rotl(lanes_[kLanes - 1 - i], 32));
        }
        return value;
    }

  private:
    using Lanes = std::array<std::uint64_t, kLanes>;

    static void add_block(Lanes& lanes, const std::byte* data) {
        Lanes words;
        std::memcpy(words.data(), data, kBlock);
        for (std::size_t i = 0; i < kLanes; ++i)
            lanes[i] =
                std::rotl((lanes[i] ^ words[i]) * kMultiply, 29) + std::rotl(words[i ^ 1], 32);
    }

    Lanes lanes_ = kStart;
    std::uint64_t length_ = 0;
};

std::string combined(const std::vector<Words>& pieces, std::uint64_t length) {
    Digest digest;
    digest.add(reinterpret_cast<const std::byte*>(pieces.data()), pieces.size() * sizeof(Words));
    Digest whole;
    const Words of_pieces = digest.value();
    const std::array<std::uint64_t, 3> last = {of_pieces[0], of_pieces[1], length};
    whole.add(reinterpret_cast<const std::byte*>(last.data()), sizeof(last));
    constexpr const char* kDigits = "0123456789abcdef";
    std::string text;
    for (const std::uint64_t word : whole.value())
        for (int shift = 60; shift >= 0; shift -= 4)
            text += kDigits[(word >> shift) & 15];
    return text;
}

// digest_piece(begin, bytes) -> Words, on any thread.
template <typename DigestPiece>
std::string digest_of_pieces(std::int64_t bytes, const DigestPiece& digest_piece) {
    std::vector<Words> pieces(static_cast<std::size_t>((bytes + kPiece - 1) / kPiece));
    parallel_for(static_cast<std::int64_t>(pieces.size()), 1,
                 [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t i = begin; i < end; ++i)
                         pieces[static_cast<std::size_t>(i)] =
                             digest_piece(i * kPiece, std::min(kPiece, bytes - i * kPiece));
                 });
    return combined(pieces, static_cast<std::uint64_t>(bytes));
}

}  // namespace

std::string content_digest(std::string_view text) {
    return digest_of_pieces(static_cast<std::int64_t>(text.size()),
                            [&](std::int64_t begin, std::int64_t bytes) {
                                Digest digest;
                                digest.add(reinterpret_cast<const std::byte*>(text.data()) + begin,
                                           static_cast<std::size_t>(bytes));
                                return digest.value();
                            });
}

std::string content_digest(const std::filesystem::path& path) {
    const OpenFile file(path);
    struct stat status {};
    if (::fstat(file.fd(), &status) != 0 || !S_ISREG(status.st_mode))
        throw Error(path.string() + ": cannot be read: it is no file");
    return digest_of_pieces(status.st_size, [&](std::int64_t begin, std::int64_t bytes) {
        std::vector<std::byte> buffer(kRead);
        Digest digest;
        for (std::int64_t at = begin; at < begin + bytes;) {
            const auto wanted = static_cast<std::size_t>(
                std::min<std::int64_t>(static_cast<std::int64_t>(kRead), begin + bytes - at));
            std::size_t got = 0;
            while (got < wanted) {
                const ssize_t read =
                    ::pread(file.fd(), buffer.data() + got, wanted - got,
                            static_cast<off_t>(at + static_cast<std::int64_t>(got)));
                if (read < 0 && errno == EINTR) continue;
                if (read < 0)
                    throw Error(path.string() +
                                ": cannot be read: " + std::generic_category().message(errno));
                if (read == 0) throw Error(path.string() + ": got shorter while it was read");
                got += static_cast<std::size_t>(read);
            }
            digest.add(buffer.data(), wanted);
            at += static_cast<std::int64_t>(wanted);
        }
        return digest.value();
    });
}

}  // namespace garam
