// The table of tuned products (core/product_table.h) of a run: which one it takes, and which products a
// job has.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "garam/ops/product_tuning.h"
#include "garam/train/checkpoint.h"
#include "garam/train/engine.h"
#include "garam/train/prepared_job.h"

namespace garam {

// The products of steps of these micro-batches on a card of that profile, counted on a dry device, as
// calls of an average step; and those of a prompt's chunk, as 0 calls. Reads no weights.
ProductCounts count_products(const DeviceProfile& profile, const ModelFiles& files,
                             EngineOptions options,
                             const std::vector<std::vector<TokenBatch>>& steps);

// The micro-batches of the first steps of a job whose memory is planned: enough to know its shapes.
std::vector<std::vector<TokenBatch>> first_steps(const PreparedJob& job);

// The table that a resumed run goes on with: its checkpoint's (`stored`), so that its bits continue;
// `misfit` says why that one is not for this device, empty: it is. Throws Error when the config names
// another (`configured`; null: none). What the user should hear of is added to `notes`.
SharedProductTable products_to_go_on_with(const SharedProductTable& configured,
                                          const SharedProductTable& stored,
                                          const std::string& misfit, const std::string& checkpoint,
                                          std::vector<std::string>& notes);

// The same for a job of that checkpoint, before its memory is planned.
void go_on_with_products_of(const Checkpoint& checkpoint, PreparedJob& job);
// Puts the job's table, if it has one, into a folder of the run; else removes what lies there.
void write_products(const PreparedJob& job, const std::filesystem::path& folder);

}  // namespace garam
