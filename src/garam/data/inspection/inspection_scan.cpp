#include "garam/data/inspection/inspection_scan.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <mutex>
#include <string>

#include "garam/core/parallel.h"
#include "garam/core/token_batch.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

class Digest {
  public:
    void add(std::int32_t id) {
        state_ ^= static_cast<std::uint32_t>(id) * 0x9E3779B97F4A7C15u;
        state_ = std::rotl(state_, 27) * 0xBF58476D1CE4E5B9u + 0x94D049BB133111EBu;
    }
    // Never 0.
    std::uint64_t value() const {
        std::uint64_t mixed = state_;
        mixed = (mixed ^ (mixed >> 33)) * 0xFF51AFD7ED558CCDu;
        mixed = (mixed ^ (mixed >> 33)) * 0xC4CEB9FE1A85EC53u;
        mixed ^= mixed >> 33;
        return mixed == 0 ? 1 : mixed;
    }

  private:
    std::uint64_t state_ = 0x243F6A8885A308D3u;
};

bool is_blank(const std::string& text) {
    if (first_invalid_utf8(text) != std::string_view::npos) return false;
    for (std::size_t at = 0; at < text.size();)
        if (!is_python_space(next_code_point(text, at))) return false;
    return true;
}

// "<0x0A>"
bool is_byte_token(const std::string& token) {
    const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); };
    return token.size() == 6 && token.starts_with("<0x") && token[5] == '>' && is_digit(token[3]) &&
           is_digit(token[4]);
}

// What each max_length would take from a sample.
void count_limits(const Sample& sample, Truncation truncation, std::vector<LengthLimit>& limits) {
    const std::int64_t length = sample.tokens();
    if (limits.empty() || length <= limits.front().max_length) return;
    const std::int64_t all_targets = sample.targets();
    const auto is_target = [&](std::int64_t t) {
        return sample.labels[static_cast<std::size_t>(t)] != kIgnore;
    };
    const bool from_start = truncation == Truncation::keep_start;
    std::int64_t seen = 1;  // tokens from the kept side, all but the sample's first one scored
    std::int64_t targets = 0;
    for (LengthLimit& limit : limits) {
        const std::int64_t kept = limit.max_length;
        if (length <= kept) break;
        // keep_end: the first one that is kept is not scored.
        for (; seen < kept; ++seen)
            targets += is_target(from_start ? seen : length - seen);
        ++limit.rows_truncated;
        limit.rows_dropped += targets == 0;
        limit.tokens_lost += targets == 0 ? length : length - kept;
        limit.targets_lost += all_targets - targets;
    }
}

class SampleScan {
  public:
    SampleScan(const TokenFacts& facts, const InspectionOptions& options)
        : facts_(facts), options_(options) {}

    void add(const Sample& sample, std::int64_t index, SampleDigest& digest, SourceScan& scan) {
        Digest ids, prompt, answer;
        bool prompt_says_something = false;
        bool in_answer = false;
        bool answer_says_something = false;
        bool has_empty_answer = false;
        bool is_outside = false;
        std::int64_t answers = 0;
        std::int64_t unknown = 0;
        std::int64_t first_target = -1;  // that is scored
        std::int64_t last_target = -1;
        const std::size_t tokens = sample.ids.size();
        for (std::size_t t = 0; t < tokens; ++t) {
            const std::int32_t id = sample.ids[t];
            const std::uint8_t flags = facts_[id];
            const bool says_something = (flags & (TokenFacts::kSpecial | TokenFacts::kBlank)) == 0;
            ids.add(id);
            is_outside |= (flags & TokenFacts::kOutside) != 0;
            unknown += (flags & TokenFacts::kUnknown) != 0;
            scan.byte_tokens += (flags & TokenFacts::kByte) != 0;
            if (sample.labels[t] != kIgnore) {
                if (!in_answer) {
                    ++answers;
                    answer_says_something = false;
                }
                in_answer = true;
                answer_says_something |= says_something;
                answer.add(id);
                if (t > 0 && first_target < 0) first_target = static_cast<std::int64_t>(t);
                last_target = static_cast<std::int64_t>(t);
            } else {
                if (in_answer) has_empty_answer |= !answer_says_something;
                in_answer = false;
                if (answers == 0) {
                    prompt.add(id);
                    prompt_says_something |= says_something;
                }
            }
        }
        if (in_answer) has_empty_answer |= !answer_says_something;
        digest.ids = ids.value();
        digest.prompt = prompt_says_something && answers == 1 ? prompt.value() : 0;
        digest.index = index;
        digest.beyond = tokens_without_target(sample, first_target, last_target);
        if (has_empty_answer) scan.empty_answers.add(index);
        if (is_outside) scan.outside_vocabulary.add(index);
        if (unknown > 0) scan.unknown.add(index);
        scan.unknown_tokens += unknown;
        const std::int32_t bos = facts_.bos();
        if (bos >= 0 && tokens >= 2 && sample.ids[0] == bos && sample.ids[1] == bos)
            scan.double_bos.add(index);
        look_at_end(sample, last_target, index, scan);
        count_answer(answer.value(), index, scan);
        count_limits(sample, options_.truncation, scan.limits);
    }

