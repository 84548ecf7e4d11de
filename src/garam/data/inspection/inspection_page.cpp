#include "garam/data/inspection/inspection_page.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "garam/data/inspection/inspection_words.h"

namespace garam {
namespace {

constexpr const char* kStyle = R"(
:root { color-scheme: light dark;
  --paper: #fcfcfa; --ink: #1d1f21; --faint: #676d73; --line: #d8dadd; --bar: #5b8db8; --cut: #c9705a;
  --target: #d6efd8; --target-ink: #0d4d1c; --special: #3a6fa5; --warn: #fff3d6; --warn-line: #d49b1f; }
@media (prefers-color-scheme: dark) { :root {
  --paper: #17191b; --ink: #e4e5e6; --faint: #9aa1a8; --line: #3a3e42; --bar: #6c9dc6; --cut: #d98873;
  --target: #1d4527; --target-ink: #c8f0d0; --special: #8fbce6; --warn: #3a3016; --warn-line: #c99a35; } }
* { box-sizing: border-box; }
body { margin: 0 auto; padding: 1.5rem 1rem 4rem; max-width: 62rem; background: var(--paper);
  color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.5rem; margin: 0 0 .25rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .5rem; }
p { margin: .4rem 0; } .faint { color: var(--faint); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; min-width: 60%; }
th, td { padding: .25rem .7rem; text-align: right; border-bottom: 1px solid var(--line);
  white-space: nowrap; }
th { color: var(--faint); font-weight: 600; font-size: .88rem; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
td:first-child { white-space: normal; min-width: 8rem; }
tr.set td { font-weight: 700; }
.warning { background: var(--warn); border-left: 4px solid var(--warn-line); padding: .5rem .8rem;
  margin: .6rem 0; border-radius: 3px; }
.kind { font-weight: 700; } .example { color: var(--faint); font-size: .9rem; }
.sample { border: 1px solid var(--line); border-radius: 4px; padding: .6rem .8rem; margin: .7rem 0; }
.sample pre { margin: .4rem 0 0; white-space: pre-wrap; font: .88rem/1.55 ui-monospace, monospace; }
.t { background: var(--target); color: var(--target-ink); border-radius: 2px; text-decoration: underline;
  text-decoration-thickness: 1px; text-underline-offset: 3px; }
.s { color: var(--special); font-weight: 600; } .o { color: var(--faint); font-style: italic; }
svg { width: 100%; height: auto; max-width: 48rem; display: block; }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif; } .b { fill: var(--bar); }
.axis { stroke: var(--line); } .cut { stroke: var(--cut); stroke-dasharray: 4 3; } svg .cutname { fill: var(--cut); }
)";

std::string escaped(std::string_view text, bool keep_newlines = false) {
    std::string out;
    for (const char c : escape_controls(text, keep_newlines)) {
        switch (c) {
            case '&':
                out += "&amp;";
                break;
            case '<':
                out += "&lt;";
                break;
            case '>':
                out += "&gt;";
                break;
            case '"':
                out += "&quot;";
                break;
            case '\'':
                out += "&#39;";
                break;
            default:
                out += c;
        }
    }
    return out;
}

class Page {
  public:
    explicit Page(const Inspection& inspection) : found_(inspection) {}

    std::string run(const std::string& title) {
        const ReadReport training = found_.training();
        out_ =
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
            "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
            "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; "
            "style-src 'unsafe-inline'\">\n<title>" +
            escaped(title) + ": data</title>\n<style>" + kStyle + "</style>\n</head>\n<body>\n";
        out_ += "<h1>" + escaped(title) + "</h1>\n";
        paragraph(counted(training.kept, "row") + " to train on, " +
                      counted(training.tokens, "token") + ", of which " +
                      counted(training.target_tokens, "target") + " (" +
                      percent(ratio(training.target_tokens, training.tokens)) + ")",
                  "faint");
        warnings();
        samples();
        sources();
        lengths();
        limits();
        batchings();
        answers();
        facts();
        out_ += "</body>\n</html>\n";
        return std::move(out_);
    }

  private:
    using Cells = std::vector<std::string>;

    void heading(const std::string& text) { out_ += "<h2>" + escaped(text) + "</h2>\n"; }
    void paragraph(const std::string& text, const char* style = "") {
        out_ += *style == '\0' ? "<p>" : "<p class=\"" + std::string(style) + "\">";
        out_ += escaped(text) + "</p>\n";
    }
    void begin_table(const Cells& heads) {
        out_ += "<div class=\"wide\"><table>\n<thead><tr>";
        for (const std::string& head : heads)
            out_ += "<th>" + escaped(head) + "</th>";
        out_ += "</tr></thead>\n<tbody>\n";
    }
    void row(const Cells& cells, bool set = false) {
        out_ += set ? "<tr class=\"set\">" : "<tr>";
        for (const std::string& cell : cells)
            out_ += "<td>" + escaped(cell) + "</td>";
        out_ += "</tr>\n";
    }
    void end_table() { out_ += "</tbody></table></div>\n"; }

    void warnings() {
        const std::vector<InspectionWarning>& all = found_.warnings;
        heading(all.empty() ? "No warnings"
                            : counted(static_cast<std::int64_t>(all.size()), "warning"));
        for (const InspectionWarning& warning : all) {
            out_ += "<div class=\"warning\"><span class=\"kind\">" + escaped(warning.kind) +
                    "</span>: " + escaped(warning.message) + ".";
            const std::string example = example_in_words(warning.finding);
            if (!example.empty())
                out_ += "<div class=\"example\">first: " + escaped(example) + "</div>";
            out_ += "<div>→ " + escaped(warning.advice) + "</div></div>\n";
        }
    }

    void samples() {
        if (found_.samples.empty()) return;
        heading("The first rows");
        out_ +=
            "<p class=\"faint\"><span class=\"t\">Targets</span> are what the model learns to "
            "say; <span class=\"s\">special tokens</span> stand as they are named.</p>\n";
        for (const ShownSample& sample : found_.samples) {
            out_ +=
                "<div class=\"sample\"><b>" + escaped(sample.place.where) +
                "</b> <span class=\"faint\">" +
                escaped(counted(sample.tokens, "token") + ", " + counted(sample.targets, "target") +
                        (sample.full_tokens > sample.tokens
                             ? ", cut from " + grouped_digits(sample.full_tokens)
                             : "")) +
                "</span>\n<pre>";
            for (const SamplePiece& piece : sample.pieces)
                out_ += piece_in_markup(piece);
            out_ += "</pre></div>\n";
        }
    }

    static std::string piece_in_markup(const SamplePiece& piece) {
        if (piece.kind == SamplePiece::Kind::left_out)
            return "<span class=\"o\"> … " + escaped(piece.text) + " … </span>";
        const bool special = piece.kind == SamplePiece::Kind::special;
        const std::string text = escaped(piece.text, true);
        if (!special && !piece.target) return text;
        return std::string("<span class=\"") + (piece.target ? "t" : "") +
               (piece.target && special ? " " : "") + (special ? "s" : "") + "\">" + text +
               "</span>";
    }

    void sources() {
        heading("Rows");
        begin_table({"source", "use", "weight", "share of an epoch", "rows", "kept", "truncated",
                     "dropped", "skipped", "tokens", "targets", "share of targets"});
        for (const SourceSummary& source : found_.sources) {
            const ReadReport& report = source.report;
            row({source.name, source.validation ? "validation" : "training",
                 source.validation ? "–" : fmt::format("{:g}", source.weight),
                 source.validation ? "–" : percent(source.epoch_share), grouped_digits(report.rows),
                 grouped_digits(report.kept), grouped_digits(report.truncated),
                 grouped_digits(report.dropped_rows()), grouped_digits(report.skipped.count),
                 grouped_digits(report.tokens), grouped_digits(report.target_tokens),
                 percent(ratio(report.target_tokens, report.tokens))});
        }
        end_table();
        for (const SourceSummary& source : found_.sources)
            if (!source.report.shape.empty())
                paragraph(source.name + ": " + source.report.shape, "faint");
    }

    void lengths() {
        heading("Lengths in tokens, before truncation");
        histogram();
        Cells heads = {""};
        for (const int percent : LengthQuantiles::kPercent)
            heads.push_back(percent == 0     ? "shortest"
                            : percent == 100 ? "longest"
                                             : std::to_string(percent) + " %");
        heads.push_back("mean");
        begin_table(heads);
        const auto line = [&](const char* name, const LengthQuantiles& quantiles) {
            Cells cells = {name};
            for (const std::int64_t length : quantiles.at)
                cells.push_back(grouped_digits(length));
            cells.push_back(fmt::format("{:.1f}", quantiles.mean));
            row(cells);
        };
        line("before", found_.whole);
        line("after", found_.kept);
        end_table();
    }

    // Bars from left to right; a line where max_length lies.
    void histogram() {
        constexpr double kWidth = 640;
        constexpr double kHeight = 220;
        constexpr double kBottom = 190;
        constexpr double kTop = 24;
        const std::vector<LengthBin>& bins = found_.histogram;
        std::int64_t most = 1;
        for (const LengthBin& bin : bins)
            most = std::max(most, bin.whole);
        const double step = kWidth / static_cast<double>(bins.size());
        out_ += fmt::format(
            "<svg viewBox=\"0 0 {:g} {:g}\" role=\"img\" aria-label=\"Rows by length "
            "in tokens\">\n",
            kWidth, kHeight);
        const std::int64_t limit = found_.options.loader.max_length;
        double limit_x = -1;
        for (std::size_t i = 0; i < bins.size(); ++i) {
            const LengthBin& bin = bins[i];
            const double x = static_cast<double>(i) * step;
            const double height = (kBottom - kTop) * ratio(bin.whole, most);
            out_ += fmt::format(
                "<rect class=\"b\" x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.1f}\">"
                "<title>{} – {}: {}</title></rect>\n",
                x + 1, kBottom - height, step - 2, height, grouped_digits(bin.from),
                grouped_digits(bin.to - 1), counted(bin.whole, "row"));
            const bool is_labelled = bins.size() <= 8 || i % 2 == 0;
            if (is_labelled)
                out_ += fmt::format("<text x=\"{:.1f}\" y=\"{:g}\">{}</text>\n", x + 1,
                                    kBottom + 16, grouped_digits(bin.from));
            if (limit >= bin.from && limit < bin.to)
                limit_x = x + step * ratio(limit - bin.from, bin.to - bin.from);
        }
        out_ +=
            fmt::format("<line class=\"axis\" x1=\"0\" y1=\"{0:g}\" x2=\"{1:g}\" y2=\"{0:g}\"/>\n",
                        kBottom, kWidth);
        if (limit_x >= 0 && found_.truncated.count > 0)
            out_ += fmt::format(
                "<line class=\"cut\" x1=\"{0:.1f}\" y1=\"14\" x2=\"{0:.1f}\" y2=\"{1:g}\"/>"
                "<text class=\"cutname\" x=\"{2:.1f}\" y=\"11\" text-anchor=\"{3}\">"
                "max_length {4}</text>\n",
                limit_x, kBottom, limit_x, limit_x > kWidth / 2 ? "end" : "start",
                grouped_digits(limit));
        out_ += "</svg>\n";
    }

    void limits() {
        heading("What another train.max_length would lose");
        begin_table(
            {"max_length", "rows cut", "tokens lost", "", "targets lost", "", "rows dropped"});
        const std::int64_t tokens = all_tokens(found_);
        const std::int64_t targets = all_targets(found_);
        for (const LengthLimit& limit : found_.limits)
            row({grouped_digits(limit.max_length) + (limit.is_set ? " (set)" : ""),
                 grouped_digits(limit.rows_truncated), grouped_digits(limit.tokens_lost),
                 percent(ratio(limit.tokens_lost, tokens)), grouped_digits(limit.targets_lost),
                 percent(ratio(limit.targets_lost, targets)), grouped_digits(limit.rows_dropped)},
                limit.is_set);
        end_table();
        paragraph(loss_in_words(found_));
    }

    void batchings() {
        if (found_.batchings.empty()) return;
        const LoaderOptions& options = found_.options.loader;
        heading("Batches");
        begin_table({"", "steps an epoch", "tokens", "room", "empty"});
        for (const BatchingCost& cost : found_.batchings)
            row({name_in_words(cost, found_) + (cost.is_set ? " (set)" : ""),
                 grouped_digits(cost.steps), grouped_digits(cost.tokens), grouped_digits(cost.room),
                 percent(cost.waste())},
                cost.is_set);
        end_table();
        paragraph(fmt::format(
            "{} a pass, {} a step; the run is {}.",
            counted(options.rows_per_micro_batch, options.packing ? "bin" : "row"),
            counted(options.micro_batches_per_step, "pass"), counted(found_.steps, "step")));
        paragraph(kPaddingInWords, "faint");
    }

    void answers() {
        if (found_.answers.empty()) return;
        heading("Answers");
        std::int64_t rows = 0;
        for (const AnswerCount& answer : found_.answers)
            rows += answer.count;
        begin_table({"answer", "rows", "share"});
        for (const AnswerCount& answer : found_.answers)
            row({answer.text, grouped_digits(answer.count), percent(ratio(answer.count, rows))});
        end_table();
    }

    void facts() {
        heading("More");
        for (const std::string& line : facts_in_words(found_))
            paragraph(line);
        for (const std::string& note : found_.notes)
            paragraph(note);
    }

    const Inspection& found_;
    std::string out_;
};

}  // namespace

std::string inspection_page(const Inspection& inspection, const std::string& title) {
    return Page(inspection).run(title);
}

}  // namespace garam
