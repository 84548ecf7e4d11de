// What people read of an inspection: the terminal's text, the page, the JSON.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "data/byte_tokenizer.h"
#include "garam/core/token_batch.h"
#include "garam/data/inspection/inspection.h"
#include "garam/data/inspection/inspection_json.h"
#include "garam/data/inspection/inspection_page.h"
#include "garam/data/inspection/inspection_text.h"

namespace garam {
namespace {

using testing::ByteTokenizer;

InspectedSource source_of(const std::vector<std::pair<std::string, std::string>>& rows,
                          const std::string& name) {
    const ByteTokenizer tokenizer;
    std::vector<Sample> samples;
    for (const auto& [prompt, answer] : rows) {
        Sample sample;
        sample.ids = tokenizer.encode_ids(prompt, {});
        sample.labels.assign(sample.ids.size(), kIgnore);
        for (const std::int32_t id : tokenizer.encode_ids(answer, {})) {
            sample.ids.push_back(id);
            sample.labels.push_back(id);
        }
        sample.row = static_cast<std::int64_t>(samples.size());
        samples.push_back(std::move(sample));
    }
    InspectedSource source;
    source.name = name;
    source.samples = source.whole = table_of(samples);
    source.report = source.samples.report();
    return source;
}

Inspection inspection_of(const std::vector<InspectedSource>& sources) {
    InspectionOptions options;
    options.loader.rows_per_micro_batch = 2;
    options.shown_samples = 10;
    return inspect(sources, ByteTokenizer(), options, [&](const LoaderOptions& loader) {
        return std::make_unique<Loader>(sources[0].samples, loader);
    });
}

// Markup, escape sequences, text that runs from right to left, broken UTF-8: in rows, answers and names.
std::vector<InspectedSource> hostile_sources() {
    const std::string attack = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>&lt;";
    const std::string terminal = "\x1b]0;title\a\x1b[2J\u202Eevil\xff";
    std::vector<InspectedSource> sources = {
        source_of({{attack, attack + "<eos>"},
                   {attack, "other"},
                   {terminal, terminal + "<eos>"},
                   {terminal, terminal + "<eos>"},
                   {"a", attack + "<eos>"},
                   {"b", attack}},
                  "<b>" + attack + "</b>\x1b[31m.jsonl"),
        source_of({{attack, "third<eos>"}, {terminal, terminal + "<eos>"}}, "held\n.jsonl")};
    sources[1].validation = true;
    sources[0].report.shape = attack + terminal;
    sources[0].report.skipped = {1, attack, attack + terminal};
    sources[0].report.dropped[0] = {1, terminal, attack + terminal};
    return sources;
}

// Every tag is closed by its own, attributes are quoted, and nothing else holds < or an entity that is none.
// Returns the names of the tags that occur.
std::set<std::string> check_html(const std::string& page) {
    const std::set<std::string> empty_tags = {"meta"};
    std::set<std::string> names;
    std::vector<std::string> open;
    std::size_t at = page.find("<html");
    EXPECT_TRUE(page.starts_with("<!DOCTYPE html>\n"));
    while (at < page.size()) {
        if (page[at] == '&') {
            const std::size_t end = page.find(';', at);
            const std::string entity = page.substr(at, end - at + 1);
            EXPECT_TRUE(entity == "&amp;" || entity == "&lt;" || entity == "&gt;" ||
                        entity == "&quot;" || entity == "&#39;")
                << entity;
        }
        if (page[at] != '<') {
            ++at;
            continue;
        }
        bool quoted = false;
        std::size_t end = at;
        while (end < page.size() && (quoted || page[end] != '>')) {
            if (page[end] == '"') quoted = !quoted;
            ++end;
        }
        const std::string tag = page.substr(at + 1, end - at - 1);
        at = end + 1;
        const bool closes = tag.starts_with("/");
        const std::string name = tag.substr(closes, tag.find_first_of(" />", closes) - closes);
        names.insert(name);
        if (closes) {
            EXPECT_FALSE(open.empty());
            if (open.empty()) return names;
            EXPECT_EQ(open.back(), name);
            open.pop_back();
        } else if (empty_tags.count(name) == 0 && !tag.ends_with("/")) {
            open.push_back(name);
        }
    }
    EXPECT_TRUE(open.empty()) << open.back();
    return names;
}

std::size_t count_of(const std::string& text, const std::string& part) {
    std::size_t count = 0;
    for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1))
        ++count;
    return count;
}

bool has_control(const std::string& text) {
    return std::any_of(text.begin(), text.end(), [](char c) {
        return (static_cast<unsigned char>(c) < 0x20 && c != '\n') || c == 0x7F;
    });
}

TEST(InspectionPage, HoldsWhatItNeedsAndNothingThatRuns) {
    const std::string page = inspection_page(inspection_of(hostile_sources()), "<i>c.yaml</i>");
    const std::set<std::string> tags = check_html(page);
    for (const char* never : {"script", "img", "link", "iframe", "a", "i", "object"})
        EXPECT_EQ(tags.count(never), 0u) << never;
    EXPECT_EQ(page.find("http"), page.find("http-equiv"));
    EXPECT_EQ(count_of(page, "http"), 1u);
    EXPECT_EQ(page.find("url("), std::string::npos);
    EXPECT_EQ(page.find("@import"), std::string::npos);
    EXPECT_NE(page.find("default-src 'none'"), std::string::npos);
    EXPECT_NE(page.find("&lt;script&gt;alert(1)&lt;/script&gt;"), std::string::npos);
    EXPECT_NE(page.find("<title>&lt;i&gt;c.yaml&lt;/i&gt;: data</title>"), std::string::npos);
    EXPECT_EQ(page.find("\u202E"), std::string::npos);
    EXPECT_FALSE(has_control(page));
}

