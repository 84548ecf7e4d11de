#include "garam/data/inspection/inspection_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "garam/data/inspection/inspection_words.h"
#include "garam/text/unicode.h"

namespace garam {
namespace {

constexpr std::size_t kColumns = 100;

// Styles as a terminal's numbers.
constexpr const char* kPlain = "";
constexpr const char* kBold = "1";
constexpr const char* kDim = "2";
constexpr const char* kTarget = "1;32";
constexpr const char* kSpecial = "36";
constexpr const char* kSpecialTarget = "1;4;32";
constexpr const char* kWarning = "1;33";

// Text in lines that end before the last column, words kept whole where they fit.
class Wrapped {
  public:
    Wrapped(std::string& out, std::size_t indent, bool colour)
        : out_(out), indent_(indent), colour_(colour) {}

    // Newlines begin a new line. What is longer than a line is broken.
    void add(std::string_view text, const char* style) {
        for (std::size_t at = 0; at < text.size();) {
            if (text[at] == '\n') {
                end_line();
                ++at;
                continue;
            }
            std::size_t end = at;
            std::size_t width = 0;
            // Spaces lead the word that they stand before.
            while (end < text.size() && text[end] == ' ')
                ++end;
            width = end - at;
            const std::size_t word = end;
            for (std::size_t next = end; next < text.size() && text[next] != ' ' &&
                                         text[next] != '\n' && width < kColumns - indent_;) {
                const std::size_t begin = next;
                next_code_point(text, next);
                const std::size_t columns = display_width(text.substr(begin, next - begin));
                if (width + columns > kColumns - indent_) break;
                width += columns;
                end = next;
            }
            if (column_ > 0 && column_ + width > kColumns - indent_) {
                end_line();
                // The spaces that would begin the line are where it was broken.
                width -= std::min(width, word - at);
                at = word;
                if (end <= at) continue;
            }
            if (end == at) {  // more spaces than a line holds
                at = word;
                continue;
            }
            put(text.substr(at, end - at), style, width);
            at = end;
        }
    }
    void end_line() {
        restyle(kPlain);
        out_ += '\n';
        column_ = 0;
    }
    // Ends a line that holds something.
    void finish() {
        if (column_ > 0) end_line();
    }

  private:
    void put(std::string_view text, const char* style, std::size_t width) {
        if (column_ == 0) out_.append(indent_, ' ');
        restyle(style);
        out_ += text;
        column_ += width;
    }
    void restyle(const char* style) {
        if (!colour_ || style == style_) return;
        if (*style_ != '\0') out_ += "\x1b[0m";
        if (*style != '\0') out_ += "\x1b[" + std::string(style) + "m";
        style_ = style;
    }

    std::string& out_;
    std::size_t indent_;
    bool colour_;
    std::size_t column_ = 0;
    const char* style_ = kPlain;
};

// To a number of columns, by what is seen.
std::string padded(std::string text, std::size_t columns) {
    const std::size_t width = display_width(text);
    if (width < columns) text.append(columns - width, ' ');
    return text;
}

// The end of a name says more than its beginning.
std::string fitted(const std::string& name, std::size_t columns) {
    if (display_width(name) <= columns) return name;
    std::size_t begin = 0;
    while (display_width(std::string_view(name).substr(begin)) > columns - 1)
        next_code_point(name, begin);
    return "…" + name.substr(begin);
}

// A bar of eighths of a column.
std::string bar(double share, std::size_t columns) {
    constexpr const char* kParts[] = {"", "▏", "▎", "▍", "▌", "▋", "▊", "▉"};
    const auto eighths =
        static_cast<std::size_t>(std::ceil(share * static_cast<double>(columns) * 8));
    std::string text;
    for (std::size_t i = 0; i < eighths / 8; ++i)
        text += "█";
    return text + kParts[eighths % 8];
}

class Writer {
  public:
    Writer(const Inspection& inspection, bool colour) : found_(inspection), colour_(colour) {}

    std::string run() {
        sources();
        samples();
        lengths();
        limits();
        batchings();
        answers();
        facts();
        warnings();
        return std::move(out_);
    }

  private:
    std::string styled(const std::string& text, const char* style) const {
        return colour_ ? "\x1b[" + std::string(style) + "m" + text + "\x1b[0m" : text;
    }
    void heading(const std::string& text) { out_ += "\n" + styled(text, kBold) + "\n"; }
    void paragraph(std::size_t indent, std::string_view text, const char* style = kPlain) {
        Wrapped wrapped(out_, indent, colour_);
        wrapped.add(text, style);
        wrapped.finish();
    }

