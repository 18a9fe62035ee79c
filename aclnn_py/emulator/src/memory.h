// Device and pinned host memory: plain host memory, padded, poisoned and found by address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace emu {

// How far a stream has come (done), and how far the host knows it to have come (observed: it has waited).
struct Progress {
    std::atomic<uint64_t> done{0};
    std::atomic<uint64_t> observed{0};

    void observe(uint64_t sequence) {
        uint64_t seen = observed.load();
        while (seen < sequence && !observed.compare_exchange_weak(seen, sequence)) {
        }
    }
};

// A point in a stream's order.
struct Mark {
    std::shared_ptr<Progress> progress;
    uint64_t sequence = 0;
};

// Replaces or adds: a later point of the same stream swallows an earlier one.
void merge(std::vector<Mark> &marks, const Mark &mark);

// Bytes of a block, whole by default. Allocators such as torch's hand out many parts of one block.
struct Range {
    size_t begin = 0;
    size_t end = SIZE_MAX;
};

class Block {
  public:
    char *base = nullptr;
    size_t size = 0;      // as asked for
    size_t padded = 0;    // as CANN accounts for it
    size_t capacity = 0;  // readable and writable bytes
    int device = -1;      // -1: pinned host memory
    std::atomic<bool> freed{false};

    ~Block();
    bool allocate();
    void retire();  // poison, and give large pages back; the address range stays taken

    void use(const Mark &mark, Range range);
    bool in_flight(Range range = {});   // queued work that the host has not waited for
    bool running();                     // queued work that has not run

  private:
    bool mapped_ = false;
    std::mutex mutex_;
    struct Use {
        Mark mark;
        Range range;
    };
    std::vector<Use> uses_;

    void forget_observed();
};

// The block that contains the address, live or recently freed; nullptr for any other memory.
std::shared_ptr<Block> find_block(const void *address);

void free_device_blocks(int device);

}  // namespace emu
