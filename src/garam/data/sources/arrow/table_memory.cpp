#include "garam/data/sources/arrow/table_memory.h"

#include <arrow/memory_pool.h>
#include <arrow/status.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

namespace garam {
namespace {

constexpr std::int64_t kLeastPoolBytes = std::int64_t{256} << 20;
constexpr std::int64_t kMostPoolBytes = std::int64_t{4} << 30;
// Batches of text and numbers that people keep are packed to a tenth, of one value over and over to a thousandth.
constexpr std::int64_t kUnpackedPerByte = 1024;
// Below this the general allocator is quicker, and what it keeps is little.
constexpr std::int64_t kMappedBytes = std::int64_t{64} << 10;
constexpr std::int64_t kPageBytes = 4096;

bool is_mapped(std::int64_t size, std::int64_t alignment) {
    return size >= kMappedBytes && alignment <= kPageBytes;
}

std::size_t whole_pages(std::int64_t size) {
    return static_cast<std::size_t>((size + kPageBytes - 1) / kPageBytes * kPageBytes);
}

// Mappings, most of them in use. One may be larger than what it is used for: a buffer that is built grows in
// steps and shrinks in the end, and the next one grows into the same pages. What is mapped and not used, in
// such rooms and in the mappings kept, is at most kKeptTableBytes.
class Mappings {
  public:
    // Null: there is no memory.
    std::uint8_t* allocate(std::int64_t size) {
        const std::lock_guard lock(mutex_);
        if (const auto kept = best_kept(size); kept != kept_.end()) return use(kept, size);
        void* const data = ::mmap(nullptr, whole_pages(size), PROT_READ | PROT_WRITE,
                                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED) return nullptr;
        auto* const bytes = static_cast<std::uint8_t*>(data);
        used_[bytes] = whole_pages(size);
        unused_ += static_cast<std::int64_t>(whole_pages(size)) - size;
        return bytes;
    }

    std::uint8_t* reallocate(std::uint8_t* data, std::int64_t old_size, std::int64_t size) {
        const std::lock_guard lock(mutex_);
        std::size_t& bytes = used_.at(data);
        if (whole_pages(size) <= bytes) {
            unused_ += old_size - size;
            give_back();
            if (unused_ > kKeptTableBytes) {
                ::munmap(data + whole_pages(size), bytes - whole_pages(size));
                unused_ -= static_cast<std::int64_t>(bytes - whole_pages(size));
                bytes = whole_pages(size);
            }
            return data;
        }
        if (const auto kept = best_kept(size); kept != kept_.end()) {
            std::uint8_t* const larger = use(kept, size);
            std::memcpy(larger, data, static_cast<std::size_t>(old_size));
            keep(data, old_size);
            return larger;
        }
        void* const moved = ::mremap(data, bytes, whole_pages(size), MREMAP_MAYMOVE);
        if (moved == MAP_FAILED) return nullptr;
        unused_ -= static_cast<std::int64_t>(bytes) - old_size;
        used_.erase(data);
        auto* const larger = static_cast<std::uint8_t*>(moved);
        used_[larger] = whole_pages(size);
        unused_ += static_cast<std::int64_t>(whole_pages(size)) - size;
        give_back();
        return larger;
    }

    void free(std::uint8_t* data, std::int64_t size) {
        const std::lock_guard lock(mutex_);
        keep(data, size);
    }

    void release() {
        const std::lock_guard lock(mutex_);
        while (!kept_.empty())
            unmap_oldest();
    }

  private:
    struct Kept {
        std::uint8_t* data;
        std::size_t bytes;
    };
    using KeptList = std::vector<Kept>;

    // The smallest that is large enough; of equal ones the one that was freed last, which is the likeliest to
    // lie in the processor's caches.
    KeptList::iterator best_kept(std::int64_t size) {
        auto best = kept_.end();
        for (auto it = kept_.begin(); it != kept_.end(); ++it)
            if (it->bytes >= static_cast<std::size_t>(size) &&
                (best == kept_.end() || it->bytes <= best->bytes))
                best = it;
        return best;
    }
    std::uint8_t* use(KeptList::iterator kept, std::int64_t size) {
        std::uint8_t* const data = kept->data;
        used_[data] = kept->bytes;
        unused_ -= size;
        kept_.erase(kept);
        return data;
    }
    void keep(std::uint8_t* data, std::int64_t size) {
        const auto used = used_.find(data);
        kept_.push_back({data, used->second});
        used_.erase(used);
        unused_ += size;
        give_back();
    }
    void give_back() {
        while (unused_ > kKeptTableBytes && !kept_.empty())
            unmap_oldest();
    }
    void unmap_oldest() {
        ::munmap(kept_.front().data, kept_.front().bytes);
        unused_ -= static_cast<std::int64_t>(kept_.front().bytes);
        kept_.erase(kept_.begin());
    }

