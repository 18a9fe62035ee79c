// Error text per thread, last runtime error, violations.
#include <pthread.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <set>

#include "core.h"
#include "violations.h"

namespace emu {

namespace {

std::atomic<uint64_t> g_next_thread{1};
thread_local ThreadState *t_state = nullptr;

// A key instead of a thread_local object: the main thread may call in after its thread_locals are gone.
pthread_key_t thread_key() {
    static pthread_key_t key = [] {
        pthread_key_t made;
        pthread_key_create(&made, [](void *state) {
            t_state = nullptr;
            delete static_cast<ThreadState *>(state);
        });
        return made;
    }();
    return key;
}

std::string format_text(const char *format, va_list arguments) {
    char buffer[1024];
    va_list copy;
    va_copy(copy, arguments);
    int length = vsnprintf(buffer, sizeof buffer, format, copy);
    va_end(copy);
    if (length < static_cast<int>(sizeof buffer)) return buffer;
    std::string text(static_cast<size_t>(length) + 1, '\0');
    vsnprintf(&text[0], text.size(), format, arguments);
    text.pop_back();
    return text;
}

struct Violations {
    std::mutex mutex;
    std::string last;
    std::set<std::string> reported;  // by rule: a rule broken a thousand times is printed once
    bool more_said = false;
};

Violations &violations() {
    static Violations *instance = new Violations;
    return *instance;
}

bool env_strict() {
    const char *value = getenv("ACLNN_EMULATOR_STRICT");
    return value != nullptr && *value != '\0' && std::string(value) != "0";
}

std::atomic<int> &strict_flag() {
    static std::atomic<int> *flag = new std::atomic<int>(env_strict());
    return *flag;
}

void record(const std::string &rule, const std::string &text) {
    counters().violations.fetch_add(1);
    Violations &all = violations();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.last = text;
    constexpr size_t kPrinted = 64;
    if (all.reported.size() >= kPrinted) {
        if (!all.more_said) fprintf(stderr, "aclnn emulator: further violations are counted, not printed\n");
        all.more_said = true;
        return;
    }
    if (all.reported.insert(rule).second) fprintf(stderr, "aclnn emulator: violation: %s\n", text.c_str());
}

}  // namespace

ThreadState &thread_state() {
    if (t_state == nullptr) {
        auto *state = new ThreadState;
        state->id = g_next_thread.fetch_add(1);
        pthread_setspecific(thread_key(), state);
        t_state = state;
    }
    return *t_state;
}

Counters &counters() {
    static Counters *instance = new Counters;
    return *instance;
}

bool strict() { return strict_flag().load(std::memory_order_relaxed) != 0; }
void set_strict(bool on) { strict_flag().store(on); }

int fail(const char *api, int code, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    ThreadState &state = thread_state();
    state.error = std::string(api) + ": " + format_text(format, arguments);
    va_end(arguments);
    bool runtime = code < 161000 || (code >= 200000 && code < 361000) || (code >= 500000 && code < 561000);
    // that somebody else has called aclInit is no failure; torch_npu shows the last one in place of an operator's code
    if (runtime && code != 100002) state.last_error = code;
    return code;
}

bool violation(const char *api, const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    std::string text = std::string(api) + ": " + format_text(format, arguments);
    va_end(arguments);
    record(std::string(api) + format, text);
    if (!strict()) return false;
    thread_state().error = text;
    return true;
}

void report_violation(const std::string &text) {
    record(text.substr(0, text.find_first_of("0123456789")), text);
    TaskFault *task = thread_state().task;
    if (strict() && task != nullptr) task->code.store(507035);
}

std::string last_violation() {
    Violations &all = violations();
    std::lock_guard<std::mutex> lock(all.mutex);
    return all.last;
}

void forget_violations() {
    Violations &all = violations();
    std::lock_guard<std::mutex> lock(all.mutex);
    all.last.clear();
    all.reported.clear();
    all.more_said = false;
    counters().violations.store(0);
}

}  // namespace emu

using namespace emu;

const char *aclGetRecentErrMsg(void) {
    ThreadState &state = thread_state();
    if (state.error.empty()) return nullptr;
    state.handed_out.swap(state.error);
    state.error.clear();
    return state.handed_out.c_str();
}

aclError aclrtGetLastError(aclrtLastErrLevel level) {
    if (level != ACL_RT_THREAD_LEVEL) return fail(__func__, 107000, "level is %d, must be 0", level);
    int code = thread_state().last_error;
    thread_state().last_error = 0;
    return code;
}

aclError aclrtPeekAtLastError(aclrtLastErrLevel level) {
    if (level != ACL_RT_THREAD_LEVEL) return fail(__func__, 107000, "level is %d, must be 0", level);
    return thread_state().last_error;
}
