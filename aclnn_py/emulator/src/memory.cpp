#include "memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <shared_mutex>

#include "core.h"
#include "device.h"
#include "log.h"
#include "stream.h"

#if defined(__SANITIZE_ADDRESS__)
#define EMU_ASAN 1
#else
#define EMU_ASAN 0
#endif

namespace emu {

namespace {

constexpr size_t kGuard = 4096;
constexpr size_t kMapped = size_t{1} << 20;   // from here on mapped, not malloc'ed
constexpr size_t kPoisoned = size_t{1} << 16;  // bytes poisoned at either end of a large block
constexpr size_t kMostUses = 256;               // of a block that are told apart
constexpr size_t kRestingBytes = size_t{32} << 20;
constexpr size_t kRestingBlocks = 512;

struct Memory {
    std::shared_mutex mutex;
    std::map<uintptr_t, std::shared_ptr<Block>> blocks;  // by base; live and resting
    std::deque<std::shared_ptr<Block>> resting;          // freed, addresses kept so that late uses are noticed
    size_t resting_bytes = 0;
    std::atomic<uint64_t> used[64] = {};
};

Memory &memory() {
    static Memory *instance = new Memory;
    return *instance;
}

size_t round_up(size_t n, size_t to) { return (n + to - 1) / to * to; }

void poison(char *base, size_t size, int pattern) {
    if (size <= 2 * kPoisoned) {
        memset(base, pattern, size);
    } else {
        memset(base, pattern, kPoisoned);
        memset(base + size - kPoisoned, pattern, kPoisoned);
    }
}

size_t resting_cost(const Block &block) { return block.capacity < kMapped ? block.capacity : 0; }

std::shared_ptr<Block> find_locked(const void *address) {
    auto where = reinterpret_cast<uintptr_t>(address);
    auto it = memory().blocks.upper_bound(where);
    if (it == memory().blocks.begin()) return nullptr;
    --it;
    return where < it->first + it->second->capacity ? it->second : nullptr;
}

aclError allocate(const char *api, void **out, size_t size, int device, size_t padding) {
    if (out == nullptr) return fail(api, 100000, "the pointer to fill is null");
    if (size == 0) return fail(api, 100000, "size is 0, must be at least 1");
    auto block = std::make_shared<Block>();
    block->device = device;
    block->size = size;
    if (size > (size_t{1} << 56)) return fail(api, 207001, "cannot allocate %zu bytes", size);
    block->padded = round_up(size, 32) + padding;
    if (device >= 0) {
        uint64_t before = memory().used[device].fetch_add(block->padded);
        uint64_t limit = settings().memory;
        if (before + block->padded > limit) {
            memory().used[device].fetch_sub(block->padded);
            return fail(api, 207001, "device %d has %llu of %llu bytes free, %zu were asked for", device,
                        static_cast<unsigned long long>(limit - std::min<uint64_t>(before, limit)),
                        static_cast<unsigned long long>(limit), block->padded);
        }
    }
    if (!block->allocate()) {
        if (device >= 0) memory().used[device].fetch_sub(block->padded);
        return fail(api, 207001, "the host has no %zu bytes", block->padded);
    }
    if (device >= 0) {
        counters().device_bytes.fetch_add(static_cast<int64_t>(size));
        counters().device_allocations.fetch_add(1);
    } else {
        counters().host_bytes.fetch_add(static_cast<int64_t>(size));
        counters().host_allocations.fetch_add(1);
    }
    *out = block->base;
    if (device >= 0) log_allocation(block->base, size);
    std::unique_lock<std::shared_mutex> lock(memory().mutex);
    memory().blocks[reinterpret_cast<uintptr_t>(block->base)] = std::move(block);
    return 0;
}

// The block leaves the accounts; its addresses rest for a while.
void release(const std::shared_ptr<Block> &block) {
    if (block->device >= 0) {
        memory().used[block->device].fetch_sub(block->padded);
        counters().device_bytes.fetch_sub(static_cast<int64_t>(block->size));
        counters().device_allocations.fetch_sub(1);
    } else {
        counters().host_bytes.fetch_sub(static_cast<int64_t>(block->size));
        counters().host_allocations.fetch_sub(1);
    }
    if (!block->running()) block->retire();
    std::vector<std::shared_ptr<Block>> dropped;  // destroyed outside the lock
    std::unique_lock<std::shared_mutex> lock(memory().mutex);
    Memory &m = memory();
    m.resting.push_back(block);
    m.resting_bytes += resting_cost(*block);
    while (m.resting.size() > kRestingBlocks || m.resting_bytes > kRestingBytes) {
        std::shared_ptr<Block> oldest = m.resting.front();
        m.resting.pop_front();
        m.resting_bytes -= resting_cost(*oldest);
        m.blocks.erase(reinterpret_cast<uintptr_t>(oldest->base));
        dropped.push_back(std::move(oldest));
    }
}

aclError free_memory(const char *api, void *pointer, bool host) {
    if (pointer == nullptr) return fail(api, 100000, "the pointer is null");
    std::shared_ptr<Block> block = find_block(pointer);
    if (block == nullptr || block->base != pointer || (block->device < 0) != host) {
        violation(api, "%p was not allocated by %s", pointer, host ? "aclrtMallocHost" : "aclrtMalloc");
        return fail(api, 107000, "%p was not allocated by %s", pointer, host ? "aclrtMallocHost" : "aclrtMalloc");
    }
    if (block->freed.load()) {
        if (violation(api, "%p is freed already", pointer)) return 107000;
        return fail(api, 107000, "%p is freed already", pointer);
    }
    if (block->in_flight() && violation(api, "%p (%zu bytes) is still needed by queued work: synchronise first",
                                        pointer, block->size)) {
        return 107000;
    }
    if (block->freed.exchange(true)) return fail(api, 107000, "%p is freed already", pointer);
    release(block);
    return 0;
}

aclError device_malloc(const char *api, void **out, size_t size, aclrtMemMallocPolicy policy, bool align_only) {
    Context *context = current_context(api);
    if (context == nullptr) return 107002;
    bool bare = align_only || current_config().product == Product::P950 ||
                policy == ACL_MEM_MALLOC_HUGE1G_ONLY || policy == ACL_MEM_MALLOC_HUGE1G_ONLY_P2P;
    return allocate(api, out, size, context->device, bare ? 0 : 32);
}

}  // namespace

void merge(std::vector<Mark> &marks, const Mark &mark) {
    for (Mark &have : marks) {
        if (have.progress == mark.progress) {
            have.sequence = std::max(have.sequence, mark.sequence);
            return;
        }
    }
    marks.push_back(mark);
}

bool Block::allocate() {
    mapped_ = !EMU_ASAN && padded >= kMapped;
    // under AddressSanitizer its own red zones catch what the guard would hide
    capacity = EMU_ASAN ? padded : mapped_ ? round_up(padded + kGuard, kGuard) : padded + kGuard;
    if (mapped_) {
        void *area = mmap(nullptr, capacity, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                          -1, 0);
        if (area == MAP_FAILED) return false;
        base = static_cast<char *>(area);
        if (capacity >= (size_t{4} << 20)) madvise(base, capacity, MADV_HUGEPAGE);
    } else {
        base = static_cast<char *>(aligned_alloc(64, round_up(capacity, 64)));
        if (base == nullptr) return false;
    }
    poison(base, padded, 0xA5);
    return true;
}

void Block::retire() {
    if (mapped_) {
        mmap(base, capacity, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    } else {
        poison(base, padded, 0xDD);
    }
}

Block::~Block() {
    if (base == nullptr) return;
    if (mapped_) {
        munmap(base, capacity);
    } else {
        free(base);
    }
}

void Block::forget_observed() {
    uses_.erase(std::remove_if(uses_.begin(), uses_.end(),
                               [](const Use &u) { return u.mark.progress->observed.load() >= u.mark.sequence; }),
                uses_.end());
}

void Block::use(const Mark &mark, Range range) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (uses_.size() >= kMostUses) forget_observed();
    bool full = uses_.size() >= kMostUses;  // then one range has to do for all of a stream's
    for (Use &use : uses_) {
        if (use.mark.progress != mark.progress) continue;
        if (!full && (use.range.begin != range.begin || use.range.end != range.end)) continue;
        use.mark.sequence = std::max(use.mark.sequence, mark.sequence);
        use.range.begin = std::min(use.range.begin, range.begin);
        use.range.end = std::max(use.range.end, range.end);
        return;
    }
    uses_.push_back({mark, range});
}

bool Block::in_flight(Range range) {
    std::lock_guard<std::mutex> lock(mutex_);
    forget_observed();
    return std::any_of(uses_.begin(), uses_.end(),
                       [&](const Use &u) { return u.range.begin < range.end && range.begin < u.range.end; });
}

bool Block::running() {
    std::lock_guard<std::mutex> lock(mutex_);
    return std::any_of(uses_.begin(), uses_.end(),
                       [](const Use &u) { return u.mark.progress->done.load() < u.mark.sequence; });
}

std::shared_ptr<Block> find_block(const void *address) {
    std::shared_lock<std::shared_mutex> lock(memory().mutex);
    return find_locked(address);
}

void free_device_blocks(int device) {
    std::vector<std::shared_ptr<Block>> found;
    {
        std::shared_lock<std::shared_mutex> lock(memory().mutex);
        for (auto &entry : memory().blocks) {
            if (entry.second->device == device && !entry.second->freed.exchange(true)) found.push_back(entry.second);
        }
    }
    for (auto &block : found) release(block);
}

}  // namespace emu

