#include "garam/text/jinja/marked_text.h"

#include <algorithm>
#include <cstring>

#include "garam/text/jinja/budget.h"

namespace garam::jinja {

std::size_t find_part(std::string_view text, std::string_view part, std::size_t from) {
    if (from > text.size()) return std::string_view::npos;
    if (part.empty()) return from;
    // The C library's memmem is linear; std::string_view::find compares at each place anew.
    const void* found = memmem(text.data() + from, text.size() - from, part.data(), part.size());
    if (found == nullptr) return std::string_view::npos;
    return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_part(std::string_view text, std::string_view part) {
    const std::string backwards(text.rbegin(), text.rend());
    const std::string wanted(part.rbegin(), part.rend());
    const std::size_t found = find_part(backwards, wanted);
    return found == std::string::npos ? found : text.size() - found - part.size();
}

MarkedText::MarkedText(std::string text, int message, Origin origin) : text_(std::move(text)) {
    marks_.push_back({0, text_.size(), message, origin});
}

void MarkedText::check_size() const {
    if (text_.size() + marks_.size() * sizeof(Mark) > Budget::kMaxText)
        fail("a text grows beyond 64 MiB");
}

void MarkedText::append_plain(std::string_view text) {
    text_ += text;
    check_size();
}

void MarkedText::mark(const Mark& mark) {
    if (!marks_.empty() && marks_.back().same_source(mark) && marks_.back().end == mark.begin) {
        marks_.back().end = mark.end;
    } else {
        marks_.push_back(mark);
        check_size();
    }
}

std::vector<Mark>::const_iterator MarkedText::marks_from(std::size_t begin) const {
    return std::lower_bound(marks_.begin(), marks_.end(), begin,
                            [](const Mark& mark, std::size_t at) { return mark.end < at; });
}

void MarkedText::append(const MarkedText& other) {
    append(other, 0, other.size());
}

void MarkedText::append(const MarkedText& other, std::size_t begin, std::size_t end) {
    const std::size_t base = text_.size();
    text_.append(other.text_, begin, end - begin);
    check_size();
    for (auto mark = other.marks_from(begin); mark != other.marks_.end() && mark->begin <= end;
         ++mark) {
        // A cut to nothing leaves an empty mark only where something of the message was at that place.
        Mark moved = *mark;
        moved.begin = std::max(mark->begin, begin);
        moved.end = std::min(mark->end, end);
        if (moved.begin == moved.end && begin != end && mark->begin != mark->end) continue;
        if (moved.begin == moved.end && mark->origin == Origin::literal) continue;
        moved.begin += base - begin;
        moved.end += base - begin;
        this->mark(moved);
    }
}

void MarkedText::append_for(const MarkedText& other, std::size_t begin, std::size_t end,
                            std::string_view text) {
    const std::size_t base = text_.size();
    append_plain(text);
    for (auto mark = other.marks_from(begin); mark != other.marks_.end() && mark->begin < end;
         ++mark) {
        if (mark->end <= begin) continue;
        Mark moved = *mark;
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
