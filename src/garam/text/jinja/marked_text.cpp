#include "garam/text/jinja/marked_text.h"

#include <algorithm>

namespace garam::jinja {

MarkedText::MarkedText(std::string text, int message) : text_(std::move(text)) {
    marks_.push_back({0, text_.size(), message});
}

void MarkedText::mark(const Mark& mark) {
    if (!marks_.empty() && marks_.back().message == mark.message &&
        marks_.back().end == mark.begin) {
        marks_.back().end = mark.end;
    } else {
        marks_.push_back(mark);
    }
}

void MarkedText::append(const MarkedText& other) {
    append(other, 0, other.size());
}

void MarkedText::append(const MarkedText& other, std::size_t begin, std::size_t end) {
    const std::size_t base = text_.size();
    text_.append(other.text_, begin, end - begin);
    for (const Mark& mark : other.marks_) {
        // A cut to nothing leaves an empty mark only where something of the message was at that place.
        if (mark.end < begin || mark.begin > end) continue;
        const std::size_t from = std::max(mark.begin, begin);
        const std::size_t to = std::min(mark.end, end);
        if (from == to && begin != end && mark.begin != mark.end) continue;
        this->mark({base + from - begin, base + to - begin, mark.message});
    }
}

void MarkedText::append_for(const MarkedText& other, std::size_t begin, std::size_t end,
                            std::string_view text) {
    const std::size_t base = text_.size();
    text_ += text;
    for (const Mark& mark : other.marks_) {
        if (mark.begin < end && mark.end > begin)
            this->mark({base, base + text.size(), mark.message});
    }
}

MarkedText MarkedText::slice(std::size_t begin, std::size_t end) const {
    MarkedText out;
    out.append(*this, begin, end);
    return out;
}

}  // namespace garam::jinja
