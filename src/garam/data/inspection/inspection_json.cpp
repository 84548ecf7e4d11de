#include "garam/data/inspection/inspection_json.h"

#include <string>
#include <utility>

#include "garam/text/unicode.h"

namespace garam {
namespace {

Json text_json(const std::string& text) {
    return replace_invalid_utf8(text);
}

// Arrays stay arrays when they are empty.
Json list() {
    return Json::Array{};
}

Json place_json(const RowPlace& place, const Inspection& inspection) {
    Json json;
    json.set("source", text_json(inspection.sources[place.source].name));
    json.set("row", place.row);
    json.set("where", text_json(place.where));
    return json;
}

Json examples_json(const Finding& finding, const Inspection& inspection) {
    Json examples = list();
    for (const RowPlace& place : finding.examples)
        examples.push_back(place_json(place, inspection));
    return examples;
}

Json finding_json(const Finding& finding, const Inspection& inspection) {
    Json json;
    json.set("count", finding.count);
    json.set("examples", examples_json(finding, inspection));
    json.set("text", text_json(finding.text));
    return json;
}

void add_report(const ReadReport& report, Json& json) {
    constexpr const char* kReasons[kDropReasons] = {"empty", "no_assistant_turn",
                                                    "nothing_to_predict", "beyond_max_length"};
    json.set("rows", report.rows);
    json.set("kept", report.kept);
    json.set("truncated", report.truncated);
    json.set("skipped", report.skipped.count);
    Json dropped;
    for (std::size_t i = 0; i < kDropReasons; ++i)
        dropped.set(kReasons[i], report.dropped[i].count);
    json.set("dropped", std::move(dropped));
    json.set("tokens", report.tokens);
    json.set("targets", report.target_tokens);
    json.set("longest", report.longest);
}

Json sources_json(const Inspection& inspection) {
    Json sources = list();
    for (const SourceSummary& source : inspection.sources) {
        Json json;
        json.set("name", text_json(source.name));
        json.set("role", source.validation ? "validation" : "train");
        json.set("shape", text_json(source.report.shape));
        json.set("weight", source.weight);
        json.set("epoch_share", source.epoch_share);
        add_report(source.report, json);
        json.set("tokens_lost", source.tokens_lost);
        json.set("targets_lost", source.targets_lost);
        sources.push_back(std::move(json));
    }
    return sources;
}

Json totals_json(const Inspection& inspection, bool validation) {
    Json json;
    add_report(validation ? inspection.validation() : inspection.training(), json);
    std::int64_t tokens_lost = 0;
    std::int64_t targets_lost = 0;
    for (const SourceSummary& source : inspection.sources) {
        if (source.validation != validation) continue;
        tokens_lost += source.tokens_lost;
        targets_lost += source.targets_lost;
    }
    json.set("tokens_lost", tokens_lost);
    json.set("targets_lost", targets_lost);
    return json;
}

Json quantiles_json(const LengthQuantiles& quantiles) {
    Json json;
    json.set("mean", quantiles.mean);
    for (std::size_t i = 0; i < quantiles.at.size(); ++i) {
        const int percent = LengthQuantiles::kPercent[i];
        json.set(percent == 0     ? "min"
                 : percent == 100 ? "max"
                                  : "p" + std::to_string(percent),
                 quantiles.at[i]);
    }
    return json;
}

Json lengths_json(const Inspection& inspection) {
    Json lengths;
    lengths.set("before", quantiles_json(inspection.whole));
    lengths.set("after", quantiles_json(inspection.kept));
    Json histogram = list();
    for (const LengthBin& bin : inspection.histogram) {
        Json json;
        json.set("from", bin.from);
        json.set("to", bin.to);
        json.set("before", bin.whole);
        json.set("after", bin.kept);
        histogram.push_back(std::move(json));
    }
    lengths.set("histogram", std::move(histogram));
    Json limits = list();
    for (const LengthLimit& limit : inspection.limits) {
        Json json;
        json.set("max_length", limit.max_length);
        json.set("set", limit.is_set);
        json.set("rows_truncated", limit.rows_truncated);
        json.set("rows_dropped", limit.rows_dropped);
        json.set("tokens_lost", limit.tokens_lost);
        json.set("targets_lost", limit.targets_lost);
        limits.push_back(std::move(json));
    }
    lengths.set("limits", std::move(limits));
    lengths.set("lossless", inspection.lossless_length);
    lengths.set("one_percent", inspection.one_percent_length);
    lengths.set("longest", place_json(inspection.longest, inspection));
    lengths.set("longest_step", inspection.longest_step);
    return lengths;
}

Json batching_json(const Inspection& inspection) {
    Json batching = list();
    for (const BatchingCost& cost : inspection.batchings) {
        Json json;
        json.set("name", cost.name);
        json.set("set", cost.is_set);
        json.set("units", cost.units);
        json.set("steps", cost.steps);
        json.set("tokens", cost.tokens);
        json.set("room", cost.room);
        json.set("waste", cost.waste());
        batching.push_back(std::move(json));
    }
    return batching;
}

Json findings_json(const Inspection& inspection) {
    Json findings;
    const std::pair<const char*, const Finding*> all[] = {
        {"duplicates", &inspection.duplicates},
        {"conflicting_answers", &inspection.conflicts},
        {"leakage", &inspection.leakage},
        {"shared_prompts", &inspection.shared_prompts},
        {"validation_duplicates", &inspection.repeats},
        {"truncated", &inspection.truncated},
        {"end_cut", &inspection.end_cut},
        {"empty_answers", &inspection.empty_answers},
        {"no_end", &inspection.no_end},
        {"double_bos", &inspection.double_bos},
        {"outside_vocabulary", &inspection.outside_vocabulary},
        {"unknown", &inspection.unknown},
    };
    for (const auto& [name, finding] : all)
        findings.set(name, finding_json(*finding, inspection));
    return findings;
}

const char* name_of(SamplePiece::Kind kind) {
    switch (kind) {
        case SamplePiece::Kind::text:
            return "text";
        case SamplePiece::Kind::special:
            return "special";
        case SamplePiece::Kind::left_out:
            break;
    }
    return "left_out";
}

Json samples_json(const Inspection& inspection) {
    Json samples = list();
    for (const ShownSample& sample : inspection.samples) {
        Json json;
        json.set("place", place_json(sample.place, inspection));
        json.set("tokens", sample.tokens);
        json.set("targets", sample.targets);
        json.set("full_tokens", sample.full_tokens);
        Json pieces = list();
        for (const SamplePiece& piece : sample.pieces) {
            Json item;
            item.set("kind", name_of(piece.kind));
            item.set("target", piece.target);
            item.set("text", piece.text);
            pieces.push_back(std::move(item));
        }
        json.set("pieces", std::move(pieces));
        samples.push_back(std::move(json));
    }
    return samples;
}

Json warnings_json(const Inspection& inspection) {
    Json warnings = list();
    for (const InspectionWarning& warning : inspection.warnings) {
        Json json;
        json.set("kind", warning.kind);
        json.set("count", warning.finding.count);
        json.set("message", text_json(warning.message));
        json.set("advice", text_json(warning.advice));
        json.set("examples", examples_json(warning.finding, inspection));
        json.set("text", text_json(warning.finding.text));
        warnings.push_back(std::move(json));
    }
    return warnings;
}

}  // namespace

Json inspection_json(const Inspection& inspection) {
    Json json;
    json.set("sources", sources_json(inspection));
    json.set("train", totals_json(inspection, false));
    if (inspection.validation().kept > 0) json.set("validation", totals_json(inspection, true));
    json.set("lengths", lengths_json(inspection));
    json.set("batching", batching_json(inspection));
    json.set("steps", inspection.steps);
    json.set("epochs", inspection.epochs);
    Json answers = list();
    for (const AnswerCount& answer : inspection.answers) {
        Json item;
        item.set("text", text_json(answer.text));
        item.set("count", answer.count);
        answers.push_back(std::move(item));
    }
    json.set("answers", std::move(answers));
    json.set("characters_per_token", inspection.characters_per_token);
    json.set("unknown_tokens", inspection.unknown_tokens);
    json.set("byte_tokens", inspection.byte_tokens);
    json.set("findings", findings_json(inspection));
    json.set("samples", samples_json(inspection));
    json.set("warnings", warnings_json(inspection));
    Json notes = list();
    for (const std::string& note : inspection.notes)
        notes.push_back(text_json(note));
    json.set("notes", std::move(notes));
    return json;
}

}  // namespace garam