    void sources() {
        constexpr std::size_t kName = 30;
        out_ += styled(padded("Rows", kName) + fmt::format("{:>10}{:>9}{:>9}{:>13}{:>13}{:>9}",
                                                           "kept", "dropped", "skipped", "tokens",
                                                           "targets", "share"),
                       kBold) +
                "\n";
        const auto line = [&](const std::string& name, const ReadReport& report) {
            out_ += padded(fitted(name, kName - 1), kName) +
                    fmt::format("{:>10}{:>9}{:>9}{:>13}{:>13}{:>9}\n", grouped_digits(report.kept),
                                grouped_digits(report.dropped_rows()),
                                grouped_digits(report.skipped.count), grouped_digits(report.tokens),
                                grouped_digits(report.target_tokens),
                                percent(ratio(report.target_tokens, report.tokens)));
        };
        std::size_t training = 0;
        std::size_t validation = 0;
        bool is_weighted = false;
        for (const SourceSummary& source : found_.sources) {
            (source.validation ? validation : training) += 1;
            is_weighted |= source.weight != 1;
        }
        for (const bool of_validation : {false, true}) {
            const std::size_t count = of_validation ? validation : training;
            if (count == 0) continue;
            if (validation > 0) out_ += of_validation ? "for validation\n" : "to train on\n";
            for (const SourceSummary& source : found_.sources) {
                if (source.validation != of_validation) continue;
                line((validation > 0 ? "  " : "") + escape_controls(source.name), source.report);
                if (!source.report.shape.empty())
                    paragraph(4, escape_controls(source.report.shape), kDim);
                if (!of_validation && (is_weighted || training > 1))
                    out_ += fmt::format("    weight {:g}: {} of an epoch's tokens\n", source.weight,
                                        percent(source.epoch_share));
            }
            if (count > 1)
                line(validation > 0 ? "  together" : "together",
                     of_validation ? found_.validation() : found_.training());
        }
        paragraph(0, "A target is a token that the model learns to say; share: of the tokens.",
                  kDim);
    }

    void samples() {
        if (found_.samples.empty()) return;
        heading(found_.samples.size() == 1 ? "The first row" : "The first rows");
        paragraph(0,
                  colour_ ? "Targets are green, special tokens blue or underlined."
                          : "Targets stand between ⟦ and ⟧.",
                  kDim);
        for (const ShownSample& sample : found_.samples) {
            out_ += styled(fitted(escape_controls(sample.place.where), 60), kBold) +
                    styled(": " + counted(sample.tokens, "token") + ", " +
                               counted(sample.targets, "target") +
                               (sample.full_tokens > sample.tokens
                                    ? ", cut from " + grouped_digits(sample.full_tokens)
                                    : ""),
                           kDim) +
                    "\n";
            show(sample);
        }
    }

    void show(const ShownSample& sample) {
        Wrapped wrapped(out_, 2, colour_);
        bool in_target = false;
        for (const SamplePiece& piece : sample.pieces) {
            if (!colour_ && piece.target != in_target)
                wrapped.add(piece.target ? "⟦" : "⟧", kPlain);
            in_target = piece.target;
            if (piece.kind == SamplePiece::Kind::left_out) {
                wrapped.add(" … " + piece.text + " … ", kDim);
                continue;
            }
            const bool special = piece.kind == SamplePiece::Kind::special;
            wrapped.add(escape_controls(piece.text, true),
                        piece.target ? (special ? kSpecialTarget : kTarget)
                                     : (special ? kSpecial : kPlain));
        }
        if (!colour_ && in_target) wrapped.add("⟧", kPlain);
        wrapped.finish();
    }

    void lengths() {
        heading("Lengths in tokens, before truncation");
        const LengthQuantiles& whole = found_.whole;
        paragraph(0, fmt::format("from {} to {}; half of the rows up to {}, 95 % up to {}, 99 % up "
                                 "to {}; {:.1f} on average",
                                 grouped_digits(whole.at[0]), grouped_digits(whole.at[8]),
                                 grouped_digits(whole.at[3]), grouped_digits(whole.at[6]),
                                 grouped_digits(whole.at[7]), whole.mean));
        std::int64_t most = 1;
        std::size_t digits = 1;
        for (const LengthBin& bin : found_.histogram) {
            most = std::max(most, bin.whole);
            digits = std::max(digits, grouped_digits(bin.to - 1).size());
        }
        const std::int64_t limit = found_.options.loader.max_length;
        bool is_marked = false;
        for (const LengthBin& bin : found_.histogram) {
            if (bin.to > limit && !is_marked && found_.truncated.count > 0) {
                is_marked = true;
                out_ += styled(fmt::format("  ┄┄┄ train.max_length={}: {} longer ┄┄┄", limit,
                                           counted(found_.truncated.count, "row") +
                                               (found_.truncated.count == 1 ? " is" : " are")),
                               kWarning) +
                        "\n";
            }
            out_ += fmt::format("  {:>{}} – {:>{}} ", grouped_digits(bin.from), digits,
                                grouped_digits(bin.to - 1), digits) +
                    padded(bar(ratio(bin.whole, most), 60), 61) +
                    fmt::format("{:>9}\n", grouped_digits(bin.whole));
        }
    }

