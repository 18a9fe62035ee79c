// Streams as the caller sees them.
#include "stream.h"

#include "device.h"
#include "handles.h"

namespace emu {

namespace {

constexpr int64_t kMostStreams = 1984;

HandleTable<std::shared_ptr<Stream>> &streams() {
    static auto *instance = new HandleTable<std::shared_ptr<Stream>>(counters().streams, 1 << 20);
    return *instance;
}

aclError create(const char *api, aclrtStream *stream) {
    if (stream == nullptr) return fail(api, 100000, "the pointer to fill is null");
    Context *context = current_context(api);
    if (context == nullptr) return 107002;
    if (counters().streams.load() >= kMostStreams) return fail(api, 207008, "%lld streams exist already",
                                                               static_cast<long long>(kMostStreams));
    auto made = std::make_shared<Stream>(thread_state().context, context->device);
    register_stream(made);
    *stream = streams().add(new std::shared_ptr<Stream>(made));
    return *stream != nullptr ? 0 : fail(api, 207008, "the table of streams is full");
}

aclError destroy(const char *api, aclrtStream stream, bool force) {
    if (stream == nullptr) return fail(api, 100000, "the stream is null");
    int code = 0;
    std::shared_ptr<Stream> found = resolve_stream(api, stream, code);
    if (found == nullptr) return code;
    if (found == current_context(api)->stream) return fail(api, 107000, "a default stream goes with its context");
    std::shared_ptr<Stream> *holder = streams().remove(stream);
    if (holder == nullptr) return fail(api, 107017, "stream %p: already destroyed", stream);
    delete holder;
    if (force) {
        found->abort();
    } else {
        found->wait(Deadline::max());
        observe(found->history());
    }
    found->stop();
    return 0;
}

}  // namespace

std::shared_ptr<Stream> resolve_stream(const char *api, aclrtStream stream, int &code, bool any_context) {
    Context *context = any_context && stream != nullptr ? nullptr : current_context(api);
    if (stream == nullptr) {
        if (context == nullptr) {
            code = 107002;
            return nullptr;
        }
        return context->stream;
    }
    std::shared_ptr<Stream> *found = streams().get(stream);
    if (found == nullptr) {
        violation(api, "stream %p: %s", stream, streams().describe(stream));
        code = fail(api, 107017, "stream %p: %s", stream, streams().describe(stream));
        return nullptr;
    }
    if (!any_context) {
        if (context == nullptr) {
            code = 107002;
            return nullptr;
        }
        if ((*found)->context() != thread_state().context) {
            code = fail(api, 107003, "stream %p belongs to another context (device %d) than the current one (device %d)",
                        stream, (*found)->device(), context->device);
            return nullptr;
        }
    }
    return *found;
}

void destroy_context_handles(const void *context) {
    for (void *handle : streams().all()) {
        std::shared_ptr<Stream> *found = streams().get(handle);
        if (found == nullptr || (*found)->context() != context) continue;
        std::shared_ptr<Stream> *holder = streams().remove(handle);
        if (holder == nullptr) continue;
        (*holder)->wait(Deadline::max());
        observe((*holder)->history());
        (*holder)->stop();
        delete holder;
    }
}

int synchronize(const char *api, Stream &stream, Deadline deadline) {
    std::vector<Mark> seen = stream.history();
    if (!stream.wait(deadline)) return fail(api, 507046, "the stream did not finish in time");
    observe(seen);
    std::string text;
    int code = stream.take_error(text);
    return code == 0 ? 0 : fail(api, code, "%s", text.c_str());
}

int synchronize_all(const char *api, int device, Deadline deadline) {
    if (device < 0) {
        Context *context = current_context(api);
        if (context == nullptr) return 107002;
        device = context->device;
    }
    int first = 0;
    std::string text;
    for (auto &stream : live_streams(device)) {
        int code = synchronize(api, *stream, deadline);
        if (code != 0 && first == 0) {
            first = code;
            text = thread_state().error;
        }
    }
    if (first != 0) thread_state().error = text;
    return first;
}

// An injected failure still waits, as a device that reports an error has stopped; an injected time-out does not.
static int synchronize_injected(const char *api, aclrtStream handle, int32_t timeout) {
    int injected = enter(api);
    if (timeout < -1) return fail(api, 107000, "timeout is %d ms, must be at least -1", timeout);
    if (injected == 507046 || injected == 107020) return injected;
    std::string text = thread_state().error;
    int code = 0;
    std::shared_ptr<Stream> stream = resolve_stream(api, handle, code, true);
    if (stream != nullptr) code = synchronize(api, *stream, deadline_after(timeout));
    if (injected == 0) return code;
    thread_state().error = text;
    return injected;
}

}  // namespace emu

