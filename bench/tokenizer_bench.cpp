// Times tokenizers on texts that bench/tokenizer_peer.py wrote, all of them as one batch, beside which that
// script times the `tokenizers` package. `tokenizer_bench --help` lists the options.
//
// "first" is the pass of a tokenizer that was just loaded: nothing is cached, the texts hold no row twice.
// "steady" is that of a tokenizer that has seen the texts. Medians, least and most in brackets. The sum over the
// ids is to be the other side's.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>

#include "garam/core/error.h"
#include "garam/core/json.h"
#include "garam/core/parallel.h"
#include "garam/text/tokenizer.h"

namespace garam::bench {
namespace {

namespace fs = std::filesystem;
// Wall time, or with --per_core the time that this process was computing.
struct Clock {
    static inline bool per_core = false;
    static double now() {
        if (per_core) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
        return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch())
            .count();
    }
};

double seconds_since(double begin) {
    return Clock::now() - begin;
}

std::string shown(std::vector<double> values) {
    std::sort(values.begin(), values.end());
    char text[96];
    std::snprintf(text, sizeof(text), "%.2f (%.2f-%.2f)", values[values.size() / 2], values.front(),
                  values.back());
    return text;
}

struct Options {
    std::string folder, tokenizer;
    int passes = 7, threads = 0;
    bool spans = false, per_core = false;
};

std::vector<std::string> texts_of(const fs::path& path) {
    std::vector<std::string> texts;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);)
        texts.push_back(Json::parse(line, path.string()).string());
    return texts;
}

// Sum over all ids by their places, to be compared with the other side's; `seconds` of the encoding alone.
std::uint64_t encode_all(const Tokenizer& tokenizer, const std::vector<std::string_view>& texts,
                         bool spans, double& seconds) {
    std::uint64_t sum = 0;
    const auto begin = Clock::now();
    const auto add = [&](const std::vector<std::int32_t>& ids) {
        for (std::size_t i = 0; i < ids.size(); ++i)
            sum += (i + 1) * static_cast<std::uint64_t>(ids[i]);
    };
    if (spans) {
        const auto encodings = tokenizer.encode_batch(texts, {});
        seconds = seconds_since(begin);
        for (const Encoding& encoding : encodings)
            add(encoding.ids);
    } else {
        const auto all = tokenizer.encode_ids_batch(texts, {});
        seconds = seconds_since(begin);
        for (const auto& ids : all)
            add(ids);
    }
    return sum;
}

void measure(const fs::path& model, const Options& options) {
    std::vector<double> loads;
    std::unique_ptr<Tokenizer> tokenizer;
    for (int i = 0; i < 3; ++i) {
        const auto begin = Clock::now();
        tokenizer = load_tokenizer(model);
        loads.push_back(seconds_since(begin));
    }
    const std::string name = model.filename().string();
    std::printf("%s loaded in %s s\n", name.c_str(), shown(loads).c_str());
    std::vector<fs::path> files;
    for (const auto& entry : fs::directory_iterator(options.folder))
        if (entry.path().extension() == ".jsonl") files.push_back(entry.path());
    std::sort(files.begin(), files.end());
    for (const fs::path& file : files) {
        const std::vector<std::string> texts = texts_of(file);
        const std::vector<std::string_view> views(texts.begin(), texts.end());
        double bytes = 0;
        for (const std::string& text : texts)
            bytes += static_cast<double>(text.size());
        std::vector<double> first;
        std::vector<double> steady;
        std::uint64_t sum = 0;
        double seconds = 0;
        for (int i = 0; i < std::max(options.passes / 2, 1); ++i) {
            tokenizer = load_tokenizer(model);
            sum = encode_all(*tokenizer, views, options.spans, seconds);
            first.push_back(bytes / 1e6 / seconds);
        }
        for (int i = 0; i < options.passes; ++i) {
            encode_all(*tokenizer, views, options.spans, seconds);
            steady.push_back(bytes / 1e6 / seconds);
        }
        std::printf("%s %s%s: first %s, steady %s MB/s, sum %llu\n", name.c_str(),
                    file.stem().string().c_str(), options.spans ? " with spans" : "",
                    shown(first).c_str(), shown(steady).c_str(),
                    static_cast<unsigned long long>(sum));
        std::fflush(stdout);
    }
}

int run(const Options& options) {
    if (options.folder.empty()) {
        std::printf("tokenizer_bench needs a folder of texts: bench/tokenizer_peer.py prepare\n");
        return EXIT_SUCCESS;
    }
    Clock::per_core = options.per_core;
    if (options.threads > 0) set_num_threads(options.threads);
    if (options.per_core) set_num_threads(1);
    std::printf("garam, %d threads%s\n", num_threads(), options.per_core ? ", processor time" : "");
    std::vector<fs::path> models;
    for (const auto& entry : fs::directory_iterator(fs::path(options.folder) / "tokenizers"))
        if (options.tokenizer.empty() || entry.path().filename() == options.tokenizer)
            models.push_back(entry.path());
    std::sort(models.begin(), models.end());
    for (const fs::path& model : models)
        measure(model, options);
    return EXIT_SUCCESS;
}

}  // namespace
}  // namespace garam::bench

int main(int argc, char** argv) {
    garam::bench::Options options;
    CLI::App app{"Speed of tokenizers"};
    app.add_option("folder", options.folder, "what tokenizer_peer.py prepare wrote");
    app.add_option("--tokenizer", options.tokenizer, "only the one of this name");
    app.add_option("--passes", options.passes)->check(CLI::PositiveNumber);
    app.add_option("--threads", options.threads, "default: the processors of this machine");
    app.add_flag("--per_core", options.per_core,
                 "one thread in its own time, which other work on the machine distorts less");
    app.add_flag("--spans", options.spans, "with the bytes of each token, as training asks for");
    CLI11_PARSE(app, argc, argv);
    try {
        return garam::bench::run(options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "error: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
