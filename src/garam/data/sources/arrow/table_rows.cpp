#include <dlfcn.h>

#include "garam/core/error.h"
#include "garam/data/sources/arrow/table_module.h"
#include "garam/data/sources/file_rows.h"

namespace garam {
namespace {

struct Module {
    OpenTable open = nullptr;
    std::string failure;
};

Module load_module() {
    Module module;
    // Never closed: batches may outlive everything else.
    void* const library = ::dlopen(kTableModule, RTLD_NOW | RTLD_LOCAL);
    void* const entry = library == nullptr ? nullptr : ::dlsym(library, kTableModuleEntry);
    module.open = reinterpret_cast<OpenTable>(entry);
    if (entry == nullptr) {
        const char* const reason = ::dlerror();
        module.failure = reason != nullptr ? reason : "no reason given";
    }
    return module;
}

}  // namespace

std::unique_ptr<FileRows> open_table(const DataFile& file, const RowSourceOptions& options) {
    static const Module module = load_module();
    if (module.open == nullptr) {
        throw Error(file.path.string() + ": " + file.format + " files cannot be read, since " +
                    kTableModule +
                    ", which belongs to this program (lib/ beside bin/), cannot be "
                    "loaded: " +
                    module.failure);
    }
    return std::unique_ptr<FileRows>(module.open(file, options.only_columns));
}

}  // namespace garam