using namespace emu;

aclError aclrtCreateStream(aclrtStream *stream) {
    EMU_ENTER_STATUS();
    return create(__func__, stream);
}

aclError aclrtCreateStreamWithConfig(aclrtStream *stream, uint32_t priority, uint32_t flag) {
    EMU_ENTER_STATUS();
    if (priority > 7) return fail(__func__, 107000, "priority is %u, must be 0 to 7", priority);
    if ((flag & ~0x3fu) != 0) return fail(__func__, 107000, "flag 0x%x has unknown bits", flag);
    return create(__func__, stream);
}

aclError aclrtDestroyStream(aclrtStream stream) {
    int injected = enter(__func__);
    aclError code = destroy(__func__, stream, false);
    return injected != 0 ? injected : code;
}

aclError aclrtDestroyStreamForce(aclrtStream stream) {
    int injected = enter(__func__);
    aclError code = destroy(__func__, stream, true);
    return injected != 0 ? injected : code;
}

aclError aclrtSynchronizeStream(aclrtStream stream) { return synchronize_injected(__func__, stream, -1); }

aclError aclrtSynchronizeStreamWithTimeout(aclrtStream stream, int32_t timeout) {
    return synchronize_injected(__func__, stream, timeout);
}

aclError aclrtStreamQuery(aclrtStream stream, aclrtStreamStatus *status) {
    EMU_ENTER_STATUS();
    if (status == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    int code = 0;
    std::shared_ptr<Stream> found = resolve_stream(__func__, stream, code);
    if (found == nullptr) return code;
    std::vector<Mark> seen = found->history();
    bool idle = found->idle();
    *status = idle ? ACL_STREAM_STATUS_COMPLETE : ACL_STREAM_STATUS_NOT_READY;
    if (idle) {
        observe(seen);
    } else {
        found->help();
    }
    return 0;
}

aclError aclrtStreamAbort(aclrtStream stream) {
    EMU_ENTER_STATUS();
    if (stream == nullptr) return fail(__func__, 100000, "the stream is null");
    int code = 0;
    std::shared_ptr<Stream> found = resolve_stream(__func__, stream, code);
    if (found == nullptr) return code;
    found->abort();
    return 0;
}

// The streams here go on after an error, whatever the mode.
aclError aclrtSetStreamFailureMode(aclrtStream stream, uint64_t mode) {
    EMU_ENTER_STATUS();
    if (mode > 1) return fail(__func__, 107000, "mode is %llu, must be 0 or 1", static_cast<unsigned long long>(mode));
    int code = 0;
    return resolve_stream(__func__, stream, code, true) == nullptr ? code : 0;
}

aclError aclrtStreamGetId(aclrtStream stream, int32_t *streamId) {
    EMU_ENTER_STATUS();
    if (streamId == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    int code = 0;
    std::shared_ptr<Stream> found = resolve_stream(__func__, stream, code, true);
    if (found == nullptr) return code;
    *streamId = found->id();
    return 0;
}

aclError aclrtCtxGetCurrentDefaultStream(aclrtStream *stream) {
    EMU_ENTER_STATUS();
    if (stream == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    Context *context = current_context(__func__);
    if (context == nullptr) return 107002;
    // a second handle on the context's default stream; it stays the context's
    static std::mutex mutex;
    std::lock_guard<std::mutex> lock(mutex);
    if (context->stream_handle == nullptr) {
        context->stream_handle = streams().add(new std::shared_ptr<Stream>(context->stream));
        counters().streams.fetch_sub(1);
    }
    *stream = context->stream_handle;
    return 0;
}
