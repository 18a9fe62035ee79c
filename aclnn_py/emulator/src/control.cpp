// What tests ask of the emulator: injected faults, counts, strictness.
#include "aclnn_emulator.h"

#include <cstdio>
#include <cstring>
#include <deque>
#include <mutex>
#include <string>

#include "core.h"
#include "violations.h"

namespace emu {

std::atomic<uint64_t> g_calls{0};
std::atomic<int> g_faults_armed{0};

namespace {

struct Fault {
    std::string api;
    int code;
    std::string text;
};

struct Faults {
    std::mutex mutex;
    std::deque<Fault> next;   // one-shot, by function
    std::deque<Fault> async;  // one-shot, by operator
    uint64_t at = 0;          // call number that fails; 0: none
    int at_code = 0;
    std::atomic<uint32_t> delay{0};
    std::atomic<int> async_armed{0};
};

Faults &faults() {
    static Faults *instance = new Faults;
    return *instance;
}

void rearm(Faults &f) {
    g_faults_armed.store(!f.next.empty() || f.at != 0 ? 1 : 0);
    f.async_armed.store(f.async.empty() ? 0 : 1);
}

bool take(std::deque<Fault> &from, const char *name, Fault &out) {
    for (auto it = from.begin(); it != from.end(); ++it) {
        if (it->api != name) continue;
        out = *it;
        from.erase(it);
        return true;
    }
    return false;
}

}  // namespace

int injected_fault(const char *api) {
    Faults &f = faults();
    std::lock_guard<std::mutex> lock(f.mutex);
    Fault fault;
    if (take(f.next, api, fault)) {
        rearm(f);
        fail(api, fault.code, "%s", fault.text.c_str());
        thread_state().error = fault.text;  // as given, or nothing
        return fault.code;
    }
    if (f.at != 0 && g_calls.load() >= f.at) {
        f.at = 0;
        rearm(f);
        return fail(api, f.at_code, "injected failure");
    }
    return 0;
}

int injected_async_fault(const char *op) {
    Faults &f = faults();
    if (f.async_armed.load(std::memory_order_relaxed) == 0) return 0;
    std::lock_guard<std::mutex> lock(f.mutex);
    Fault fault;
    if (!take(f.async, op, fault)) return 0;
    rearm(f);
    return fault.code;
}

uint32_t kernel_delay_ms() { return faults().delay.load(std::memory_order_relaxed); }

}  // namespace emu

using namespace emu;

const char *aclnnEmulatorVersion(void) { return "0.1.0"; }

void aclnnEmulatorFailNext(const char *api, int32_t code, const char *message) {
    if (api == nullptr || code == 0) return;
    std::lock_guard<std::mutex> lock(faults().mutex);
    faults().next.push_back({api, code, message != nullptr ? message : ""});
    rearm(faults());
}

void aclnnEmulatorFailAsync(const char *op, int32_t code) {
    if (op == nullptr || code == 0) return;
    std::lock_guard<std::mutex> lock(faults().mutex);
    faults().async.push_back({op, code, ""});
    rearm(faults());
}

void aclnnEmulatorFailAt(uint64_t nth, int32_t code) {
    std::lock_guard<std::mutex> lock(faults().mutex);
    faults().at = nth == 0 || code == 0 ? 0 : g_calls.load() + nth;
    faults().at_code = code;
    rearm(faults());
}

uint64_t aclnnEmulatorCallCount(void) { return g_calls.load(); }

int64_t aclnnEmulatorCount(const char *what) {
    Counters &c = counters();
    struct Entry {
        const char *name;
        std::atomic<int64_t> *value;
    };
    const Entry entries[] = {
        {"tensors", &c.tensors},
        {"scalars", &c.scalars},
        {"arrays", &c.arrays},
        {"lists", &c.lists},
        {"executors", &c.executors},
        {"executor_slots", &c.executor_slots},
        {"streams", &c.streams},
        {"events", &c.events},
        {"contexts", &c.contexts},
        {"device_bytes", &c.device_bytes},
        {"device_allocations", &c.device_allocations},
        {"host_bytes", &c.host_bytes},
        {"host_allocations", &c.host_allocations},
        {"violations", &c.violations},
        {"launches", &c.launches},
    };
    for (const Entry &entry : entries) {
        if (what != nullptr && strcmp(what, entry.name) == 0) return entry.value->load();
    }
    return -1;
}

size_t aclnnEmulatorViolation(char *buffer, size_t size) {
    std::string text = last_violation();
    if (buffer != nullptr && size > 0) snprintf(buffer, size, "%s", text.c_str());
    return text.size();
}

void aclnnEmulatorSetStrict(int on) { set_strict(on != 0); }

int32_t aclnnEmulatorSetSoc(const char *name) {
    if (name == nullptr || *name == '\0') return 100000;
    return set_soc(name) ? 0 : 100002;
}

void aclnnEmulatorSetDelay(uint32_t milliseconds) { faults().delay.store(milliseconds); }

void aclnnEmulatorReset(void) {
    {
        std::lock_guard<std::mutex> lock(faults().mutex);
        faults().next.clear();
        faults().async.clear();
        faults().at = 0;
        rearm(faults());
    }
    faults().delay.store(0);
    forget_violations();
    thread_state().error.clear();
    thread_state().last_error = 0;
}
