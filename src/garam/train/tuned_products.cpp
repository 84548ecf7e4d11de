#include "garam/train/tuned_products.h"

#include <algorithm>

#include "garam/core/error.h"
#include "garam/io/atomic_write.h"
#include "garam/serve/session.h"
#include "garam/train/memory_choice.h"

namespace garam {

ProductCounts count_products(const DeviceProfile& profile, const ModelFiles& files,
                             EngineOptions options,
                             const std::vector<std::vector<TokenBatch>>& steps) {
    GARAM_CHECK(profile.is_cuda() && !steps.empty(), "products of steps on a card");
    const auto device = make_dry_device(profile);
    options.model.max_positions = std::max(options.model.max_positions, kPrefillChunk);
    TrainingEngine engine(*device, files, options, dry_address_space());
    engine.meter().count_products(true);
    for (const std::vector<TokenBatch>& step : steps)
        engine.step(step, 0, 0);
    ProductCounts counts;
    for (const auto& [shape, calls] : engine.meter().products())
        counts[shape] = static_cast<double>(calls) / static_cast<double>(steps.size());
    // Prompts are fed in chunks (serve/session.h).
    KvCache cache = engine.model().make_cache(kPrefillChunk);
    std::vector<float> logits;
    engine.model().decode(engine.stream(), cache, std::vector<std::int32_t>(kPrefillChunk), logits);
    for (const auto& [shape, calls] : engine.meter().products())
        counts.emplace(shape, 0);
    return counts;
}

std::vector<std::vector<TokenBatch>> first_steps(const PreparedJob& job) {
    constexpr std::int64_t kEnough = 32;
    std::vector<std::vector<TokenBatch>> steps;
    for (std::int64_t step = 0; step < std::min(kEnough, job.max_steps); ++step)
        steps.push_back(merge_micro_batches(job.loader->step(step), job.merged_micro_batches));
    return steps;
}

SharedProductTable products_to_go_on_with(const SharedProductTable& configured,
                                          const SharedProductTable& stored,
                                          const std::string& misfit, const std::string& checkpoint,
                                          std::vector<std::string>& notes) {
    if (stored && !misfit.empty()) {
        notes.push_back(
            "warning: the tuned products of " + checkpoint +
            " do not count here, so that sums may be rounded otherwise than before: " + misfit);
        return configured;
    }
    if (configured && (!stored || !configured->chooses_as(*stored)))
        throw Error("train.tuned_products is another table than " + checkpoint +
                    (stored ? " was computed with" : ", which was computed without one") +
                    ": its steps would be rounded otherwise; leave the key empty to go on with " +
                    (stored ? "the checkpoint's table" : "the checkpoint as it was") +
                    ", or start anew with train.resume_from_checkpoint=false");
    return stored;
}

void go_on_with_products_of(const Checkpoint& checkpoint, PreparedJob& job) {
    SharedProductTable stored;
    std::string misfit;
    if (checkpoint.holds(kProductTableFile)) {
        stored = std::make_shared<const ProductTable>(
            ProductTable::read(checkpoint.folder() / kProductTableFile));
        misfit = job.profile.is_cuda() ? misfit_of(*stored, job.profile)
                                       : "this run computes on the processor";
    }
    job.profile.products = products_to_go_on_with(job.profile.products, stored, misfit,
                                                  checkpoint.folder().string(), job.notes);
}

void write_products(const PreparedJob& job, const std::filesystem::path& folder) {
    const std::filesystem::path path = folder / kProductTableFile;
    std::error_code ignored;
    if (job.profile.products) {
        write_file_atomically(path, job.profile.products->to_text());
    } else {
        std::filesystem::remove(path, ignored);
    }
}

}  // namespace garam
