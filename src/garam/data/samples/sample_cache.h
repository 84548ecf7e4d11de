// Tables of samples by what they were made from, so that rows are tokenised once: shared by processes,
// found again from any folder.
//
// An entry is named by the digest of its key, which holds all that decides the samples: digests of the
// data files' contents, of tokenizer and chat template, the settings, a version. A process that makes an entry
// holds its lock; others wait for it and then read what it made. An entry appears whole or not at all,
// whenever a process is killed; what a killed one left is removed by the next.
//
// In the folder: <digest>/samples, a table; <digest>/key.json, whose time of change is when the entry was
// last used; .<digest>.tmp-<pid>-<n>/, one that is being made; locks/<digest>; files/<device>-<inode>, the
// digest of a large file as it last was.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "garam/core/json.h"
#include "garam/data/samples/content_digest.h"
#include "garam/data/samples/sample_table.h"

namespace garam {

class SampleCache {
  public:
    // Made when it does not exist. Empty: samples lie in unnamed files in the system's temporary folder and
    // nothing is kept. So do those that a folder does not take (read-only, a full disk), with a note: no
    // training fails for want of a cache.
    explicit SampleCache(std::filesystem::path folder);

    struct Found {
        SampleTable table;
        bool made = false;  // by this call
    };
    // The table of this key; `make` writes its rows and returns its report where there is none yet. It is
    // called again when the cache's disk fails it half-way. Its report may name files by where they were
    // when the entry was made.
    Found get(const Json& key, const std::function<ReadReport(SampleTableWriter&)>& make);

    // content_digest(), but large files that did not change since the cache last saw them are not read.
    std::string digest_of(const std::filesystem::path& file);

    // What the user should know: no cache could be written, an entry was damaged. Each is told once.
    std::vector<std::string> take_notes();

    struct Entry {
        std::string digest;
        Json key;
        std::string
            source;  // as its report names it, when it was made; empty: the entry is damaged
        std::int64_t bytes = 0;
        std::int64_t samples = 0;
        std::int64_t last_used = 0;  // seconds since 1970
    };
    std::vector<Entry> list() const;  // last used first
    // Removes what was not used for `seconds`, and, last used first kept, what is beyond `bytes` in all;
    // below 0: no such limit. Entries that a process has locked stay. Returns what was removed.
    std::vector<Entry> prune(std::int64_t seconds, std::int64_t bytes);

    const std::filesystem::path& folder() const { return folder_; }

    // XDG_CACHE_HOME or ~/.cache, then garam/data; empty where there is no home.
    static std::filesystem::path default_folder();

  private:
    class Lock;
    bool find(const std::string& digest, SampleTable& table, bool tell);
    void remove_leftovers() const;
    void not_kept(const std::string& why);

    std::filesystem::path folder_;  // empty: none can be used
    bool writable_ = false;
    std::vector<std::string> notes_;
};

}  // namespace garam
