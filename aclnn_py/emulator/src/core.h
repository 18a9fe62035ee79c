// What every part of the emulator shares: per-thread state, errors, violations, injected faults, configuration.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>

#include "base.h"
#include "op.h"

namespace emu {

// Violations that a running kernel reports end up here; strict mode turns them into the stream's error.
struct TaskFault {
    std::atomic<int> code{0};
};

// Lets libnnopbase hang its op cache on the thread without libascendcl knowing what it is.
struct ThreadCache {
    virtual ~ThreadCache() = default;
};

struct ThreadState {
    uint64_t id = 0;          // never reused
    std::string error;        // text of the last failure, until read
    std::string handed_out;   // what aclGetRecentErrMsg returned
    int last_error = 0;       // aclrtGetLastError
    const void *context = nullptr;
    uint32_t context_generation = 0;
    uint64_t last_stage_one = 0;  // serial of the thread's newest stage one
    TaskFault *task = nullptr;    // the kernel running on this thread
    bool hands_over = false;      // torch_npu's: its executors may be launched on another thread
    bool pool = false;            // torch_npu's memory pool is in use
    std::unique_ptr<ThreadCache> cache;
};

ThreadState &thread_state();

// ---- failures -------------------------------------------------------------------------------------------------

// Sets the thread's error text (and last runtime error) and returns the code.
int fail(const char *api, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));

// Records a broken rule. True in strict mode: the text is set and the caller fails the call.
bool violation(const char *api, const char *format, ...) __attribute__((format(printf, 2, 3)));

bool strict();

// ---- injected faults (control.cpp) ----------------------------------------------------------------------------

extern std::atomic<uint64_t> g_calls;
extern std::atomic<int> g_faults_armed;

int injected_fault(const char *api);

// First statement of every function of the ABI that can fail: counts the call, returns an injected code or 0.
inline int enter(const char *api) {
    g_calls.fetch_add(1, std::memory_order_relaxed);
    return g_faults_armed.load(std::memory_order_relaxed) ? injected_fault(api) : 0;
}

// Code that a queued kernel of this operator shall fail with, or 0.
int injected_async_fault(const char *op);

uint32_t kernel_delay_ms();

#define EMU_ENTER(failed)                                    \
    do {                                                     \
        if (::emu::enter(__func__) != 0) return failed;      \
    } while (0)
#define EMU_ENTER_STATUS()                                              \
    do {                                                                \
        if (int injected = ::emu::enter(__func__)) return injected;     \
    } while (0)

// ---- counters -------------------------------------------------------------------------------------------------

struct Counters {
    std::atomic<int64_t> tensors{0}, scalars{0}, arrays{0}, lists{0}, executors{0}, executor_slots{0};
    std::atomic<int64_t> streams{0}, events{0}, contexts{0};
    std::atomic<int64_t> device_bytes{0}, device_allocations{0}, host_bytes{0}, host_allocations{0};
    std::atomic<int64_t> violations{0}, launches{0};
};
Counters &counters();

// ---- configuration (state.cpp) --------------------------------------------------------------------------------

struct Settings {
    int devices = 1;
    uint64_t memory = 0;       // bytes of each device
    bool deferred = false;     // queued work runs only when the host waits for it
    std::string record;        // file, or empty
    int threads = 1;
};
const Settings &settings();
std::string soc_name();
Config current_config();
bool initialised();
int64_t deterministic_level();  // part of the op cache's key
size_t dtype_bits(aclDataType dtype);
const char *dtype_name(aclDataType dtype);
float half_to_float(uint16_t bits);
uint16_t float_to_half(float value);
uint16_t double_to_half(double value);

}  // namespace emu
