// From stage two to the stream: which memory a call touches, and the task that runs its kernel.
#include <algorithm>
#include <cstring>
#include <exception>
#include <thread>

#include "executor.h"

namespace emu {

namespace {

// A buffer that is smaller than its tensor says, in tolerant mode: the kernel works on a full-sized copy.
struct Bounce {
    size_t operand;
    int64_t offset;  // of the part that exists, within the copy
    char *real;
    size_t held;
    std::vector<char> copy, before;
};

struct KernelTask : Task {
    const Op *op = nullptr;
    Config config;
    std::vector<Arg> args;
    std::vector<Operand> operands;
    std::vector<std::shared_ptr<Block>> blocks;
    std::vector<Range> ranges;  // of the blocks, one each
    std::vector<Bounce> bounces;
    std::unique_ptr<Recorder> recorder;
    int broken = 0;  // the launch already knows that the device would fail
    std::string broken_text;

    int run(std::string &text) override {
        if (uint32_t delay = kernel_delay_ms()) std::this_thread::sleep_for(std::chrono::milliseconds(delay));
        if (int code = injected_async_fault(op->name)) {
            text = std::string(op->name) + ": injected failure of the kernel";
            return code;
        }
        if (broken != 0) {
            text = broken_text;
            return broken;
        }
        counters().launches.fetch_add(1);
        for (Bounce &bounce : bounces) bounce_in(bounce);
        if (recorder != nullptr) recorder->before(args);
        TaskFault fault;
        ThreadState &state = thread_state();
        state.task = &fault;
        int code = 0;
        try {
            op->run(args, config);
            code = fault.code.load();
            if (code != 0) text = std::string(op->name) + ": the data broke a rule (see the reported violation)";
        } catch (const std::bad_alloc &) {
            code = 207001;
            text = std::string(op->name) + ": the host has not enough memory for the kernel";
        } catch (const std::exception &error) {
            code = 507015;
            text = std::string(op->name) + ": the kernel failed: " + error.what();
        }
        state.task = nullptr;
        if (recorder != nullptr) recorder->after(args, code);
        for (Bounce &bounce : bounces) bounce_out(bounce);
        return code;
    }

    void bounce_in(Bounce &bounce) {
        Operand &operand = operands[bounce.operand];
        bounce.copy.assign(static_cast<size_t>(operand.end - operand.lowest), '\xA5');
        if (bounce.held > 0) memcpy(bounce.copy.data() + bounce.offset, bounce.real, bounce.held);
        bounce.before = bounce.copy;
        place(args, operand, bounce.copy.data() - operand.lowest);
    }

    // Only what the kernel wrote goes back: another operand may share the buffer.
    void bounce_out(Bounce &bounce) {
        for (size_t i = 0; i < bounce.held; ++i) {
            size_t at = static_cast<size_t>(bounce.offset) + i;
            if (bounce.copy[at] != bounce.before[at]) bounce.real[i] = bounce.copy[at];
        }
    }
};

std::string parameter_name(const Executor &executor, const Operand &operand) {
    const char *at = executor.parameters;
    for (int i = 0; i < operand.argument && at != nullptr; ++i) {
        at = strchr(at, ',');
        if (at != nullptr) ++at;
    }
    std::string name = at == nullptr ? "?" : std::string(at, strcspn(at, ","));
    return operand.item < 0 ? name : name + "[" + std::to_string(operand.item) + "]";
}

// The launch of one operand. True: refused (strict), the text is set.
class Placement {
  public:
    Placement(const char *api, const Executor &executor, KernelTask &task, int device)
        : api_(api), executor_(executor), task_(task), device_(device) {}

