#include "garam/train/inspect_job.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "garam/core/error.h"
#include "garam/core/parallel.h"
#include "garam/data/samples/sample_selection.h"
#include "garam/io/hub_cache.h"
#include "garam/models/decoder_config.h"
#include "garam/train/prepared_job.h"
#include "garam/train/vocabulary.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

// No row is longer: what "before truncation" means to an encoder.
constexpr std::int64_t kNoLimit = std::int64_t{1} << 40;

// What is needed of a model.
struct TextSide {
    std::unique_ptr<Tokenizer> tokenizer;
    std::int64_t vocab_size = 0;  // 0: no config tells
    std::int64_t positions = 0;
};

TextSide text_side(const JobConfig& config) {
    TextSide side;
    const auto take = [&](const Json& json, const std::string& source) {
        const DecoderConfig decoder = DecoderConfig::from_json(json, source);
        side.vocab_size = decoder.vocab_size;
        side.positions = decoder.max_positions;
    };
    const fs::path path = find_model_path(config.model).path;
    const bool changes_vocabulary =
        !config.adapter.empty() || !config.data.add_special_tokens.empty();
    if (fs::is_directory(path) && !changes_vocabulary) {
        side.tokenizer = load_tokenizer(config.model);
        const fs::path file = path / "config.json";
        if (fs::exists(file)) take(Json::parse_file(file), file.string());
        return side;
    }
    PreparedJob job{
        .config = config,
        .files = ModelFiles::open(config.model),
        .tokenizer = load_tokenizer(config.model),
    };
    prepare_vocabulary(job);
    take(job.files.config(), job.files.path().string());
    side.tokenizer = std::move(job.tokenizer);
    return side;
}

bool loses_to_truncation(const ReadReport& report) {
    return report.truncated > 0 ||
           report.dropped[static_cast<std::size_t>(DropReason::beyond_max_length)].count > 0;
}

class DataInspector {
  public:
    DataInspector(const JobConfig& config, const ReadingProgress& progress)
        : config_(config),
          progress_(progress),
          side_(text_side(config)),
          encoding_(encoding_settings(config, side_.vocab_size)),
          seed_(static_cast<std::uint64_t>(config.train.seed)) {}

    Inspection run(std::int64_t shown_samples) {
        const DataConfig& data = config_.data;
        const DataPlaces places = training_places(data);
        const SampleTables tables = read(places);
        add_sources(places, tables.sources);
        const std::vector<WeightedTable> training = weighted(tables, data.weights);
        SampleSelection loaded;
        if (data.validation_fraction > 0) {
            SampleSplit split = hold_out(training, data.validation_fraction, seed_);
            loaded = std::move(split.training);
            split_sources(split.held_out);
        } else {
            loaded = select_samples(training, seed_);
            if (data.evaluates()) {
                const DataPlaces others = validation_places(data);
                add_sources(others, read(others).sources);
            }
        }
        Inspection found = inspect(
            sources_, *side_.tokenizer, options(shown_samples),
            [&](const LoaderOptions& loader) { return std::make_unique<Loader>(loaded, loader); });
        name_places(found);
        return found;
    }

  private:
    SampleTables read(const DataPlaces& places) {
        SampleTables tables = read_sample_tables(open_sources(places, config_.data), config_.data,
                                                 encoding_, *side_.tokenizer, progress_);
        cache_.insert(cache_.end(), tables.notes.begin(), tables.notes.end());
        for (const SourceSamples& source : tables.sources)
            cache_.push_back(source.report.file +
                             (source.made
                                  ? (config_.data.cache ? ": tokenised now, kept in the cache."
                                                        : ": tokenised now, not kept "
                                                          "(data.cache=false).")
                                  : ": from the cache."));
        return tables;
    }

    // Those of `read` whose rows are cut are read whole, too.
    void add_sources(const DataPlaces& places, const std::vector<SourceSamples>& read) {
        std::vector<OpenSource> opened = open_sources(places, config_.data);
        const bool validation = places_.size() > 0;
        places_.push_back(places);
        for (std::size_t i = 0; i < read.size(); ++i) {
            InspectedSource source;
            source.name = read[i].report.file;
            source.validation = validation;
            if (!validation && !config_.data.weights.empty())
                source.weight = config_.data.weights[i];
            source.samples = source.whole = read[i].table;
            source.report = read[i].report;
            if (loses_to_truncation(source.report)) {
                EncodingSettings whole = encoding_;
                whole.max_length = kNoLimit;
                std::vector<OpenSource> one;
                one.push_back(std::move(opened[i]));
                source.whole = read_sample_tables(std::move(one), config_.data, whole,
                                                  *side_.tokenizer, progress_)
                                   .sources.front()
                                   .table;
            }
            origins_.push_back({places_.size() - 1, i});
            sources_.push_back(std::move(source));
        }
    }

