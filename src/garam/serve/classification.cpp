#include "garam/serve/classification.h"

#include <numeric>
#include <utility>

#include "garam/core/error.h"

namespace garam {
namespace {

double ratio(double above, double below) {
    return below > 0 ? above / below : 0;
}

}  // namespace

Confusion::Confusion(std::vector<std::string> labels)
    : labels_(std::move(labels)),
      counts_(labels_.size() * labels_.size()),
      unparsable_(labels_.size()) {}

std::size_t Confusion::place(std::int64_t truth, std::int64_t predicted) const {
    const auto count = static_cast<std::int64_t>(labels_.size());
    GARAM_CHECK(truth >= 0 && truth < count && predicted >= 0 && predicted < count,
                "a label beyond the set");
    return static_cast<std::size_t>(truth * count + predicted);
}

void Confusion::add(std::int64_t truth, std::int64_t predicted) {
    ++counts_[place(truth, predicted)];
}

void Confusion::add_unparsable(std::int64_t truth) {
    place(truth, 0);
    ++unparsable_[static_cast<std::size_t>(truth)];
}

std::int64_t Confusion::unparsable(std::int64_t truth) const {
    place(truth, 0);
    return unparsable_[static_cast<std::size_t>(truth)];
}

std::int64_t Confusion::unparsable() const {
    return std::accumulate(unparsable_.begin(), unparsable_.end(), std::int64_t{0});
}

std::int64_t Confusion::count(std::int64_t truth, std::int64_t predicted) const {
    return counts_[place(truth, predicted)];
}

std::int64_t Confusion::total() const {
    return std::accumulate(counts_.begin(), counts_.end(), unparsable());
}

std::int64_t Confusion::predictions(std::int64_t label) const {
    std::int64_t sum = 0;
    for (std::int64_t t = 0; t < static_cast<std::int64_t>(labels_.size()); ++t)
        sum += count(t, label);
    return sum;
}

Confusion::LabelScore Confusion::score(std::int64_t label) const {
    LabelScore score;
    score.support = unparsable(label);
    for (std::int64_t p = 0; p < static_cast<std::int64_t>(labels_.size()); ++p)
        score.support += count(label, p);
    const auto right = static_cast<double>(count(label, label));
    const auto predicted = static_cast<double>(predictions(label));
    const auto support = static_cast<double>(score.support);
    score.precision = ratio(right, predicted);
    score.recall = ratio(right, support);
    score.f1 = ratio(2 * right, predicted + support);
    return score;
}

double Confusion::accuracy() const {
    double right = 0;
    for (std::int64_t l = 0; l < static_cast<std::int64_t>(labels_.size()); ++l)
        right += static_cast<double>(count(l, l));
    return ratio(right, static_cast<double>(total()));
}

Confusion::LabelScore Confusion::macro() const {
    LabelScore mean;
    double present = 0;
    for (std::int64_t l = 0; l < static_cast<std::int64_t>(labels_.size()); ++l) {
        const LabelScore one = score(l);
        mean.support += one.support;
        if (one.support == 0 && predictions(l) == 0) continue;
        mean.precision += one.precision;
        mean.recall += one.recall;
        mean.f1 += one.f1;
        ++present;
    }
    mean.precision = ratio(mean.precision, present);
    mean.recall = ratio(mean.recall, present);
    mean.f1 = ratio(mean.f1, present);
    return mean;
}

}  // namespace garam