  private:
    std::int32_t tokens_without_target(const Sample& sample, std::int64_t first,
                                       std::int64_t last) const {
        // keep_end: the first token that is kept is not scored.
        const std::int64_t beyond = first < 0 ? sample.tokens()
                                    : options_.truncation == Truncation::keep_start
                                        ? first
                                        : sample.tokens() - last;
        return static_cast<std::int32_t>(
            std::min<std::int64_t>(beyond, std::numeric_limits<std::int32_t>::max()));
    }

    // Behind the last target that says something an end must be a target, or the model never writes one.
    void look_at_end(const Sample& sample, std::int64_t last_target, std::int64_t index,
                     SourceScan& scan) const {
        std::int64_t at = last_target;
        const auto flags_at = [&](std::int64_t t) {
            return facts_[sample.ids[static_cast<std::size_t>(t)]];
        };
        while (at >= 0 && sample.labels[static_cast<std::size_t>(at)] != kIgnore &&
               (flags_at(at) & (TokenFacts::kBlank | TokenFacts::kEnd)) == TokenFacts::kBlank)
            --at;
        const bool ends = at >= 0 && sample.labels[static_cast<std::size_t>(at)] != kIgnore &&
                          (flags_at(at) & TokenFacts::kEnd) != 0;
        if (!ends) {
            scan.no_end.add(index);
        } else if (options_.truncation == Truncation::keep_start &&
                   at >= options_.loader.max_length) {
            scan.end_cut.add(index);
        }
    }

    static void count_answer(std::uint64_t answer, std::int64_t index, SourceScan& scan) {
        if (scan.too_many_answers) return;
        scan.answers[answer].add(index);
        if (scan.answers.size() <= SourceScan::kMaxAnswers) return;
        scan.too_many_answers = true;
        scan.answers.clear();
    }

    const TokenFacts& facts_;
    const InspectionOptions& options_;
};

}  // namespace

ChosenSamples::ChosenSamples(const SampleTable& table,
                             const std::optional<std::vector<std::int64_t>>& rows)
    : table_(table), all_(!rows) {
    if (all_) return;
    for (std::int64_t i = 0; i < table.size(); ++i)
        if (std::binary_search(rows->begin(), rows->end(), table.row(i))) indices_.push_back(i);
}

TokenFacts::TokenFacts(const Tokenizer& tokenizer, std::int64_t vocab_size) {
    const std::int64_t known = tokenizer.vocab_size();
    flags_.resize(static_cast<std::size_t>(std::max(known, vocab_size)));
    const std::int32_t eos = tokenizer.eos_id().value_or(-1);
    bos_ = tokenizer.bos_id().value_or(-1);
    parallel_for(known, 1024, [&](std::int64_t begin, std::int64_t end) {
        for (auto id = static_cast<std::int32_t>(begin); id < end; ++id) {
            std::uint8_t flags = 0;
            const std::string token = tokenizer.token_of(id);
            if (tokenizer.is_special(id)) {
                flags |= kSpecial;
                const bool unknown = token == "<unk>" || token == "[UNK]";
                if (unknown) flags |= kUnknown;
                if (id != bos_ && !unknown) flags |= kEnd;
            } else if (!token.empty() && is_blank(tokenizer.decode({&id, 1}, false))) {
                flags |= kBlank;
            }
            if (id == eos) flags |= kEnd;
            if (is_byte_token(token)) flags |= kByte;
            if (vocab_size > 0 && id >= vocab_size) flags |= kOutside;
            flags_[static_cast<std::size_t>(id)] = flags;
        }
    });
}

void SourceScan::merge(const SourceScan& other) {
    for (std::size_t i = 0; i < limits.size(); ++i)
        limits[i].add(other.limits[i]);
    empty_answers.merge(other.empty_answers);
    no_end.merge(other.no_end);
    end_cut.merge(other.end_cut);
    double_bos.merge(other.double_bos);
    outside_vocabulary.merge(other.outside_vocabulary);
    unknown.merge(other.unknown);
    unknown_tokens += other.unknown_tokens;
    byte_tokens += other.byte_tokens;
    too_many_answers |= other.too_many_answers;
    if (too_many_answers) {
        answers.clear();
        return;
    }
    for (const auto& [answer, finding] : other.answers)
        answers[answer].merge(finding);
    if (answers.size() > kMaxAnswers) {
        too_many_answers = true;
        answers.clear();
    }
}

SourceScan scan(const ChosenSamples& samples, std::int32_t source, const TokenFacts& facts,
                const std::vector<std::int64_t>& lengths, const InspectionOptions& options,
                SampleDigest* digests) {
    constexpr std::int64_t kGrain = 512;
    SourceScan none;
    for (const std::int64_t length : lengths) {
        LengthLimit limit;
        limit.max_length = length;
        limit.is_set = length == options.loader.max_length;
        none.limits.push_back(limit);
    }
    SourceScan all = none;
    std::mutex lock;
    parallel_for(samples.size(), kGrain, [&](std::int64_t begin, std::int64_t end) {
        SourceScan part = none;
        SampleScan sample_scan(facts, options);
        for (std::int64_t k = begin; k < end; ++k) {
            digests[k].source = source;
            sample_scan.add(samples.table().sample(samples[k]), samples[k], digests[k], part);
        }
        // Sums and smallest numbers: the order of the parts does not show.
        const std::lock_guard<std::mutex> guard(lock);
        all.merge(part);
    });
    return all;
}

}  // namespace garam