    // Each source once more, with the rows that are held out of it.
    void split_sources(const SampleSelection& held) {
        const std::size_t count = sources_.size();
        std::vector<std::vector<std::int64_t>> held_rows(count);
        for (std::int64_t i = 0; i < held.size(); ++i) {
            const SampleSelection::Origin origin = held.origin(held.id(i));
            held_rows[static_cast<std::size_t>(origin.source)].push_back(origin.row);
        }
        for (std::size_t s = 0; s < count; ++s) {
            std::vector<std::int64_t>& rows = held_rows[s];
            std::sort(rows.begin(), rows.end());
            InspectedSource held_out = sources_[s];
            held_out.validation = true;
            std::vector<std::int64_t> others;
            const SampleTable& whole = sources_[s].whole;
            for (std::int64_t i = 0; i < whole.size(); ++i)
                if (!std::binary_search(rows.begin(), rows.end(), whole.row(i)))
                    others.push_back(whole.row(i));
            move_counts(sources_[s].samples, rows, sources_[s].report, held_out.report);
            sources_[s].rows = std::move(others);
            held_out.rows = std::move(rows);
            origins_.push_back(origins_[s]);
            sources_.push_back(std::move(held_out));
        }
    }

    // Rows that gave no sample stay with the source that is trained on.
    static void move_counts(const SampleTable& table, const std::vector<std::int64_t>& rows,
                            ReadReport& training, ReadReport& held_out) {
        ReadReport part;
        part.file = training.file;
        part.shape = training.shape;
        std::int64_t longest = 0;
        for (std::int64_t i = 0; i < table.size(); ++i) {
            const std::int64_t tokens = table.tokens(i);
            if (!std::binary_search(rows.begin(), rows.end(), table.row(i))) {
                longest = std::max(longest, tokens);
                continue;
            }
            ++part.rows;
            ++part.kept;
            part.truncated += table.full_tokens(i) > tokens;
            part.tokens += tokens;
            part.target_tokens += table.targets(i);
            part.longest = std::max(part.longest, tokens);
        }
        training.rows -= part.rows;
        training.kept -= part.kept;
        training.truncated -= part.truncated;
        training.tokens -= part.tokens;
        training.target_tokens -= part.target_tokens;
        training.longest = longest;
        held_out = part;
    }

    InspectionOptions options(std::int64_t shown_samples) const {
        const TrainConfig& train = config_.train;
        InspectionOptions options;
        options.loader = loader_options(config_);
        options.truncation = encoding_.truncation;
        options.epochs = train.num_train_epochs;
        options.max_steps = train.max_steps;
        options.vocab_size = side_.vocab_size;
        options.model_positions = side_.positions;
        options.template_writes_date = writes_date();
        options.cache = cache_;
        options.shown_samples = shown_samples;
        return options;
    }

    // Templates that ask for the day take one that is given.
    bool writes_date() const {
        const std::string& source = encoding_.chat_template.empty()
                                        ? side_.tokenizer->chat_template()
                                        : encoding_.chat_template;
        if (source.find("strftime_now") == std::string::npos) return false;
        for (const auto& [name, value] : config_.data.chat_template_kwargs)
            if (name.find("date") != std::string::npos) return false;
        return std::any_of(sources_.begin(), sources_.end(), [](const InspectedSource& inspected) {
            const std::string& shape = inspected.report.shape;
            return shape.starts_with("messages") || shape.starts_with("instruction") ||
                   shape.find(", label") != std::string::npos;
        });
    }

    // Rows under the names that messages give them. Those far behind the start of a source keep their number:
    // finding their name means reading the source up to there.
    void name_places(Inspection& found) {
        constexpr std::int64_t kFarthest = 200'000;
        std::map<std::pair<std::size_t, std::size_t>,
                 std::map<std::int64_t, std::vector<RowPlace*>>>
            wanted;
        for (RowPlace* place : found.places())
            if (place->row < kFarthest)
                wanted[origins_[place->source]][place->row].push_back(place);
        for (auto& [origin, rows] : wanted) {
            std::vector<OpenSource> opened = open_sources(places_[origin.first], config_.data);
            OpenSource& source = opened[origin.second];
            std::int64_t begin = 0;
            auto next = rows.begin();
            while (next != rows.end()) {
                const std::unique_ptr<RowBatch> batch = source.next(begin);
                if (batch == nullptr) break;
                for (; next != rows.end() && next->first < begin + batch->size(); ++next)
                    for (RowPlace* place : next->second)
                        place->where = batch->where(next->first - begin);
                begin += batch->size();
            }
        }
    }

    const JobConfig& config_;
    const ReadingProgress& progress_;
    TextSide side_;
    EncodingSettings encoding_;
    std::uint64_t seed_;
    std::vector<InspectedSource> sources_;
    std::vector<DataPlaces> places_;  // training, validation
    std::vector<std::pair<std::size_t, std::size_t>>
        origins_;  // of each source: places, number in them
    std::vector<std::string> cache_;
};

}  // namespace

Inspection inspect_data(const JobConfig& config, std::int64_t shown_samples,
                        const ReadingProgress& progress) {
    validate(config);
    if (config.threads > 0) set_num_threads(std::min(config.threads, num_threads()));
    return DataInspector(config, progress).run(shown_samples);
}

}  // namespace garam
