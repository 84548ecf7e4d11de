// Tables of samples by what they were made from, so that rows are tokenised once: shared by processes,
// found again from any folder.
//
// An entry is named by the digest of its key, which holds all that decides the samples: digests of the
// data files' contents, of tokenizer and chat template, the settings, a version. A process that makes an entry
// holds its lock; others wait for it and then read what it made. An entry appears whole or not at all,
// whenever a process is killed; what a killed one left is removed by the next.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/data/sample_table.h"

namespace garam {

class SampleCache {
  public:
    // Made when it does not exist. Empty: samples lie in unnamed files in the system's temporary folder and
    // nothing is kept. Throws Error naming the folder and the key data.cache_dir when it cannot be written.
    explicit SampleCache(std::filesystem::path folder);

    struct Found {
        SampleTable table;
        bool made = false;  // by this call
    };
    // The table of this key; `make` writes its rows and returns its report where there is none yet.
    Found get(const Json& key, const std::function<ReadReport(SampleTableWriter&)>& make);

    struct Entry {
        std::string digest;
        Json key;
        std::int64_t bytes = 0;
        std::int64_t samples = 0;
        std::int64_t last_used = 0;  // seconds since 1970
    };
    std::vector<Entry> list() const;  // last used first
    // Removes what was not used for `seconds`, and, last used first kept, what is beyond `bytes` in all.
    // Entries that a process has locked stay. Returns what was removed.
    std::vector<Entry> prune(std::int64_t seconds, std::int64_t bytes);

    // XDG_CACHE_HOME or ~/.cache, then garam/data; empty where there is no home.
    static std::filesystem::path default_folder();

  private:
    std::filesystem::path folder_;
};

// 128 bits of a file's content, in hex; at several GB/s. It finds accidents, not forgery.
std::string content_digest(const std::filesystem::path& file);
std::string content_digest(std::string_view text);

}  // namespace garam
