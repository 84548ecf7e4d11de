#include "garam/data/samples/sample_table.h"

#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <cstring>
#include <limits>
#include <string>
#include <utility>

#include "garam/core/error.h"
#include "garam/data/samples/fingerprint.h"
#include "garam/data/samples/report_json.h"
#include "garam/data/samples/spill_file.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

static_assert(std::endian::native == std::endian::little, "tables are mapped as they lie on disk");

constexpr char kMagic[8] = {'G', 'A', 'R', 'A', 'M', 's', 't', 'b'};
constexpr std::uint32_t kVersion = 1;

struct Header {
    char magic[8];
    std::uint32_t version;
    std::uint32_t index_entry_bytes;
    std::uint64_t samples;
    std::uint64_t words;  // of the tokens' section, 4 bytes each
    std::uint64_t report_bytes;
    std::uint64_t fingerprint;
    std::uint64_t reserved[9];
    std::uint64_t check;  // of the bytes before it
};
static_assert(sizeof(Header) == 128);

struct IndexEntry {
    std::uint64_t begin;  // word of the first token; the highest bit: labels follow the ids
    std::uint32_t targets;
    std::uint32_t full_tokens;
    std::uint64_t row;
};
static_assert(sizeof(IndexEntry) == 24);

constexpr std::uint64_t kOwnLabels = std::uint64_t{1} << 63;
constexpr std::uint32_t kIsTarget = std::uint32_t{1} << 31;

std::uint64_t check_of(const Header& header) {
    std::uint64_t words[sizeof(Header) / 8];
    std::memcpy(words, &header, sizeof(header));
    Fingerprint hash;
    for (std::size_t i = 0; i + 1 < std::size(words); ++i)
        hash.add(words[i]);
    return hash.value();
}

// The index begins at a multiple of 8 bytes.
std::uint64_t index_begin(std::uint64_t words) {
    return sizeof(Header) + (words + words % 2) * 4;
}

[[noreturn]] void throw_damaged(const fs::path& file, const std::string& what) {
    throw Error(file.string() + ": not a whole table of samples: " + what);
}

fs::path folder_of(const fs::path& file) {
    return file.has_parent_path() ? file.parent_path() : fs::path(".");
}

// A label that is neither its token nor left out.
bool has_own_labels(const Sample& sample) {
    for (std::size_t t = 0; t < sample.ids.size(); ++t)
        if (sample.labels[t] != sample.ids[t] && sample.labels[t] != kIgnore) return true;
    return false;
}

}  // namespace

struct SampleTable::Mapping {
    fs::path file;
    const std::byte* data = nullptr;
    std::size_t bytes = 0;
    Header header{};
    const std::uint32_t* words = nullptr;
    const IndexEntry* index = nullptr;
    ReadReport report;

    Mapping(int fd, fs::path path) : file(std::move(path)) {
        struct stat status {};
        if (::fstat(fd, &status) != 0)
            throw Error(file.string() +
                        ": cannot be read: " + std::generic_category().message(errno));
        if (!S_ISREG(status.st_mode)) throw_damaged(file, "it is no file");
        bytes = static_cast<std::size_t>(status.st_size);
        if (bytes < sizeof(Header))
            throw_damaged(file, "it has only " + std::to_string(bytes) + " bytes");
        void* address = ::mmap(nullptr, bytes, PROT_READ, MAP_SHARED, fd, 0);
        if (address == MAP_FAILED)
            throw Error(file.string() +
                        ": cannot be mapped: " + std::generic_category().message(errno));
        data = static_cast<const std::byte*>(address);
        try {
            read_header();
        } catch (...) {
            ::munmap(address, bytes);
            throw;
        }
    }
    ~Mapping() { ::munmap(const_cast<std::byte*>(data), bytes); }
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    void read_header() {
        std::memcpy(&header, data, sizeof(header));
        if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0)
            throw_damaged(file, "it begins otherwise");
        if (header.version != kVersion || header.index_entry_bytes != sizeof(IndexEntry))
            throw_damaged(file, "it is of version " + std::to_string(header.version) + ", not " +
                                    std::to_string(kVersion));
        if (header.check != check_of(header)) throw_damaged(file, "its header is damaged");
        // No count may exceed the file's bytes, so the sum below cannot overflow.
        const std::uint64_t most = bytes;
        const bool counts_fit = header.samples <= most && header.words <= most &&
                                header.report_bytes <= most && most < (std::uint64_t{1} << 56);
        const std::uint64_t expected = counts_fit ? index_begin(header.words) +
                                                        (header.samples + 1) * sizeof(IndexEntry) +
                                                        header.report_bytes
                                                  : 0;
        if (expected != bytes)
            throw_damaged(file, "it has " + std::to_string(bytes) +
                                    " bytes, not those that its "
                                    "header tells");
        words = reinterpret_cast<const std::uint32_t*>(data + sizeof(Header));
        index = reinterpret_cast<const IndexEntry*>(data + index_begin(header.words));
        const auto* text = reinterpret_cast<const char*>(data) + (bytes - header.report_bytes);
        report = report_from_json(Json::parse({text, header.report_bytes}, file.string()),
                                  file.string());
    }
};