using namespace emu;

aclError aclrtMalloc(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    EMU_ENTER_STATUS();
    return device_malloc(__func__, devPtr, size, policy, false);
}

aclError aclrtMallocAlign32(void **devPtr, size_t size, aclrtMemMallocPolicy policy) {
    EMU_ENTER_STATUS();
    return device_malloc(__func__, devPtr, size, policy, true);
}

aclError aclrtMallocHost(void **hostPtr, size_t size) {
    EMU_ENTER_STATUS();
    if (current_context(__func__) == nullptr) return 107002;
    return allocate(__func__, hostPtr, size, -1, 0);
}

aclError aclrtFree(void *devPtr) {
    int injected = enter(__func__);
    aclError code = free_memory(__func__, devPtr, false);
    return injected != 0 ? injected : code;
}

aclError aclrtFreeHost(void *hostPtr) {
    int injected = enter(__func__);
    aclError code = free_memory(__func__, hostPtr, true);
    return injected != 0 ? injected : code;
}

aclError aclrtFreeWithDevSync(void *devPtr) {
    int injected = enter(__func__);
    aclError code = synchronize_all(__func__, -1);
    if (code == 0) code = free_memory(__func__, devPtr, false);
    return injected != 0 ? injected : code;
}

aclError aclrtFreeHostWithDevSync(void *hostPtr) {
    int injected = enter(__func__);
    aclError code = synchronize_all(__func__, -1);
    if (code == 0) code = free_memory(__func__, hostPtr, true);
    return injected != 0 ? injected : code;
}

aclError aclrtGetMemInfo(aclrtMemAttr attr, size_t *free, size_t *total) {
    EMU_ENTER_STATUS();
    if (free == nullptr || total == nullptr) return fail(__func__, 100000, "a pointer to fill is null");
    if (attr < ACL_DDR_MEM || attr > ACL_MEM_P2P_HUGE1G) return fail(__func__, 107000, "unknown attribute %d", attr);
    Context *context = current_context(__func__);
    if (context == nullptr) return 107002;
    *total = settings().memory;
    *free = *total - memory().used[context->device].load();
    return 0;
}
