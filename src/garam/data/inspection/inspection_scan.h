// The part of inspection.h that looks at every token.
#pragma once

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "garam/data/inspection/inspection.h"

namespace garam {

// The samples of a table whose rows belong to a source.
class ChosenSamples {
  public:
    // Keeps a reference to the table.
    ChosenSamples(const SampleTable& table, const std::optional<std::vector<std::int64_t>>& rows);

    const SampleTable& table() const { return table_; }
    std::int64_t size() const {
        return all_ ? table_.size() : static_cast<std::int64_t>(indices_.size());
    }
    // The k-th one's index in the table.
    std::int64_t operator[](std::int64_t k) const {
        return all_ ? k : indices_[static_cast<std::size_t>(k)];
    }

  private:
    const SampleTable& table_;
    bool all_;
    std::vector<std::int64_t> indices_;
};

// What single ids are, looked up for every token of a data set.
class TokenFacts {
  public:
    explicit TokenFacts(const Tokenizer& tokenizer, std::int64_t vocab_size);

    enum Flag : std::uint8_t {
        kSpecial = 1,
        kBlank = 2,  // white space only
        kEnd = 4,    // special, and not a BOS that is no EOS
        kUnknown = 8,
        kByte = 16,  // <0x0A>
        kOutside = 32,
    };
    std::uint8_t operator[](std::int32_t id) const {
        const auto at = static_cast<std::size_t>(id);  // negative ids become huge
        return at < flags_.size() ? flags_[at] : std::uint8_t{kOutside};
    }
    std::int32_t bos() const { return bos_; }  // -1: none

  private:
    std::vector<std::uint8_t> flags_;
    std::int32_t bos_ = -1;
};

// A sample for finding equal ones. Equal digests are taken for equal ids: of ten million different samples
// two have the same one with a chance of three in a million.
struct SampleDigest {
    std::uint64_t ids = 0;
    std::uint64_t prompt =
        0;  // of the ids before the only answer; 0: there is no prompt, or several answers
    std::int64_t index = 0;  // in InspectedSource::whole
    std::int32_t source = 0;
    std::int32_t beyond = 0;  // a max_length up to this one leaves no target
};

// Samples of one source that have something in common, by their index.
struct IndexFinding {
    std::int64_t count = 0;
    std::int64_t first = -1;

    void add(std::int64_t index) {
        if (first < 0 || index < first) first = index;
        ++count;
    }
    void merge(const IndexFinding& other) {
        if (other.count > 0 && (first < 0 || other.first < first)) first = other.first;
        count += other.count;
    }
};

struct SourceScan {
    static constexpr std::size_t kMaxAnswers = 64;

    std::vector<LengthLimit> limits;  // those asked for
    IndexFinding empty_answers;
    IndexFinding no_end;
    IndexFinding end_cut;
    IndexFinding double_bos;
    IndexFinding outside_vocabulary;
    IndexFinding unknown;
    std::int64_t unknown_tokens = 0;
    std::int64_t byte_tokens = 0;
    // By the digest of the target ids; of no meaning once there are too many.
    std::unordered_map<std::uint64_t, IndexFinding> answers;
    bool too_many_answers = false;

    void merge(const SourceScan& other);
};

// Writes a digest of each of `samples`, which are those before truncation, to `digests`. `lengths` rise.
SourceScan scan(const ChosenSamples& samples, std::int32_t source, const TokenFacts& facts,
                const std::vector<std::int64_t>& lengths, const InspectionOptions& options,
                SampleDigest* digests);

}  // namespace garam
