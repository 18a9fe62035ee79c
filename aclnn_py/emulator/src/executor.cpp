// Both stages of a call, and the rules by which an executor lives and dies.
#include "executor.h"

#include <cstring>
#include <exception>
#include <mutex>
#include <unordered_set>

#include "device.h"

namespace emu {

namespace {

std::atomic<uint64_t> g_serial{0};
std::atomic<int64_t> g_executors_known{0};

// What is stranded belongs to the library for good; the handle table alone is nothing that a leak checker looks into.
struct Stranded {
    std::mutex mutex;
    std::unordered_set<Executor *> executors;
};
Stranded &stranded() {
    static auto *instance = new Stranded;
    return *instance;
}

// An executor that nobody can launch or destroy any more: the library's own slot stays busy.
void strand(Executor &executor, Executor::State state) {
    {
        std::lock_guard<std::mutex> lock(stranded().mutex);
        stranded().executors.insert(&executor);
    }
    executor.state = state;
    executor.key = std::string();
    executor.args = std::vector<Arg>();  // not clear(), which keeps the memory
    executor.operands = std::vector<Operand>();
    counters().executor_slots.fetch_add(1);
}

void release(const void *handle, Executor *executor) {
    bool slot = executor->state != Executor::State::Ready;
    if (executors().remove(handle) == nullptr) return;
    if (slot) {
        std::lock_guard<std::mutex> lock(stranded().mutex);
        stranded().executors.erase(executor);
    }
    (slot ? counters().executor_slots : counters().executors).fetch_sub(1);
    delete executor;
}

}  // namespace

HandleTable<Executor> &executors() {
    static auto *instance = new HandleTable<Executor>(g_executors_known);
    return *instance;
}

// ---- stage one -------------------------------------------------------------------------------------------------

Call::Call(const Op &op_, const char *api_, const char *parameters, uint64_t *workspace_size_,
           aclOpExecutor **executor_)
    : op(op_), api(api_), workspace_size(workspace_size_), out(executor_), executor(new Executor) {
    executor->op = &op;
    executor->name = op.name;
    executor->parameters = parameters;
}

// Whatever failed: a generated operator's slot was handed out before and stays busy.
Call::~Call() {
    if (slot_ == nullptr || executor == nullptr) return;
    strand(*executor, Executor::State::Failed);
    executor.release();
}

aclnnStatus Call::begin() {
    int injected = enter(api);
    if (injected == 0 && (workspace_size == nullptr || out == nullptr)) {
        return fail(api, 161001, "%s is null", workspace_size == nullptr ? "workspaceSize" : "executor");
    }
    if (op.kind == Kind::Individual && out != nullptr) {
        slot_ = executors().add(executor.get());
        if (slot_ == nullptr) return fail(api, 561101, "the pool of executors is exhausted");
        *out = static_cast<aclOpExecutor *>(slot_);
    }
    if (injected != 0) return injected;
    if (current_context(api) == nullptr) return 107002;
    executor->serial = g_serial.fetch_add(1) + 1;
    ThreadState &state = thread_state();
    state.last_stage_one = executor->serial;
    executor->thread = state.id;
    executor->handed_over = state.hands_over;
    executor->config = current_config();
    executor->args.reserve(24);
    executor->operands.reserve(16);
    if (op.kind == Kind::Composite) {
        executor->key.reserve(1024);
        key(&op);
        key(deterministic_level());
    }
    return 0;
}

aclnnStatus Call::finish() {
    if (bad_ != 0) return bad_;
    bool cached = false;
    Cached entry;
    if (op.kind == Kind::Composite) cached = cache_find(executor->key, entry);
    if (!cached) {
        Status status;
        try {
            status = op.check(executor->args, executor->config);
        } catch (const std::exception &error) {
            return fail(api, 561000, "the check failed: %s", error.what());
        }
        if (status.code != 0) return fail(api, status.code, "%s", status.text.c_str());
        entry.workspace = status.workspace;
        entry.launch = status.launch;
    }
    executor->wrapper = cached;
    executor->workspace = entry.workspace;
    executor->launch = entry.launch;
    if (slot_ == nullptr) {
        void *handle = executors().add(executor.get());
        if (handle == nullptr) return fail(api, 561101, "too many executors");
        *out = static_cast<aclOpExecutor *>(handle);
    }
    *workspace_size = entry.workspace;
    counters().executors.fetch_add(1);
    executor.release();
    return 0;
}

// ---- stage two -------------------------------------------------------------------------------------------------

aclnnStatus stage_two(const Op &op, void *workspace, uint64_t workspace_size, aclOpExecutor *handle,
                      aclrtStream stream) {
    const char *api = op.name;
    int injected = enter(api);
    if (handle == nullptr) return injected != 0 ? injected : fail(api, 161001, "executor is null");
    Executor *executor = executors().get(handle);
    if (executor == nullptr) {
        violation(api, "executor %p: %s; stage two uses it up", static_cast<void *>(handle),
                  executors().describe(handle));
        return fail(api, 561000, "executor %p: %s; stage two uses it up", static_cast<void *>(handle),
                    executors().describe(handle));
    }
    if (executor->state == Executor::State::Failed || executor->op != &op) {
        const char *why = executor->op != &op ? "belongs to another operator" : "comes from a stage one that failed";
        violation(api, "executor %p %s", static_cast<void *>(handle), why);
        return fail(api, 561000, "executor %p %s", static_cast<void *>(handle), why);
    }
    bool keep = executor->repeatable;
    auto consume = [&](int code) {
        if (!keep) release(handle, executor);
        return code;
    };
    if (injected != 0) return consume(injected);
    if (executor->thread != thread_state().id && !executor->handed_over &&
        violation(api, "launched on another thread than its stage one, whose op cache it points into")) {
        return consume(561000);
    }
    bool generated = op.kind == Kind::Individual;
    auto get_stuck = [&](int code) {  // a generated operator keeps its slot: the call may be retried
        if (executor->state == Executor::State::Ready && !keep) {
            executor->state = Executor::State::Stuck;
            counters().executors.fetch_sub(1);
            counters().executor_slots.fetch_add(1);
        }
        return code;
    };
    if (workspace == nullptr && workspace_size > 0) {
        fail(api, 161001, "workspace is null, its size is %llu", static_cast<unsigned long long>(workspace_size));
        if (generated) return get_stuck(161001);
        release(handle, executor);  // a repeatable one too
        return 161001;
    }
    if (workspace_size < executor->workspace) {
        auto given = static_cast<unsigned long long>(workspace_size);
        auto needed = static_cast<unsigned long long>(executor->workspace);
        if (generated) return get_stuck(fail(api, 161002, "workspaceSize is %llu, needed are %llu", given, needed));
        if (violation(api, "workspaceSize is %llu, needed are %llu", given, needed)) return consume(161002);
    }
    int code = 0;
    std::shared_ptr<Stream> on = resolve_stream(api, stream, code);
    if (on == nullptr) return consume(code);
    code = launch(api, *executor, keep, workspace, workspace_size, on);
    bool cacheable = code == 0 && !generated && !executor->wrapper && !keep;
    if (cacheable && executor->thread == thread_state().id) {
        cache_insert(executor->key, {executor->workspace, executor->launch});
    }
    return consume(code);
}

}  // namespace emu

