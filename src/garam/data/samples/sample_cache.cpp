#include "garam/data/samples/sample_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>
#include <utility>

#include "garam/core/error.h"
#include "garam/data/samples/spill_file.h"
#include "garam/io/atomic_write.h"

namespace garam {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kDigestDigits = 32;
constexpr const char* kSamples = "samples";
constexpr const char* kKey = "key.json";
constexpr const char* kLocks = "locks";
constexpr const char* kFiles = "files";
// Reading less takes no longer than looking it up.
constexpr std::int64_t kLargeFile = std::int64_t{4} << 20;

bool is_digest(const std::string& name) {
    return name.size() == kDigestDigits &&
           name.find_first_not_of("0123456789abcdef") == std::string::npos;
}

// "<digest>" of ".<digest>.tmp-<pid>-<n>" and ".<digest>.old"; else empty.
std::string digest_of_leftover(const std::string& name) {
    if (!name.starts_with('.') || name.size() < kDigestDigits + 2) return "";
    const std::string digest = name.substr(1, kDigestDigits);
    const std::string rest = name.substr(1 + kDigestDigits);
    return is_digest(digest) && (rest.starts_with(".tmp-") || rest == ".old") ? digest : "";
}

std::vector<std::string> names_in(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code error;
    for (fs::directory_iterator entry(folder, error), end; !error && entry != end;
         entry.increment(error))
        names.push_back(entry->path().filename().string());
    return names;
}

std::int64_t bytes_in(const fs::path& folder) {
    std::int64_t bytes = 0;
    for (const std::string& name : names_in(folder)) {
        std::error_code error;
        const std::uintmax_t size = fs::file_size(folder / name, error);
        if (!error) bytes += static_cast<std::int64_t>(size);
    }
    return bytes;
}

// 0 where it cannot be told.
std::int64_t time_of(const fs::path& file) {
    struct stat status {};
    return ::stat(file.c_str(), &status) == 0 ? status.st_mtim.tv_sec : 0;
}

void touch(const fs::path& file) {
    ::utimensat(AT_FDCWD, file.c_str(), nullptr, 0);  // a read-only cache keeps its times
}

std::int64_t nanoseconds(const timespec& time) {
    return std::int64_t{time.tv_sec} * 1000000000 + time.tv_nsec;
}

}  // namespace

// An exclusive lock of an entry. Its file may be removed by who holds it: a lock counts only while the file
// still has its name.
class SampleCache::Lock {
  public:
    // Without `wait`: none where another holds it.
    static std::optional<Lock> take(const fs::path& folder, const std::string& digest, bool wait) {
        const fs::path path = folder / kLocks / digest;
        for (;;) {
            const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
            if (fd < 0) return std::nullopt;
            Lock lock(fd, path);
            int locked = -1;
            do {
                locked = ::flock(fd, wait ? LOCK_EX : LOCK_EX | LOCK_NB);
            } while (locked != 0 && errno == EINTR);
            if (locked != 0) return std::nullopt;
            struct stat held {};
            struct stat named {};
            if (::fstat(fd, &held) == 0 && ::stat(path.c_str(), &named) == 0 &&
                held.st_ino == named.st_ino && held.st_dev == named.st_dev)
                return lock;
        }
    }
    ~Lock() {
        if (fd_ >= 0) ::close(fd_);
    }
    Lock(Lock&& other) noexcept : fd_(std::exchange(other.fd_, -1)), path_(other.path_) {}
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;
    // Of an entry that is gone.
    void remove_file() const { ::unlink(path_.c_str()); }

  private:
    Lock(int fd, fs::path path) : fd_(fd), path_(std::move(path)) {}

    int fd_;
    fs::path path_;
};

SampleCache::SampleCache(fs::path folder) : folder_(std::move(folder)) {
    if (folder_.empty()) return;
    std::error_code error;
    fs::create_directories(folder_ / kLocks, error);
    if (!error) fs::create_directories(folder_ / kFiles, error);
    if (!error && ::access(folder_.c_str(), W_OK | X_OK) != 0)
        error = std::error_code(errno, std::generic_category());
    writable_ = !error;
    if (!writable_) not_kept(error.message());
}

void SampleCache::not_kept(const std::string& why) {
    const bool says_what_to_do = why.find("data.cache_dir") != std::string::npos;
    notes_.push_back(folder_.string() + ": samples cannot be kept here: " + why +
                     "; they lie in a temporary file and are made again by the next run" +
                     (says_what_to_do ? "" : " (set data.cache_dir)"));
}

std::vector<std::string> SampleCache::take_notes() {
    return std::exchange(notes_, {});
}

bool SampleCache::find(const std::string& digest, SampleTable& table, bool tell) {
    const fs::path entry = folder_ / digest;
    std::error_code error;
    if (!fs::exists(entry, error)) return false;
    try {
        table = SampleTable(entry / kSamples);
    } catch (const Error& damage) {
        if (tell) notes_.push_back("warning: " + std::string(damage.what()) + "; it is made again");
        return false;
    }
    touch(entry / kKey);
    return true;
}