// Where a sample lies, checked to be within the file.
struct SampleTable::Place {
    const std::uint32_t* ids = nullptr;
    std::size_t tokens = 0;
    const std::uint32_t* labels = nullptr;  // null: by the ids' highest bits
};

SampleTable::SampleTable(int fd, const fs::path& file)
    : mapping_(std::make_shared<const Mapping>(fd, file)),
      size_(static_cast<std::int64_t>(mapping_->header.samples)) {}

SampleTable::SampleTable(const fs::path& file) : SampleTable(OpenFile(file).fd(), file) {}

SampleTable::Place SampleTable::place(std::int64_t sample) const {
    GARAM_CHECK(sample >= 0 && sample < size_, "a sample of the table");
    const IndexEntry* entry = mapping_->index + sample;
    const std::uint64_t begin = entry[0].begin & ~kOwnLabels;
    const std::uint64_t end = entry[1].begin & ~kOwnLabels;
    const bool own_labels = (entry[0].begin & kOwnLabels) != 0;
    const std::uint64_t count = end - begin;
    if (begin > end || end > mapping_->header.words || (own_labels && count % 2 != 0) ||
        count > static_cast<std::uint64_t>(std::numeric_limits<std::int32_t>::max()) * 2)
        [[unlikely]]
        throw_damaged(mapping_->file, "entry " + std::to_string(sample) + " of its index");
    const std::uint32_t* ids = mapping_->words + begin;
    if (!own_labels) return {ids, count, nullptr};
    return {ids, count / 2, ids + count / 2};
}

std::int64_t SampleTable::tokens(std::int64_t sample) const {
    return static_cast<std::int64_t>(place(sample).tokens);
}

std::int64_t SampleTable::targets(std::int64_t sample) const {
    GARAM_CHECK(sample >= 0 && sample < size_, "a sample of the table");
    return mapping_->index[sample].targets;
}

std::int64_t SampleTable::full_tokens(std::int64_t sample) const {
    GARAM_CHECK(sample >= 0 && sample < size_, "a sample of the table");
    return mapping_->index[sample].full_tokens;
}

std::int64_t SampleTable::row(std::int64_t sample) const {
    GARAM_CHECK(sample >= 0 && sample < size_, "a sample of the table");
    return static_cast<std::int64_t>(mapping_->index[sample].row);
}

Sample SampleTable::sample(std::int64_t sample) const {
    const Place at = place(sample);
    Sample copy;
    copy.row = row(sample);
    copy.ids.resize(at.tokens);
    copy.labels.resize(at.tokens);
    for (std::size_t t = 0; t < at.tokens; ++t) {
        const std::uint32_t word = at.ids[t];
        copy.ids[t] = static_cast<std::int32_t>(word & ~kIsTarget);
        copy.labels[t] = at.labels != nullptr      ? static_cast<std::int32_t>(at.labels[t])
                         : (word & kIsTarget) != 0 ? copy.ids[t]
                                                   : kIgnore;
    }
    return copy;
}

void SampleTable::append_to(TokenBatch& batch, std::int64_t sample, std::int64_t sample_id) const {
    const Place at = place(sample);
    if (batch.cu_seqlens.empty()) batch.cu_seqlens.push_back(0);
    const std::size_t begin = batch.ids.size();
    batch.ids.resize(begin + at.tokens);
    batch.targets.resize(begin + at.tokens);
    batch.positions.resize(begin + at.tokens);
    std::int32_t* ids = batch.ids.data() + begin;
    std::int32_t* targets = batch.targets.data() + begin;
    std::int32_t* positions = batch.positions.data() + begin;
    for (std::size_t t = 0; t < at.tokens; ++t) {
        ids[t] = static_cast<std::int32_t>(at.ids[t] & ~kIsTarget);
        positions[t] = static_cast<std::int32_t>(t);
    }
    if (at.labels != nullptr) {
        for (std::size_t t = 0; t + 1 < at.tokens; ++t)
            targets[t] = static_cast<std::int32_t>(at.labels[t + 1]);
    } else {
        for (std::size_t t = 0; t + 1 < at.tokens; ++t) {
            const std::uint32_t next = at.ids[t + 1];
            targets[t] =
                (next & kIsTarget) != 0 ? static_cast<std::int32_t>(next & ~kIsTarget) : kIgnore;
        }
    }
    if (at.tokens > 0) targets[at.tokens - 1] = kIgnore;
    batch.cu_seqlens.push_back(static_cast<std::int32_t>(batch.ids.size()));
    batch.sample_ids.push_back(sample_id);
}

