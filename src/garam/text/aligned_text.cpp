#include "garam/text/aligned_text.h"

#include <algorithm>

#include "garam/core/error.h"

namespace garam {

ByteSpan AlignedText::source(std::size_t begin, std::size_t end) const {
    if (sources_.empty()) return {begin_ + begin, begin_ + end};
    if (begin == end) {
        const std::size_t at = begin < sources_.size() ? sources_[begin].begin
                               : sources_.empty()      ? begin_
                                                       : sources_.back().end;
        return {at, at};
    }
    return {sources_[begin].begin, std::max(sources_[begin].begin, sources_[end - 1].end)};
}

void AlignedTextBuilder::check_growth(std::size_t by) const {
    if (built_.text_.size() + by > from_.limit_)
        throw Error("the tokenizer's steps make more than " + std::to_string(from_.limit_) +
                    " bytes of a text");
}

void AlignedTextBuilder::append(std::string_view text, ByteSpan source) {
    check_growth(text.size());
    built_.text_ += text;
    built_.sources_.insert(built_.sources_.end(), text.size(), source);
}

void AlignedTextBuilder::keep(std::size_t begin, std::size_t end) {
    check_growth(end - begin);
    built_.text_.append(from_.text_, begin, end - begin);
    const std::vector<ByteSpan>& sources = from_.sources_;
    const auto at = [](std::size_t i) { return static_cast<std::ptrdiff_t>(i); };
    if (!sources.empty()) {
        built_.sources_.insert(built_.sources_.end(), sources.begin() + at(begin),
                               sources.begin() + at(end));
        return;
    }
    const std::size_t before = built_.sources_.size();
    built_.sources_.resize(before + end - begin);
    for (std::size_t i = begin; i < end; ++i)
        built_.sources_[before + i - begin] = {from_.begin_ + i, from_.begin_ + i + 1};
}

void AlignedTextBuilder::replace(std::size_t begin, std::size_t end, std::string_view by) {
    append(by, from_.source(begin, end));
}

void AlignedTextBuilder::insert(std::size_t at, std::string_view text) {
    append(text, from_.source(at, at));
}

AlignedText AlignedTextBuilder::finish() {
    built_.begin_ = from_.begin_;
    built_.limit_ = from_.limit_;
    return std::move(built_);
}

}  // namespace garam
