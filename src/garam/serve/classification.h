// What a classifier's right and wrong answers add up to.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace garam {

class Confusion {
  public:
    // Labels are numbered as in `labels`.
    explicit Confusion(std::vector<std::string> labels);

    void add(std::int64_t truth, std::int64_t predicted);
    // A row for which no label was predicted: it counts as wrong, and for no label's precision.
    void add_unparsable(std::int64_t truth);

    const std::vector<std::string>& labels() const { return labels_; }
    std::int64_t count(std::int64_t truth, std::int64_t predicted) const;
    std::int64_t unparsable(std::int64_t truth) const;
    std::int64_t unparsable() const;
    std::int64_t total() const;

    // Ratios with nothing below the line are 0, as in scikit-learn.
    struct LabelScore {
        double precision = 0;
        double recall = 0;
        double f1 = 0;
        std::int64_t support = 0;  // rows that have this label
    };
    LabelScore score(std::int64_t label) const;
    double accuracy() const;
    // Means over the labels that occur, as truth or as prediction (scikit-learn's average="macro");
    // support: all rows.
    LabelScore macro() const;
    double macro_f1() const { return macro().f1; }

  private:
    std::size_t place(std::int64_t truth, std::int64_t predicted) const;
    std::int64_t predictions(std::int64_t label) const;

    std::vector<std::string> labels_;
    std::vector<std::int64_t> counts_;  // [truth, predicted]
    std::vector<std::int64_t> unparsable_;
};

}  // namespace garam
