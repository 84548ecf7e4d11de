// Finds the fastest algorithms for the products of a job on the card at hand, and decides whether a table
// of such findings belongs to a card.
#pragma once

#include <filesystem>
#include <functional>
#include <map>

#include "garam/core/product_table.h"
#include "garam/runtime/device.h"

namespace garam {

// Shapes with the number of their calls in a step (0: outside of steps).
using ProductCounts = std::map<ProductShape, double>;

struct TuningOptions {
    int candidates = 16;      // of the library's heuristic, for each shape
    double margin = 0.02;     // how much faster another choice than the heuristic's has to be
    int rounds = 9;           // in which all candidates are timed once; medians count
    std::int64_t most = 200;  // shapes: those with the most work first
};

// What is told after each shape.
struct TuningProgress {
    std::int64_t done = 0, total = 0;
    const ProductShape* shape = nullptr;
    const TunedProduct* tuned = nullptr;
};

// Times the heuristic's choice for each shape against its other candidates, and where the shape has a
// tail also against two products. Operands are random, lie as the shape says, and are read from memory
// rather than the second-level cache; calls are recorded as in a step. What is chosen gave the same bits
// twice. Shapes that kernels of our own multiply (up to 4 rows) are left out. Takes and returns memory of
// the card; throws Error when it does not suffice.
ProductTable tune_products(Device& device, const ProductCounts& counts,
                           const TuningOptions& options = {},
                           const std::function<void(const TuningProgress&)>& progress = {});

// Where tables made now belong.
ProductHome product_home(const DeviceProfile& card);
// Why a table is not for that card, in a clause; empty: it is.
std::string misfit_of(const ProductTable& table, const DeviceProfile& card);
// Reads a table for that card. Throws Error, one line with what to do, when it is none or not for it.
SharedProductTable load_products(const std::filesystem::path& path, const DeviceProfile& card);

}  // namespace garam
