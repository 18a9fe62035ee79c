#include "device.h"

#include <atomic>
#include <cstdlib>
#include <mutex>
#include <set>
#include <string>

#include "handles.h"
#include "memory.h"
#include "stream.h"

namespace emu {

namespace {

struct Device {
    int references = 0;
    void *context = nullptr;  // the default one
};

struct Devices {
    std::mutex mutex;
    Device device[64];
    std::atomic<int> fallback{-1};  // of threads that set none; -1: they have none
};

Devices &devices() {
    static Devices *instance = new Devices;
    return *instance;
}

HandleTable<Context> &contexts() {
    static auto *instance = new HandleTable<Context>(counters().contexts, 1 << 16);
    return *instance;
}

// ASCEND_RT_VISIBLE_DEVICES hides devices: the list counts up to its first bad or repeated entry.
int device_count() {
    static const int count = [] {
        const char *visible = getenv("ASCEND_RT_VISIBLE_DEVICES");
        if (visible == nullptr) return settings().devices;
        std::set<long> seen;
        while (*visible != '\0') {
            char *end = nullptr;
            long id = strtol(visible, &end, 10);
            if (end == visible || id < 0 || id >= settings().devices || !seen.insert(id).second) break;
            visible = *end == ',' ? end + 1 : end;
            if (*end != ',' && *end != '\0') break;
        }
        return static_cast<int>(seen.size());
    }();
    return count;
}

bool good_device(const char *api, int32_t id) {
    if (id >= 0 && id < device_count()) return true;
    fail(api, 107001, "device %d does not exist, there are %d", id, device_count());
    return false;
}

void *new_context(int device, bool is_default) {
    auto *context = new Context;
    context->device = device;
    context->is_default = is_default;
    void *handle = contexts().add(context);
    if (handle == nullptr) {
        delete context;
        return nullptr;
    }
    if (is_default) counters().contexts.fetch_sub(1);  // the caller's are counted
    context->stream = std::make_shared<Stream>(handle, device);
    register_stream(context->stream);
    return handle;
}

void drop_context(void *handle) {
    Context *context = contexts().remove(handle);
    if (context == nullptr) return;
    if (context->is_default) counters().contexts.fetch_add(1);
    if (context->stream_handle != nullptr) counters().streams.fetch_add(1);
    context->stream->wait(Deadline::max());
    observe(context->stream->history());
    context->stream->stop();
    destroy_context_handles(handle);
    drop_events(handle);
    delete context;
}

void make_current(const void *handle) {
    ThreadState &state = thread_state();
    state.context = handle;
    contexts().get(handle, &state.context_generation);
}

// Takes the device out of use; its mutex is held.
void close_device(int id) {
    Device &device = devices().device[id];
    device.references = 0;
    if (device.context == nullptr) return;
    drop_context(device.context);
    device.context = nullptr;
    for (void *handle : contexts().all()) {
        Context *other = contexts().get(handle);
        if (other != nullptr && other->device == id) return;  // an explicit context still owns the memory
    }
    free_device_blocks(id);
}

aclError reset_device(const char *api, int32_t id, bool force) {
    if (!good_device(api, id)) return 107001;
    std::lock_guard<std::mutex> lock(devices().mutex);
    Device &device = devices().device[id];
    if (device.references == 0) {
        return violation(api, "device %d is reset more often than it was set", id) ? 107001 : 0;
    }
    if (force || --device.references == 0) close_device(id);
    return 0;
}

}  // namespace

void set_default_device(int id) { devices().fallback.store(id); }

Context *current_context(const char *api) {
    ThreadState &state = thread_state();
    Context *context = contexts().get_same(state.context, state.context_generation);
    int fallback = devices().fallback.load(std::memory_order_relaxed);
    if (context == nullptr && fallback >= 0 && fallback < device_count()) {
        std::lock_guard<std::mutex> lock(devices().mutex);
        void *&handle = devices().device[fallback].context;
        if (handle == nullptr) handle = new_context(fallback, true);
        make_current(handle);
        context = contexts().get(handle);
    }
    if (context == nullptr) fail(api, 107002, "this thread has no device: call aclrtSetDevice first");
    return context;
}

void close_all_devices() {
    set_default_device(-1);
    std::lock_guard<std::mutex> lock(devices().mutex);
    for (void *handle : contexts().all()) {
        Context *context = contexts().get(handle);
        if (context != nullptr && !context->is_default) drop_context(handle);
    }
    for (int id = 0; id < 64; ++id) close_device(id);
}

}  // namespace emu

using namespace emu;