    std::mutex mutex_;
    std::unordered_map<std::uint8_t*, std::size_t> used_;  // bytes mapped
    KeptList kept_;                                        // in the order of their freeing
    std::int64_t unused_ = 0;
};

class TableMemory : public arrow::MemoryPool {
  public:
    using arrow::MemoryPool::Allocate;
    using arrow::MemoryPool::Free;
    using arrow::MemoryPool::Reallocate;

    arrow::Status Allocate(std::int64_t size, std::int64_t alignment, std::uint8_t** out) override {
        if (is_mapped(size, alignment)) {
            std::uint8_t* const data = mappings_.allocate(size);
            if (data == nullptr) return out_of_memory(size);
            *out = data;
        } else {
            ARROW_RETURN_NOT_OK(small_->Allocate(size, alignment, out));
        }
        statistics_.DidAllocateBytes(size);
        return arrow::Status::OK();
    }

    arrow::Status Reallocate(std::int64_t old_size, std::int64_t new_size, std::int64_t alignment,
                             std::uint8_t** ptr) override {
        const bool was_mapped = is_mapped(old_size, alignment);
        if (was_mapped != is_mapped(new_size, alignment)) {
            std::uint8_t* moved = nullptr;
            ARROW_RETURN_NOT_OK(Allocate(new_size, alignment, &moved));
            std::memcpy(moved, *ptr, static_cast<std::size_t>(std::min(old_size, new_size)));
            Free(*ptr, old_size, alignment);
            *ptr = moved;
            return arrow::Status::OK();
        }
        if (was_mapped) {
            std::uint8_t* const data = mappings_.reallocate(*ptr, old_size, new_size);
            if (data == nullptr) return out_of_memory(new_size);
            *ptr = data;
        } else {
            ARROW_RETURN_NOT_OK(small_->Reallocate(old_size, new_size, alignment, ptr));
        }
        statistics_.DidReallocateBytes(old_size, new_size);
        return arrow::Status::OK();
    }

    void Free(std::uint8_t* buffer, std::int64_t size, std::int64_t alignment) override {
        if (is_mapped(size, alignment))
            mappings_.free(buffer, size);
        else
            small_->Free(buffer, size, alignment);
        statistics_.DidFreeBytes(size);
    }

    void ReleaseUnused() override {
        mappings_.release();
        small_->ReleaseUnused();
    }
    std::int64_t bytes_allocated() const override { return statistics_.bytes_allocated(); }
    std::int64_t max_memory() const override { return statistics_.max_memory(); }
    std::int64_t total_bytes_allocated() const override {
        return statistics_.total_bytes_allocated();
    }
    std::int64_t num_allocations() const override { return statistics_.num_allocations(); }
    std::string backend_name() const override { return small_->backend_name(); }

  private:
    static arrow::Status out_of_memory(std::int64_t size) {
        return arrow::Status::OutOfMemory("no memory for ", size, " bytes of a table");
    }

    arrow::MemoryPool* const small_ = arrow::default_memory_pool();
    arrow::internal::MemoryPoolStats statistics_;
    Mappings mappings_;
};

}  // namespace

arrow::MemoryPool* table_memory(std::size_t file_bytes) {
    // Never destroyed: batches may outlive everything.
#ifdef __SANITIZE_ADDRESS__
    // Which knows the bounds of what its own allocator hands out.
    static arrow::MemoryPool* const whole = arrow::system_memory_pool();
#else
    static arrow::MemoryPool* const whole = new TableMemory;
#endif
    static const auto& bounded = *[] {
        auto* const pools = new std::vector<arrow::MemoryPool*>;
        for (std::int64_t bytes = kLeastPoolBytes; bytes <= kMostPoolBytes; bytes *= 2)
            pools->push_back(new arrow::CappedMemoryPool(whole, bytes));
        return pools;
    }();
    std::size_t pool = 0;
    while (pool + 1 < bounded.size() &&
           file_bytes > static_cast<std::size_t>((kLeastPoolBytes << pool) / kUnpackedPerByte))
        ++pool;
    return bounded[pool];
}

}  // namespace garam