TEST(InspectionPage, ShowsRowsTargetsAndNumbers) {
    const std::string page = inspection_page(
        inspection_of({source_of({{"is it?", "yes<eos>"}, {"was it?", "no<eos>"}}, "rows.jsonl")}),
        "spam.yaml");
    check_html(page);
    EXPECT_NE(page.find("is it?<span class=\"t\">yes</span><span class=\"t s\">&lt;eos&gt;</span>"),
              std::string::npos);
    EXPECT_NE(page.find("2 rows to train on, 20 tokens, of which 7 targets (35.0 %)"),
              std::string::npos);
    EXPECT_NE(page.find("<svg"), std::string::npos);
    EXPECT_NE(page.find("prefers-color-scheme: dark"), std::string::npos);
}

TEST(InspectionText, FitsAHundredColumnsAndHoldsNoControls) {
    for (const auto& sources :
         {hostile_sources(), std::vector<InspectedSource>{
                                 source_of({{std::string(300, 'x') + " " + std::string(150, ' ') +
                                                 "한글 " + std::string(90, 'y'),
                                             "가나다라마바사아자차카타파하가나다라마바사아자차카타"
                                             "파하가나다라마바사아자차카타파하가"
                                             "나다라마바사아자차카타파하<eos>"}},
                                           std::string(200, 'n'))}}) {
        const std::string text = inspection_text(inspection_of(sources), false);
        EXPECT_FALSE(has_control(text));
        for (std::size_t at = 0; at < text.size();) {
            const std::size_t end = text.find('\n', at);
            const std::string line = text.substr(at, end - at);
            EXPECT_LE(display_width(line), 100u) << line;
            EXPECT_FALSE(line.ends_with("  ")) << line;
            at = end + 1;
        }
    }
}

TEST(InspectionText, TargetsStandInBracketsWithoutColour) {
    const Inspection inspection =
        inspection_of({source_of({{"is it?", "yes<eos>"}, {"was it?", "no<eos>"}}, "rows.jsonl")});
    const std::string plain = inspection_text(inspection, false);
    EXPECT_NE(plain.find("\n  is it?⟦yes<eos>⟧\n"), std::string::npos) << plain;
    const std::string coloured = inspection_text(inspection, true);
    EXPECT_EQ(coloured.find("⟦"), std::string::npos);
    EXPECT_NE(coloured.find("is it?\x1b[1;32myes\x1b[0m\x1b[1;4;32m<eos>\x1b[0m\n"),
              std::string::npos)
        << coloured;
}

TEST(InspectionText, LinesOfARowStayLines) {
    const std::string text = inspection_text(
        inspection_of({source_of({{"one\n\ntwo\n", "yes<eos>"}}, "rows.jsonl")}), false);
    EXPECT_NE(text.find("\n  one\n\n  two\n  ⟦yes<eos>⟧\n"), std::string::npos) << text;
}

TEST(InspectionText, SaysThatThereAreNoWarnings) {
    std::vector<std::pair<std::string, std::string>> rows;
    for (int i = 0; i < 20; ++i)
        rows.push_back({"ask " + std::to_string(i), "answer " + std::to_string(i) + "<eos>"});
    const std::string text = inspection_text(inspection_of({source_of(rows, "rows.jsonl")}), false);
    EXPECT_TRUE(text.ends_with("\nNo warnings\n")) << text;
}

TEST(InspectionJson, IsValidForHostileRows) {
    const Inspection inspection = inspection_of(hostile_sources());
    const Json json = Json::parse(inspection_json(inspection).dump(2), "out");
    EXPECT_EQ(json.at("train").at("kept").integer(), 6);
    EXPECT_EQ(json.at("validation").at("kept").integer(), 2);
    EXPECT_EQ(json.at("sources").array().size(), 2u);
    EXPECT_EQ(json.at("sources").array()[1].at("role").string(), "validation");
    EXPECT_EQ(json.at("warnings").array().size(), inspection.warnings.size());
    EXPECT_EQ(json.at("findings").at("leakage").at("count").integer(), 1);
    EXPECT_EQ(json.at("findings").at("conflicting_answers").at("count").integer(), 2);
    EXPECT_EQ(json.at("samples").array().size(), 6u);
}

TEST(InspectionJson, EmptyListsAreLists) {
    const Json json = inspection_json(
        inspection_of({source_of({{"is it?", "yes<eos>"}, {"was it?", "no<eos>"}}, "rows.jsonl")}));
    EXPECT_TRUE(json.at("notes").is_array());
    EXPECT_TRUE(json.at("answers").is_array());
    EXPECT_EQ(json.find("validation"), nullptr);
    EXPECT_EQ(json.at("lengths").at("before").at("max").integer(), 10);
    EXPECT_EQ(json.at("lengths").at("before").at("p50").integer(), 10);
}

}  // namespace
}  // namespace garam