aclError aclrtSetDevice(int32_t deviceId) {
    EMU_ENTER_STATUS();
    if (!good_device(__func__, deviceId)) return 107001;
    if (!initialised() && violation(__func__, "called before aclInit")) return 100001;
    std::lock_guard<std::mutex> lock(devices().mutex);
    Device &device = devices().device[deviceId];
    if (device.context == nullptr) device.context = new_context(deviceId, true);
    ++device.references;
    make_current(device.context);
    return 0;
}

aclError aclrtResetDevice(int32_t deviceId) {
    int injected = enter(__func__);
    aclError code = reset_device(__func__, deviceId, false);
    return injected != 0 ? injected : code;
}

aclError aclrtResetDeviceForce(int32_t deviceId) {
    int injected = enter(__func__);
    aclError code = reset_device(__func__, deviceId, true);
    return injected != 0 ? injected : code;
}

aclError aclrtGetDevice(int32_t *deviceId) {
    EMU_ENTER_STATUS();
    if (deviceId == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    Context *context = current_context(__func__);
    if (context == nullptr) return 107002;
    *deviceId = context->device;
    return 0;
}

aclError aclrtGetDeviceCount(uint32_t *count) {
    EMU_ENTER_STATUS();
    if (count == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    *count = static_cast<uint32_t>(device_count());
    return 0;
}

aclError aclrtGetPrimaryCtxState(int32_t deviceId, uint32_t *flags, int32_t *active) {
    EMU_ENTER_STATUS();
    if (active == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    if (!good_device(__func__, deviceId)) return 107001;
    std::lock_guard<std::mutex> lock(devices().mutex);
    if (flags != nullptr) *flags = 0;
    *active = devices().device[deviceId].context != nullptr;
    return 0;
}

// Every device can read every other's memory, all of it being the host's.
aclError aclrtDeviceCanAccessPeer(int32_t *canAccessPeer, int32_t deviceId, int32_t peerDeviceId) {
    EMU_ENTER_STATUS();
    if (canAccessPeer == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    if (!good_device(__func__, deviceId) || !good_device(__func__, peerDeviceId)) return 107001;
    *canAccessPeer = deviceId != peerDeviceId;
    return 0;
}

aclError aclrtDeviceEnablePeerAccess(int32_t peerDeviceId, uint32_t) {
    EMU_ENTER_STATUS();
    return good_device(__func__, peerDeviceId) ? 0 : 107001;
}

aclError aclrtGetRunMode(aclrtRunMode *runMode) {
    EMU_ENTER_STATUS();
    if (runMode == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    *runMode = ACL_HOST;
    return 0;
}

aclError aclrtCreateContext(aclrtContext *context, int32_t deviceId) {
    EMU_ENTER_STATUS();
    if (context == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    if (!good_device(__func__, deviceId)) return 107001;
    void *handle = new_context(deviceId, false);
    if (handle == nullptr) return fail(__func__, 207005, "too many contexts");
    *context = handle;
    make_current(handle);
    return 0;
}

aclError aclrtDestroyContext(aclrtContext context) {
    int injected = enter(__func__);
    if (context == nullptr) return fail(__func__, 100000, "the context is null");
    Context *found = contexts().get(context);
    if (found == nullptr || found->is_default) {
        const char *why = found == nullptr ? contexts().describe(context) : "a default context goes with its device";
        violation(__func__, "context %p: %s", context, why);
        return fail(__func__, 107017, "context %p: %s", context, why);
    }
    drop_context(context);
    return injected;
}

aclError aclrtSetCurrentContext(aclrtContext context) {
    EMU_ENTER_STATUS();
    if (context == nullptr) return fail(__func__, 100000, "the context is null");
    if (contexts().get(context) == nullptr) {
        violation(__func__, "context %p: %s", context, contexts().describe(context));
        return fail(__func__, 107017, "context %p: %s", context, contexts().describe(context));
    }
    make_current(context);
    return 0;
}

aclError aclrtGetCurrentContext(aclrtContext *context) {
    EMU_ENTER_STATUS();
    if (context == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    if (current_context(__func__) == nullptr) return 107002;
    *context = const_cast<void *>(thread_state().context);
    return 0;
}

aclError aclrtSynchronizeDevice(void) {
    EMU_ENTER_STATUS();
    return synchronize_all(__func__, -1);
}

aclError aclrtSynchronizeDeviceWithTimeout(int32_t timeout) {
    EMU_ENTER_STATUS();
    if (timeout < -1) return fail(__func__, 107000, "timeout is %d ms, must be at least -1", timeout);
    return synchronize_all(__func__, -1, deadline_after(timeout));
}