    bool check(size_t index) {
        Operand &operand = task_.operands[index];
        if (refresh(operand)) return true;
        if (operand.end == operand.lowest) return false;  // no elements
        std::shared_ptr<Block> block = operand.base == nullptr ? nullptr : find_block(operand.base);
        if (block == nullptr || block->freed.load()) {
            const char *what = operand.base == nullptr ? "null" : block == nullptr ? "no device memory" : "freed memory";
            if (violation(api_, "%s: the data address %p is %s", name(operand).c_str(), operand.base, what)) return true;
            task_.broken = 507035;
            task_.broken_text = std::string(api_) + ": " + name(operand) + ": the data address is " + what;
            return false;
        }
        if (block->device != device_ &&
            violation(api_, "%s: %p is memory of %s, the stream is on device %d", name(operand).c_str(), operand.base,
                      block->device < 0 ? "the host" : "another device", device_)) {
            return true;
        }
        if (reinterpret_cast<uintptr_t>(operand.base) % 32 != 0 &&
            violation(api_, "%s: the data address %p is not a multiple of 32 bytes", name(operand).c_str(),
                      operand.base)) {
            return true;
        }
        auto start = static_cast<char *>(operand.base) - block->base;
        int64_t low = start + operand.lowest, end = start + operand.end;
        if (low < 0 || end > static_cast<int64_t>(block->size)) {
            if (violation(api_, "%s: the tensor spans bytes %lld to %lld of an allocation of %zu",
                          name(operand).c_str(), static_cast<long long>(low), static_cast<long long>(end),
                          block->size)) {
                return true;
            }
            auto capacity = static_cast<int64_t>(block->capacity);
            if (low < 0 || end > capacity) {
                int64_t from = std::clamp<int64_t>(low, 0, capacity), to = std::clamp<int64_t>(end, 0, capacity);
                Bounce bounce;
                bounce.operand = index;
                bounce.offset = from - low;
                bounce.real = block->base + from;
                bounce.held = static_cast<size_t>(std::max<int64_t>(to - from, 0));
                if (bounce.held == 0) bounce.offset = 0;
                task_.bounces.push_back(std::move(bounce));
            }
        }
        task_.blocks.push_back(std::move(block));
        task_.ranges.push_back({static_cast<size_t>(std::max<int64_t>(low, 0)), static_cast<size_t>(std::max<int64_t>(end, 0))});
        return false;
    }

  private:
    // The executor points at the caller's aclTensor, and reads its address at the launch; one from the op cache
    // took the addresses at stage one.
    bool refresh(Operand &operand) {
        Tensor *tensor = tensors().get_same(operand.handle, operand.generation);
        if (tensor == nullptr) {
            return violation(api_, "%s: the aclTensor was destroyed before stage two", name(operand).c_str());
        }
        void *base = tensor->data.load();
        if (base != operand.base && !executor_.wrapper) place(task_.args, operand, base);
        return false;
    }

    std::string name(const Operand &operand) const { return parameter_name(executor_, operand); }

    const char *api_;
    const Executor &executor_;
    KernelTask &task_;
    int device_;
};

}  // namespace

aclnnStatus launch(const char *api, Executor &executor, bool keep, void *workspace, uint64_t workspace_size,
                   const std::shared_ptr<Stream> &stream) {
    auto task = std::make_unique<KernelTask>();
    task->op = executor.op;
    task->config = executor.config;
    if (keep) {
        task->args = executor.args;
        task->operands = executor.operands;
    } else {
        task->args = std::move(executor.args);
        task->operands = std::move(executor.operands);
    }
    task->blocks.reserve(task->operands.size() + 1);
    task->ranges.reserve(task->operands.size() + 1);
    if (workspace != nullptr && workspace_size > 0) {
        std::shared_ptr<Block> block = find_block(workspace);
        if (block == nullptr || block->freed.load() || block->device != stream->device()) {
            const char *what = block == nullptr ? "no device memory" : block->freed.load() ? "freed" : "another device's";
            if (violation(api, "the workspace %p is %s", workspace, what)) return 361001;
        } else {
            size_t start = static_cast<size_t>(static_cast<char *>(workspace) - block->base);
            if (start + std::max(workspace_size, executor.workspace) > block->size &&
                violation(api, "the workspace is said to have %llu bytes, its allocation has %zu",
                          static_cast<unsigned long long>(workspace_size), block->size)) {
                return 361001;
            }
        }
        if (block != nullptr) {
            size_t start = static_cast<size_t>(static_cast<char *>(workspace) - block->base);
            task->ranges.push_back({start, start + std::max(workspace_size, executor.workspace)});
            task->blocks.push_back(std::move(block));
        }
    }
    Placement placement(api, executor, *task, stream->device());
    for (size_t i = 0; i < task->operands.size(); ++i) {
        if (placement.check(i)) return 361001;
    }
    if (!executor.launch) {
        if (recording()) Recorder(executor, task->operands).idle(task->args);
        return 0;
    }
    if (recording()) task->recorder = std::make_unique<Recorder>(executor, task->operands);
    std::vector<std::shared_ptr<Block>> blocks = task->blocks;
    std::vector<Range> ranges = task->ranges;
    auto lock = stream->lock();
    Mark mark = stream->next_mark();
    for (size_t i = 0; i < blocks.size(); ++i) blocks[i]->use(mark, ranges[i]);
    stream->push_locked(std::move(task));
    return 0;
}

}  // namespace emu
