// Copies and fills, blocking and queued.
#include <cstring>

#include "core.h"
#include "device.h"
#include "log.h"
#include "memory.h"
#include "stream.h"

// A program may tell how many bytes of its own memory are left from an address: see aclnn_emulator.h.
extern "C" size_t aclnnEmulatorHostRoom(const void *address) __attribute__((weak));

namespace emu {

namespace {

// One end of a copy.
struct End {
    char *address = nullptr;
    std::shared_ptr<Block> block;  // null for ordinary host memory
    bool device() const { return block != nullptr && block->device >= 0; }
};

// What the arguments come to: a status, or the bytes to move (0: nothing).
struct Plan {
    int code = 0;
    size_t count = 0;
    End to, from;
};

const char *side(bool device) { return device ? "device" : "host"; }

// Finds the memory of one end, checks that it is what the kind says, and bounds the count by the allocation.
void check_end(const char *api, const char *name, const void *address, int wanted_device, Plan &plan, End &end) {
    if (plan.code != 0) return;
    end.address = static_cast<char *>(const_cast<void *>(address));
    end.block = find_block(address);
    if (end.block != nullptr && end.block->freed.load()) {
        bool refused = violation(api, "%s %p lies in freed memory", name, address);
        plan.count = 0;
        if (refused) plan.code = 107000;
        return;
    }
    if (wanted_device >= 0 && end.device() != (wanted_device == 1)) {
        if (violation(api, "%s %p is %s memory, the copy kind says %s", name, address, side(end.device()),
                      side(wanted_device == 1))) {
            plan.code = 107000;
            return;
        }
    }
    if (end.block == nullptr) {
        size_t left = aclnnEmulatorHostRoom != nullptr ? aclnnEmulatorHostRoom(address) : plan.count;
        if (plan.count <= left) return;
        bool refused = violation(api, "%zu bytes at %s %p, but the host memory has %zu from there", plan.count, name,
                                 address, left);
        plan.count = left;
        if (refused) plan.code = 107000;
        return;
    }
    size_t start = static_cast<size_t>(end.address - end.block->base);
    size_t room = start < end.block->size ? end.block->size - start : 0;
    if (plan.count <= room) return;
    if (violation(api, "%zu bytes at %s %p, but its allocation has %zu from there", plan.count, name, address, room)) {
        plan.code = 107000;
        return;
    }
    size_t held = end.block->capacity - start;
    if (plan.count > held) plan.count = held;
}

int wanted(aclrtMemcpyKind kind, bool destination) {
    switch (kind) {
        case ACL_MEMCPY_HOST_TO_HOST: return 0;
        case ACL_MEMCPY_HOST_TO_DEVICE:
        case ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE: return destination ? 1 : 0;
        case ACL_MEMCPY_DEVICE_TO_HOST: return destination ? 0 : 1;
        case ACL_MEMCPY_DEVICE_TO_DEVICE: return 1;
        default: return -1;
    }
}

Plan plan_copy(const char *api, void *dst, size_t dest_max, const void *src, size_t count, aclrtMemcpyKind kind) {
    Plan plan;
    if (count == 0) return plan;
    if (dst == nullptr || src == nullptr) {
        plan.code = fail(api, 100000, "%s is null", dst == nullptr ? "dst" : "src");
    } else if (kind < ACL_MEMCPY_HOST_TO_HOST || kind > ACL_MEMCPY_HOST_TO_BUF_TO_DEVICE) {
        plan.code = fail(api, 100000, "copy kind %d is not accepted", kind);
    } else if (count > dest_max) {
        plan.code = fail(api, 107000, "count %zu is more than destMax %zu", count, dest_max);
    } else if (dst != src) {
        plan.count = count;
        check_end(api, "dst", dst, wanted(kind, true), plan, plan.to);
        check_end(api, "src", src, wanted(kind, false), plan, plan.from);
    }
    return plan;
}

const void *device_address(const End &end) { return end.device() ? end.address : nullptr; }

void log(const Plan &plan) { log_copy(device_address(plan.to), device_address(plan.from), plan.count); }

// A blocking copy is not ordered after streams: overwriting what queued work uses is a race.
bool races(const char *api, const End &to) {
    return to.block != nullptr && to.block->in_flight() &&
           violation(api, "%p is still used by queued work: synchronise first", static_cast<void *>(to.address));
}

struct CopyTask : Task {
    std::shared_ptr<Block> to_block, from_block;
    std::vector<char> staged;  // pageable source, taken when the copy was asked for
    char *to = nullptr;
    const char *from = nullptr;
    size_t count = 0;
    int run(std::string &) override {
        memmove(to, staged.empty() ? from : staged.data(), count);
        return 0;
    }
};

struct FillTask : Task {
    std::shared_ptr<Block> block;
    char *to = nullptr;
    int value = 0;
    size_t count = 0;
    int run(std::string &) override {
        memset(to, value, count);
        return 0;
    }
};

void enqueue(const std::shared_ptr<Stream> &stream, std::unique_ptr<Task> task, std::initializer_list<Block *> used,
             bool wait) {
    Mark mark;
    std::vector<Mark> known;  // to have run once the task has
    {
        auto lock = stream->lock();
        mark = stream->next_mark();
        if (wait) known = stream->history_locked();
        for (Block *block : used) {
            if (block != nullptr) block->use(mark);
        }
        stream->push_locked(std::move(task));
    }
    if (!wait) return;
    merge(known, mark);
    stream->wait_for(mark.sequence, Deadline::max());
    observe(known);
}

Plan plan_fill(const char *api, void *pointer, size_t max_count, size_t count) {
    Plan plan;
    if (count == 0) return plan;
    if (pointer == nullptr) {
        plan.code = fail(api, 100000, "devPtr is null");
    } else if (count > max_count) {
        plan.code = fail(api, 107000, "count %zu is more than maxCount %zu", count, max_count);
    } else {
        plan.count = count;
        check_end(api, "devPtr", pointer, -1, plan, plan.to);
    }
    return plan;
}

}  // namespace

}  // namespace emu