using namespace emu;

// ---- repeatable executors --------------------------------------------------------------------------------------

static Executor *find_executor(const char *api, aclOpExecutor *handle) {
    Executor *executor = executors().get(handle);
    if (executor != nullptr && executor->state == Executor::State::Ready) return executor;
    const char *why = executor == nullptr ? executors().describe(handle) : "its call failed, the library owns it";
    violation(api, "executor %p: %s", static_cast<void *>(handle), why);
    fail(api, 561000, "executor %p: %s", static_cast<void *>(handle), why);
    return nullptr;
}

aclnnStatus aclSetAclOpExecutorRepeatable(aclOpExecutor *executor) {
    EMU_ENTER_STATUS();
    if (executor == nullptr) return fail(__func__, 161001, "executor is null");
    Executor *found = find_executor(__func__, executor);
    if (found == nullptr) return 561000;
    if (found->wrapper) {
        return fail(__func__, 561000, "an executor from the op cache (an identical call ran on this thread before) "
                                      "cannot be made repeatable");
    }
    ThreadState &state = thread_state();
    if (state.pool) return fail(__func__, 561000, "torch_npu's memory pool is in use on this thread");
    if ((found->thread != state.id || found->serial != state.last_stage_one) &&
        violation(__func__, "must follow its own stage one at once, on the same thread")) {
        return 561000;
    }
    found->repeatable = true;
    return 0;
}

aclnnStatus aclDestroyAclOpExecutor(aclOpExecutor *executor) {
    int injected = enter(__func__);
    if (executor == nullptr) return fail(__func__, 161001, "executor is null");
    Executor *found = find_executor(__func__, executor);
    if (found == nullptr) return 561000;
    if (found->thread != thread_state().id &&
        violation(__func__, "destroyed on another thread than its stage one, whose op cache it points into")) {
        return 561000;
    }
    bool never_ran = found->op->kind == Kind::Composite && !found->wrapper && !found->repeatable;
    if (never_ran && found->thread == thread_state().id) cache_forget(found->key);
    release(executor, found);
    return injected;
}

// ---- what torch_npu calls around each stage one -----------------------------------------------------------------

// Its queue runs stage two on another thread while this one lives, as CANN allows. The mark stays: one stage one may run
// within another, and the inner one ends first.
extern "C" int InitHugeMemThreadLocal(void *, bool) {
    thread_state().hands_over = true;
    thread_state().pool = true;
    return 0;
}

extern "C" void UnInitHugeMemThreadLocal(void *, bool) { thread_state().pool = false; }

extern "C" void ReleaseHugeMem(void *, bool) {}
