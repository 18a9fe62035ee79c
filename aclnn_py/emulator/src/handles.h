// Tables of live handles. A handle is the address of a slot in a reserved address range, so that any pointer can
// be checked without touching it, and a destroyed handle is told from one that never existed.
#pragma once

#include <sys/mman.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <vector>

#include "core.h"

namespace emu {

template <class T>
class HandleTable {
  public:
    explicit HandleTable(std::atomic<int64_t> &live, size_t capacity = size_t{1} << 22) : live_(live), per_(capacity / kShards) {
        void *memory = mmap(nullptr, kShards * per_ * sizeof(Slot), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        base_ = memory == MAP_FAILED ? nullptr : static_cast<Slot *>(memory);
        if (base_ == nullptr) per_ = 0;
    }

    // The new handle, or nullptr when the table is full.
    void *add(T *object) {
        size_t shard = thread_state().id % kShards;
        Shard &s = shards_[shard];
        Slot *slot = nullptr;
        {
            std::lock_guard<std::mutex> lock(s.mutex);
            // a slot rests before it is used again, so that a stale handle is noticed
            if (s.free.size() > kRest || (s.used == per_ && !s.free.empty())) {
                slot = s.free.front();
                s.free.pop_front();
            } else if (s.used < per_) {
                slot = base_ + shard * per_ + s.used++;
            } else {
                return nullptr;
            }
        }
        slot->generation.fetch_add(1, std::memory_order_relaxed);
        slot->object.store(object, std::memory_order_release);
        live_.fetch_add(1, std::memory_order_relaxed);
        return slot;
    }

    // The object behind a handle, nullptr for a dead or foreign one.
    T *get(const void *handle, uint32_t *generation = nullptr) const {
        const Slot *slot = find(handle);
        if (slot == nullptr) return nullptr;
        T *object = slot->object.load(std::memory_order_acquire);
        if (generation != nullptr) *generation = slot->generation.load(std::memory_order_relaxed);
        return object;
    }

    T *get_same(const void *handle, uint32_t generation) const {
        uint32_t now = 0;
        T *object = get(handle, &now);
        return now == generation ? object : nullptr;
    }

    // Takes the object out; exactly one of several callers gets it.
    T *remove(const void *handle) {
        Slot *slot = const_cast<Slot *>(find(handle));
        if (slot == nullptr) return nullptr;
        T *object = slot->object.exchange(nullptr, std::memory_order_acq_rel);
        if (object == nullptr) return nullptr;
        live_.fetch_sub(1, std::memory_order_relaxed);
        Shard &s = shards_[static_cast<size_t>(slot - base_) / per_];
        std::lock_guard<std::mutex> lock(s.mutex);
        s.free.push_back(slot);
        return object;
    }

    const char *describe(const void *handle) const {
        return find(handle) != nullptr ? "already destroyed" : "no such handle";
    }

    std::vector<void *> all() {
        std::vector<void *> out;
        for (size_t i = 0; i < kShards; ++i) {
            std::lock_guard<std::mutex> lock(shards_[i].mutex);
            for (size_t j = 0; j < shards_[i].used; ++j) {
                Slot *slot = base_ + i * per_ + j;
                if (slot->object.load(std::memory_order_acquire) != nullptr) out.push_back(slot);
            }
        }
        return out;
    }

  private:
    struct Slot {
        std::atomic<T *> object;
        std::atomic<uint32_t> generation;
    };
    struct Shard {
        std::mutex mutex;
        std::deque<Slot *> free;
        size_t used = 0;
    };
    static constexpr size_t kShards = 8;
    static constexpr size_t kRest = 512;

    const Slot *find(const void *handle) const {
        auto address = reinterpret_cast<uintptr_t>(handle);
        auto first = reinterpret_cast<uintptr_t>(base_);
        if (address < first || address >= first + kShards * per_ * sizeof(Slot)) return nullptr;
        if ((address - first) % sizeof(Slot) != 0) return nullptr;
        const Slot *slot = static_cast<const Slot *>(handle);
        return slot->generation.load(std::memory_order_relaxed) == 0 ? nullptr : slot;
    }

    std::atomic<int64_t> &live_;
    size_t per_;
    Slot *base_ = nullptr;
    mutable Shard shards_[kShards];
};

}  // namespace emu