const ReadReport& SampleTable::report() const {
    static const ReadReport none;
    return mapping_ ? mapping_->report : none;
}

std::uint64_t SampleTable::fingerprint() const {
    return mapping_ ? mapping_->header.fingerprint : Fingerprint().value();
}

struct SampleTableWriter::State {
    SpillFile table;
    SpillFile index;
    Header header{};
    Fingerprint fingerprint;
    std::vector<std::uint32_t> words;  // of one sample

    // The table's file first: a message of what cannot be written names it.
    State(SpillFile file, const fs::path& folder)
        : table(std::move(file)), index(SpillFile::unnamed(folder)) {
        table.append(&header, sizeof(header));  // overwritten at the end
    }
};

SampleTableWriter::SampleTableWriter(const fs::path& file)
    : state_(std::make_unique<State>(SpillFile::named(file), folder_of(file))) {}

SampleTableWriter::SampleTableWriter()
    : state_(std::make_unique<State>(SpillFile::unnamed(), fs::path())) {}

SampleTableWriter::~SampleTableWriter() = default;

void SampleTableWriter::append(const Sample& sample, std::int64_t full_tokens) {
    GARAM_CHECK(state_ != nullptr, "the table is finished");
    GARAM_CHECK(sample.ids.size() == sample.labels.size(), "labels and ids differ in length");
    Header& header = state_->header;
    const bool own_labels = has_own_labels(sample);
    const std::size_t tokens = sample.ids.size();
    std::vector<std::uint32_t>& words = state_->words;
    words.resize(own_labels ? tokens * 2 : tokens);
    for (std::size_t t = 0; t < tokens; ++t) {
        GARAM_CHECK(sample.ids[t] >= 0, "a token id below 0");
        const auto id = static_cast<std::uint32_t>(sample.ids[t]);
        words[t] = !own_labels && sample.labels[t] != kIgnore ? id | kIsTarget : id;
        if (own_labels) words[tokens + t] = static_cast<std::uint32_t>(sample.labels[t]);
    }
    constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
    const IndexEntry entry{
        header.words | (own_labels ? kOwnLabels : 0), static_cast<std::uint32_t>(sample.targets()),
        static_cast<std::uint32_t>(std::clamp<std::int64_t>(full_tokens, sample.tokens(), kMost)),
        static_cast<std::uint64_t>(sample.row)};
    state_->table.append(words.data(), words.size() * sizeof(std::uint32_t));
    state_->index.append(&entry, sizeof(entry));
    state_->fingerprint.add(sample);
    header.words += words.size();
    ++header.samples;
}

SampleTable SampleTableWriter::finish(const ReadReport& report) {
    GARAM_CHECK(state_ != nullptr, "the table is finished");
    Header& header = state_->header;
    const IndexEntry end{header.words, 0, 0, 0};
    state_->index.append(&end, sizeof(end));
    SpillFile& table = state_->table;
    const std::uint32_t padding = 0;
    if (header.words % 2 != 0) table.append(&padding, sizeof(padding));
    table.append(state_->index);
    const std::string text = to_json(report).dump();
    table.append(text.data(), text.size());
    std::memcpy(header.magic, kMagic, sizeof(kMagic));
    header.version = kVersion;
    header.index_entry_bytes = sizeof(IndexEntry);
    header.report_bytes = text.size();
    header.fingerprint = state_->fingerprint.value();
    header.check = check_of(header);
    table.overwrite(0, &header, sizeof(header));
    table.sync();
    SampleTable finished(table.fd(), table.path());
    table.keep();
    state_.reset();
    return finished;
}

SampleTable table_of(const std::vector<Sample>& samples) {
    SampleTableWriter writer;
    ReadReport report;
    for (const Sample& sample : samples) {
        writer.append(sample, sample.tokens());
        ++report.kept;
        report.tokens += sample.tokens();
        report.target_tokens += sample.targets();
        report.longest = std::max(report.longest, sample.tokens());
    }
    report.rows = report.kept;
    return writer.finish(report);
}

}  // namespace garam