SampleCache::Found SampleCache::get(const Json& key,
                                    const std::function<ReadReport(SampleTableWriter&)>& make) {
    const std::string text = key.dump();
    const std::string digest = content_digest(text);
    Found found;
    if (!folder_.empty() && find(digest, found.table, false)) return found;
    found.made = true;
    const auto make_unnamed = [&] {
        SampleTableWriter writer;
        found.table = writer.finish(make(writer));
        return found;
    };
    if (!writable_) return make_unnamed();
    const std::optional<Lock> lock = Lock::take(folder_, digest, true);
    if (!lock) {
        not_kept("no lock: " + std::generic_category().message(errno));
        return make_unnamed();
    }
    // Another process may have made it meanwhile.
    if (find(digest, found.table, true)) {
        found.made = false;
        return found;
    }
    remove_leftovers();
    const fs::path entry = folder_ / digest;
    std::error_code ignored;
    if (fs::exists(entry, ignored) && !fs::is_directory(entry, ignored)) fs::remove(entry, ignored);
    bool rows_failed = false;
    try {
        write_folder_atomically(entry, [&](const fs::path& folder) {
            SampleTableWriter writer(folder / kSamples);
            ReadReport report;
            try {
                report = make(writer);
            } catch (const WriteError&) {
                throw;
            } catch (...) {
                rows_failed = true;
                throw;
            }
            found.table = writer.finish(report);
            write_file_atomically(folder / kKey, text);
        });
    } catch (const Error& error) {
        if (rows_failed) throw;
        not_kept(error.what());
        return make_unnamed();
    }
    return found;
}

// A writer holds its entry's lock before its folder is there: whose lock is free has no writer.
void SampleCache::remove_leftovers() const {
    for (const std::string& name : names_in(folder_)) {
        const std::string digest = digest_of_leftover(name);
        if (digest.empty()) continue;
        const std::optional<Lock> lock = Lock::take(folder_, digest, false);
        std::error_code ignored;
        if (lock) fs::remove_all(folder_ / name, ignored);
    }
}

std::string SampleCache::digest_of(const fs::path& file) {
    struct stat before {};
    if (!writable_ || ::stat(file.c_str(), &before) != 0 || before.st_size < kLargeFile)
        return content_digest(file);
    const auto state_of = [](const struct stat& status) {
        return std::to_string(status.st_size) + " " + std::to_string(nanoseconds(status.st_mtim)) +
               " " + std::to_string(nanoseconds(status.st_ctim));
    };
    const std::string state = state_of(before);
    const fs::path memo =
        folder_ / kFiles / (std::to_string(before.st_dev) + "-" + std::to_string(before.st_ino));
    std::ifstream in(memo);
    std::string known_state;
    std::string known_digest;
    if (std::getline(in, known_state) && std::getline(in, known_digest) && known_state == state &&
        is_digest(known_digest) && !in.eof()) {
        touch(memo);
        return known_digest;
    }
    const std::string digest = content_digest(file);
    // A file that is written again within the clock's step keeps its times: such a young one is read again.
    constexpr std::int64_t kYoung = 2000000000;
    timespec now{};
    ::clock_gettime(CLOCK_REALTIME, &now);
    const std::int64_t changed = std::max(nanoseconds(before.st_mtim), nanoseconds(before.st_ctim));
    struct stat after {};
    const bool same = ::stat(file.c_str(), &after) == 0 && after.st_ino == before.st_ino &&
                      state_of(after) == state;
    if (same && nanoseconds(now) - changed > kYoung) {
        try {
            write_file_atomically(memo, state + "\n" + digest + "\n");
        } catch (const Error&) {
            // It is read again next time.
        }
    }
    return digest;
}

std::vector<SampleCache::Entry> SampleCache::list() const {
    std::vector<Entry> entries;
    if (folder_.empty()) return entries;
    for (const std::string& name : names_in(folder_)) {
        if (!is_digest(name)) continue;
        const fs::path folder = folder_ / name;
        Entry entry;
        entry.digest = name;
        entry.bytes = bytes_in(folder);
        entry.last_used = time_of(folder / kKey);
        try {
            entry.key = Json::parse_file(folder / kKey);
            const SampleTable table(folder / kSamples);
            entry.samples = table.size();
            entry.source = table.report().file;
        } catch (const Error&) {
            // A damaged entry: there, and to be pruned.
        }
        entries.push_back(std::move(entry));
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
        return a.last_used != b.last_used ? a.last_used > b.last_used : a.digest < b.digest;
    });
    return entries;
}

std::vector<SampleCache::Entry> SampleCache::prune(std::int64_t seconds, std::int64_t bytes) {
    if (!writable_) throw Error(folder_.string() + ": cannot be written");
    remove_leftovers();
    const std::int64_t now = std::time(nullptr);
    std::vector<Entry> removed;
    std::int64_t kept = 0;
    for (Entry& entry : list()) {
        const bool is_old = seconds >= 0 && now - entry.last_used >= seconds;
        const bool is_beyond = bytes >= 0 && kept + entry.bytes > bytes;
        const std::optional<Lock> lock =
            is_old || is_beyond ? Lock::take(folder_, entry.digest, false) : std::nullopt;
        // Renamed first: whoever looks for it finds it whole or not at all.
        const fs::path aside = folder_ / ("." + entry.digest + ".tmp-prune");
        if (!lock || ::rename((folder_ / entry.digest).c_str(), aside.c_str()) != 0) {
            kept += entry.bytes;
            continue;
        }
        std::error_code ignored;
        fs::remove_all(aside, ignored);
        lock->remove_file();
        removed.push_back(std::move(entry));
    }
    for (const std::string& name : names_in(folder_ / kFiles)) {
        std::error_code ignored;
        const fs::path memo = folder_ / kFiles / name;
        if (seconds >= 0 && now - time_of(memo) >= seconds) fs::remove(memo, ignored);
    }
    return removed;
}

fs::path SampleCache::default_folder() {
    if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && *cache == '/')
        return fs::path(cache) / "garam" / "data";
    if (const char* home = std::getenv("HOME"); home != nullptr && *home != '\0')
        return fs::path(home) / ".cache" / "garam" / "data";
    return {};
}

}  // namespace garam
