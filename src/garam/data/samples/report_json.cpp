#include "garam/data/samples/report_json.h"

#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

Json finding_to_json(const ReadReport::Finding& finding) {
    Json json;
    json.set("count", finding.count);
    json.set("first_where", finding.first_where);
    json.set("first_example", finding.first_example);
    return json;
}

ReadReport::Finding finding_from_json(const Json& json, const std::string& source) {
    ReadReport::Finding finding;
    finding.count = json.at("count", source).integer(source + ": count");
    finding.first_where = json.at("first_where", source).string(source + ": first_where");
    finding.first_example = json.at("first_example", source).string(source + ": first_example");
    return finding;
}

}  // namespace

Json to_json(const ReadReport& report) {
    Json json;
    json.set("file", report.file);
    json.set("shape", report.shape);
    json.set("rows", report.rows);
    json.set("kept", report.kept);
    json.set("truncated", report.truncated);
    json.set("tokens", report.tokens);
    json.set("target_tokens", report.target_tokens);
    json.set("longest", report.longest);
    Json::Array dropped;
    for (const ReadReport::Finding& finding : report.dropped)
        dropped.push_back(finding_to_json(finding));
    json.set("dropped", Json(std::move(dropped)));
    json.set("skipped", finding_to_json(report.skipped));
    json.set("merged_start", finding_to_json(report.merged_start));
    return json;
}

ReadReport report_from_json(const Json& json, const std::string& source) {
    const auto number = [&](const char* key) {
        return json.at(key, source).integer(source + ": " + key);
    };
    ReadReport report;
    report.file = json.at("file", source).string(source + ": file");
    report.shape = json.at("shape", source).string(source + ": shape");
    report.rows = number("rows");
    report.kept = number("kept");
    report.truncated = number("truncated");
    report.tokens = number("tokens");
    report.target_tokens = number("target_tokens");
    report.longest = number("longest");
    const Json::Array& dropped = json.at("dropped", source).array(source + ": dropped");
    if (dropped.size() != report.dropped.size())
        throw Error(source + ": knows other reasons for dropping rows than this version");
    for (std::size_t i = 0; i < dropped.size(); ++i)
        report.dropped[i] = finding_from_json(dropped[i], source);
    report.skipped = finding_from_json(json.at("skipped", source), source);
    report.merged_start = finding_from_json(json.at("merged_start", source), source);
    return report;
}

}  // namespace garam
