#include "garam/text/jinja/marked_text.h"

#include <algorithm>

namespace garam::jinja {

MarkedText::MarkedText(std::string text, int message, Origin origin) : text_(std::move(text)) {
    marks_.push_back({0, text_.size(), message, origin});
}

void MarkedText::mark(const Mark& mark) {
    if (!marks_.empty() && marks_.back().same_source(mark) && marks_.back().end == mark.begin) {
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
        Mark moved = mark;
        moved.begin = std::max(mark.begin, begin);
        moved.end = std::min(mark.end, end);
        if (moved.begin == moved.end && begin != end && mark.begin != mark.end) continue;
        if (moved.begin == moved.end && mark.origin == Origin::literal) continue;
        moved.begin += base - begin;
        moved.end += base - begin;
        this->mark(moved);
    }
}

void MarkedText::append_for(const MarkedText& other, std::size_t begin, std::size_t end,
                            std::string_view text) {
    const std::size_t base = text_.size();
    text_ += text;
    for (const Mark& mark : other.marks_) {
        if (mark.begin >= end || mark.end <= begin) continue;
        Mark moved = mark;
        moved.begin = base;
        moved.end = text_.size();
        this->mark(moved);
        break;  // what replaces bytes of several sources counts as the first one's
    }
}

MarkedText MarkedText::slice(std::size_t begin, std::size_t end) const {
    MarkedText out;
    out.append(*this, begin, end);
    return out;
}

void MarkedText::own(int message) {
    std::vector<Mark> marks;
    marks.swap(marks_);
    std::size_t at = 0;
    const auto fill = [&](std::size_t end) {
        if (at < end) mark({at, end, message, Origin::literal});
    };
    for (const Mark& known : marks) {
        fill(known.begin);
        mark(known);
        at = known.end;
    }
    fill(text_.size());
}

void MarkedText::set_generation() {
    own(-1);
    for (Mark& mark : marks_)
        mark.generation = true;
}

}  // namespace garam::jinja
