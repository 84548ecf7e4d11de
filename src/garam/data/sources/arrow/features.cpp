// `datasets`' own description of a column: {"dtype": "string", "_type": "Value"}, {"names": […], "_type":
// "ClassLabel"}, {"feature": …, "_type": "List"}, a list of one feature, or an object of them.
#include "garam/data/sources/arrow/arrow_values.h"

namespace garam {
namespace {

std::string kind_of(const Json& feature) {
    const Json* kind = feature.find("_type");
    return kind != nullptr && kind->is_string() ? kind->string() : "";
}

bool is_list(const std::string& kind) {
    return kind == "Sequence" || kind == "List" || kind == "LargeList";
}

}  // namespace

Json element_feature(const Json& feature) {
    if (feature.is_array()) return feature.array().size() == 1 ? feature.array()[0] : Json();
    const Json* element = is_list(kind_of(feature)) ? feature.find("feature") : nullptr;
    return element != nullptr ? *element : Json();
}

Json member_feature(const Json& feature, const std::string& name) {
    const std::string kind = kind_of(feature);
    if (is_list(kind)) {
        // A Sequence of an object is stored as an object of lists.
        const Json* members = feature.find("feature");
        const Json* member = members != nullptr ? members->find(name) : nullptr;
        return member != nullptr ? Json(Json::Array{*member}) : Json();
    }
    const Json* member = kind.empty() ? feature.find(name) : nullptr;
    return member != nullptr ? *member : Json();
}

std::vector<std::string> class_names(const Json& feature) {
    if (kind_of(feature) != "ClassLabel") return {};
    const Json* names = feature.find("names");
    if (names == nullptr || !names->is_array()) return {};
    std::vector<std::string> texts;
    for (const Json& name : names->array())
        texts.push_back(name.is_string() ? name.string() : name.dump());
    return texts;
}

}  // namespace garam