using namespace emu;

aclError aclrtMemcpy(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind) {
    EMU_ENTER_STATUS();
    if (count == 0) return 0;
    if (current_context(__func__) == nullptr) return 107002;
    Plan plan = plan_copy(__func__, dst, destMax, src, count, kind);
    if (plan.code != 0 || plan.count == 0) return plan.code;
    if (races(__func__, plan.to)) return 107000;
    memmove(dst, src, plan.count);
    log(plan);
    return 0;
}

aclError aclrtMemcpyAsync(void *dst, size_t destMax, const void *src, size_t count, aclrtMemcpyKind kind,
                          aclrtStream stream) {
    EMU_ENTER_STATUS();
    int code = 0;
    std::shared_ptr<Stream> on = resolve_stream(__func__, stream, code);
    if (on == nullptr) return code;
    if (kind == ACL_MEMCPY_HOST_TO_HOST) return fail(__func__, 207000, "host to host cannot be queued");
    Plan plan = plan_copy(__func__, dst, destMax, src, count, kind);
    if (plan.code != 0 || plan.count == 0) return plan.code;
    auto task = std::make_unique<CopyTask>();
    task->to_block = plan.to.block;
    task->from_block = plan.from.block;
    task->to = plan.to.address;
    task->from = plan.from.address;
    task->count = plan.count;
    if (plan.from.block == nullptr) task->staged.assign(task->from, task->from + plan.count);
    // pageable memory may be gone when the call returns, so the copy into it is finished by then
    enqueue(on, std::move(task), {plan.to.block.get(), plan.from.block.get()}, plan.to.block == nullptr);
    log(plan);
    return 0;
}

aclError aclrtMemset(void *devPtr, size_t maxCount, int32_t value, size_t count) {
    EMU_ENTER_STATUS();
    if (count == 0) return 0;
    if (current_context(__func__) == nullptr) return 107002;
    Plan plan = plan_fill(__func__, devPtr, maxCount, count);
    if (plan.code != 0 || plan.count == 0) return plan.code;
    if (races(__func__, plan.to)) return 107000;
    memset(devPtr, value & 0xff, plan.count);
    log_fill(device_address(plan.to), plan.count);
    return 0;
}

aclError aclrtMemsetAsync(void *devPtr, size_t maxCount, int32_t value, size_t count, aclrtStream stream) {
    EMU_ENTER_STATUS();
    int code = 0;
    std::shared_ptr<Stream> on = resolve_stream(__func__, stream, code);
    if (on == nullptr) return code;
    Plan plan = plan_fill(__func__, devPtr, maxCount, count);
    if (plan.code != 0 || plan.count == 0) return plan.code;
    auto task = std::make_unique<FillTask>();
    task->block = plan.to.block;
    task->to = plan.to.address;
    task->value = value & 0xff;
    task->count = plan.count;
    enqueue(on, std::move(task), {plan.to.block.get()}, plan.to.block == nullptr);
    log_fill(device_address(plan.to), plan.count);
    return 0;
}