    void limits() {
        heading("What another train.max_length would lose");
        out_ += styled(fmt::format("{:>14}{:>16}{:>22}{:>22}{:>16}", "max_length", "rows cut",
                                   "tokens lost", "targets lost", "rows dropped"),
                       kDim) +
                "\n";
        const std::int64_t tokens = all_tokens(found_);
        const std::int64_t targets = all_targets(found_);
        const auto with_share = [](std::int64_t part, std::int64_t all) {
            return part == 0
                       ? "–"
                       : grouped_digits(part) + fmt::format(" {:>7}", percent(ratio(part, all)));
        };
        for (const LengthLimit& limit : found_.limits) {
            const std::string line = fmt::format(
                "{:>14}{:>16}{:>22}{:>22}{:>16}", grouped_digits(limit.max_length),
                limit.rows_truncated == 0 ? "–" : grouped_digits(limit.rows_truncated),
                with_share(limit.tokens_lost, tokens), with_share(limit.targets_lost, targets),
                limit.rows_dropped == 0 ? "–" : grouped_digits(limit.rows_dropped));
            out_ += (limit.is_set ? styled(line + "  set", kBold) : line) + "\n";
        }
        paragraph(0, loss_in_words(found_));
    }

    void batchings() {
        if (found_.batchings.empty()) return;
        const LoaderOptions& options = found_.options.loader;
        heading(fmt::format("Batches: {} a pass, {} a step",
                            counted(options.rows_per_micro_batch, options.packing ? "bin" : "row"),
                            counted(options.micro_batches_per_step, "pass")));
        out_ += styled(fmt::format("{:<42}{:>10}{:>16}{:>16}{:>10}", "", "steps", "tokens", "room",
                                   "empty"),
                       kDim) +
                "\n";
        for (const BatchingCost& cost : found_.batchings) {
            const std::string line =
                padded("  " + name_in_words(cost, found_), 42) +
                fmt::format("{:>10}{:>16}{:>16}{:>10}", grouped_digits(cost.steps),
                            grouped_digits(cost.tokens), grouped_digits(cost.room),
                            percent(cost.waste()));
            out_ += (cost.is_set ? styled(line + "  set", kBold) : line) + "\n";
        }
        paragraph(0, kPaddingInWords, kDim);
        if (found_.steps > 0)
            out_ += fmt::format("The run is {}, {} an epoch.\n", counted(found_.steps, "step"),
                                grouped_digits(steps_per_epoch(found_)));
    }

    void answers() {
        if (found_.answers.empty()) return;
        constexpr std::size_t kShown = 12;
        heading(counted(static_cast<std::int64_t>(found_.answers.size()), "different answer"));
        std::int64_t rows = 0;
        for (const AnswerCount& answer : found_.answers)
            rows += answer.count;
        for (std::size_t i = 0; i < found_.answers.size(); ++i) {
            const AnswerCount& answer = found_.answers[i];
            if (i == kShown && found_.answers.size() > kShown + 1) {
                out_ += fmt::format("  and {} more\n", found_.answers.size() - kShown);
                break;
            }
            out_ += "  " + padded(fitted(answer.text, 28), 29) +
                    padded(bar(ratio(answer.count, found_.answers.front().count), 40), 41) +
                    fmt::format("{:>10}{:>9}\n", grouped_digits(answer.count),
                                percent(ratio(answer.count, rows)));
        }
    }

    void facts() {
        heading("More");
        for (const std::string& line : facts_in_words(found_))
            paragraph(2, line);
        for (const std::string& note : found_.notes)
            paragraph(2, escape_controls(note));
    }

    void warnings() {
        if (found_.warnings.empty()) {
            heading("No warnings");
            return;
        }
        heading(counted(static_cast<std::int64_t>(found_.warnings.size()), "warning"));
        for (const InspectionWarning& warning : found_.warnings) {
            Wrapped wrapped(out_, 2, colour_);
            wrapped.add(warning.kind, kWarning);
            wrapped.add(": " + escape_controls(warning.message) + ".", kPlain);
            wrapped.finish();
            const std::string example = example_in_words(warning.finding);
            if (!example.empty()) paragraph(4, "first: " + example, kDim);
            paragraph(4, "→ " + escape_controls(warning.advice));
        }
    }

    const Inspection& found_;
    bool colour_;
    std::string out_;
};

}  // namespace

std::string inspection_text(const Inspection& inspection, bool colour) {
    return Writer(inspection, colour).run();
}

}  // namespace garam
