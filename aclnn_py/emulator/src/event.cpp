// Events: points in the order of a stream that other streams and the host wait for.
#include <atomic>
#include <chrono>

#include "device.h"
#include "handles.h"
#include "stream.h"

namespace emu {

namespace {

constexpr int64_t kMostEvents = 65536;
constexpr uint32_t kTimeLine = 0x8;
constexpr uint32_t kKnownFlags = 0x7b;

// One recording; waiters keep it although the event may be recorded again.
struct Recording {
    std::mutex mutex;
    std::condition_variable changed;
    bool done = false;
    Clock::time_point when{};
    std::weak_ptr<Stream> stream;
    uint64_t sequence = 0;
    std::vector<Mark> history;  // what is known to have run once this is done
    std::atomic<int> waiting{0};  // streams that have been told to wait for this and have not yet

    void finish() {
        std::lock_guard<std::mutex> lock(mutex);
        done = true;
        when = Clock::now();
        changed.notify_all();
    }
    bool finished() {
        std::lock_guard<std::mutex> lock(mutex);
        return done;
    }
    bool wait(Deadline deadline) {
        if (settings().deferred) {
            auto from = stream.lock();
            if (from != nullptr) from->wait_for(sequence, deadline);
            return finished();
        }
        std::unique_lock<std::mutex> lock(mutex);
        if (deadline == Deadline::max()) {
            changed.wait(lock, [this] { return done; });
            return true;
        }
        return changed.wait_until(lock, deadline, [this] { return done; });
    }
};

struct RecordTask : Task {
    std::shared_ptr<Recording> recording;
    int run(std::string &) override {
        recording->finish();
        return 0;
    }
    void cancel() override { recording->finish(); }
};

struct WaitTask : Task {
    std::shared_ptr<Recording> recording;
    int run(std::string &) override {
        recording->wait(Deadline::max());
        --recording->waiting;
        return 0;
    }
    void cancel() override { --recording->waiting; }
};

struct Event {
    const void *context = nullptr;
    bool timed = true;
    std::mutex mutex;
    std::shared_ptr<Recording> recording;  // the newest; null before the first
    std::shared_ptr<Recording> newest() {
        std::lock_guard<std::mutex> lock(mutex);
        return recording;
    }
};

using EventPointer = std::shared_ptr<Event>;

HandleTable<EventPointer> &events() {
    static auto *instance = new HandleTable<EventPointer>(counters().events, 1 << 20);
    return *instance;
}

EventPointer find(const char *api, aclrtEvent event, int &code) {
    if (event == nullptr) {
        code = fail(api, 100000, "the event is null");
        return nullptr;
    }
    EventPointer *found = events().get(event);
    if (found != nullptr) return *found;
    violation(api, "event %p: %s", event, events().describe(event));
    code = fail(api, 107017, "event %p: %s", event, events().describe(event));
    return nullptr;
}

aclError create(const char *api, aclrtEvent *event, uint32_t flag) {
    if (event == nullptr) return fail(api, 100000, "the pointer to fill is null");
    if (flag == 0 || (flag & ~kKnownFlags) != 0) return fail(api, 107000, "flag 0x%x has no or unknown bits", flag);
    if (current_context(api) == nullptr) return 107002;
    if (counters().events.load() >= kMostEvents) {
        return fail(api, 207007, "%lld events exist already", static_cast<long long>(kMostEvents));
    }
    auto made = std::make_shared<Event>();
    made->context = thread_state().context;
    made->timed = (flag & kTimeLine) != 0;
    *event = events().add(new EventPointer(made));
    return *event != nullptr ? 0 : fail(api, 207007, "the table of events is full");
}

int synchronize_event(const char *api, aclrtEvent handle, int32_t timeout) {
    int injected = enter(api);
    if (timeout < -1) return fail(api, 107000, "timeout is %d ms, must be at least -1", timeout);
    if (injected == 507047 || injected == 107019 || injected == 107020) return injected;
    std::string text = thread_state().error;
    int code = 0;
    EventPointer event = find(api, handle, code);
    if (event == nullptr) return injected != 0 ? injected : code;
    std::shared_ptr<Recording> recording = event->newest();
    if (recording != nullptr) {
        if (!recording->wait(deadline_after(timeout))) return fail(api, 507047, "the event was not reached in time");
        observe(recording->history);
        auto stream = recording->stream.lock();
        std::string message;
        code = stream != nullptr ? stream->take_error(message) : 0;
        if (code != 0) fail(api, code, "%s", message.c_str());
    }
    if (injected == 0) return code;
    thread_state().error = text;
    return injected;
}

}  // namespace

void drop_events(const void *context) {
    for (void *handle : events().all()) {
        EventPointer *found = events().get(handle);
        if (found == nullptr || (*found)->context != context) continue;
        delete events().remove(handle);
    }
}

}  // namespace emu

using namespace emu;

aclError aclrtCreateEvent(aclrtEvent *event) {
    EMU_ENTER_STATUS();
    return create(__func__, event, kTimeLine);
}

aclError aclrtCreateEventWithFlag(aclrtEvent *event, uint32_t flag) {
    EMU_ENTER_STATUS();
    return create(__func__, event, flag);
}

aclError aclrtCreateEventExWithFlag(aclrtEvent *event, uint32_t flag) {
    EMU_ENTER_STATUS();
    return create(__func__, event, flag);
}

aclError aclrtDestroyEvent(aclrtEvent event) {
    int injected = enter(__func__);
    int code = 0;
    if (find(__func__, event, code) != nullptr) delete events().remove(event);
    return injected != 0 ? injected : code;
}

aclError aclrtRecordEvent(aclrtEvent event, aclrtStream stream) {
    EMU_ENTER_STATUS();
    int code = 0;
    EventPointer found = find(__func__, event, code);
    if (found == nullptr) return code;
    std::shared_ptr<Stream> on = resolve_stream(__func__, stream, code);
    if (on == nullptr) return code;
    auto recording = std::make_shared<Recording>();
    auto task = std::make_unique<RecordTask>();
    task->recording = recording;
    recording->stream = on;
    {
        std::lock_guard<std::mutex> newest(found->mutex);
        auto lock = on->lock();
        recording->sequence = on->next_mark().sequence;
        recording->history = on->history_locked();
        merge(recording->history, on->next_mark());
        on->push_locked(std::move(task));
        found->recording = recording;
    }
    return 0;
}

aclError aclrtStreamWaitEvent(aclrtStream stream, aclrtEvent event) {
    EMU_ENTER_STATUS();
    int code = 0;
    EventPointer found = find(__func__, event, code);
    if (found == nullptr) return code;
    std::shared_ptr<Stream> on = resolve_stream(__func__, stream, code);
    if (on == nullptr) return code;
    std::shared_ptr<Recording> recording = found->newest();
    if (recording == nullptr) {
        return violation(__func__, "event %p was never recorded", event) ? 507006 : 0;
    }
    auto task = std::make_unique<WaitTask>();
    task->recording = recording;
    ++recording->waiting;
    on->learn(recording->history);
    on->push(std::move(task));
    return 0;
}

aclError aclrtQueryEventStatus(aclrtEvent event, aclrtEventRecordedStatus *status) {
    EMU_ENTER_STATUS();
    if (status == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    int code = 0;
    EventPointer found = find(__func__, event, code);
    if (found == nullptr) return code;
    std::shared_ptr<Recording> recording = found->newest();
    bool done = recording != nullptr && recording->finished();
    *status = done ? ACL_EVENT_RECORDED_STATUS_COMPLETE : ACL_EVENT_RECORDED_STATUS_NOT_READY;
    if (done) {
        observe(recording->history);
    } else if (recording != nullptr) {
        if (auto stream = recording->stream.lock()) stream->help();
    }
    return 0;
}

aclError aclrtQueryEventWaitStatus(aclrtEvent event, aclrtEventWaitStatus *status) {
    EMU_ENTER_STATUS();
    if (status == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    int code = 0;
    EventPointer found = find(__func__, event, code);
    if (found == nullptr) return code;
    std::shared_ptr<Recording> recording = found->newest();
    bool waited = recording == nullptr || recording->waiting.load() == 0;
    *status = waited ? ACL_EVENT_WAIT_STATUS_COMPLETE : ACL_EVENT_WAIT_STATUS_NOT_READY;
    return 0;
}

aclError aclrtResetEvent(aclrtEvent event, aclrtStream stream) {
    EMU_ENTER_STATUS();
    int code = 0;
    EventPointer found = find(__func__, event, code);
    if (found == nullptr || resolve_stream(__func__, stream, code) == nullptr) return code;
    // those that wait keep the recording they were given
    std::lock_guard<std::mutex> newest(found->mutex);
    found->recording = nullptr;
    return 0;
}

aclError aclrtSynchronizeEvent(aclrtEvent event) { return synchronize_event(__func__, event, -1); }

aclError aclrtSynchronizeEventWithTimeout(aclrtEvent event, int32_t timeout) {
    return synchronize_event(__func__, event, timeout);
}

aclError aclrtEventElapsedTime(float *ms, aclrtEvent startEvent, aclrtEvent endEvent) {
    EMU_ENTER_STATUS();
    if (ms == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    int code = 0;
    EventPointer start = find(__func__, startEvent, code);
    EventPointer end = start == nullptr ? nullptr : find(__func__, endEvent, code);
    if (end == nullptr) return code;
    if (!start->timed || !end->timed) {
        return fail(__func__, 107006, "an event was created without ACL_EVENT_TIME_LINE");
    }
    std::shared_ptr<Recording> from = start->newest(), to = end->newest();
    if (from == nullptr || to == nullptr) return fail(__func__, 107006, "an event was never recorded");
    if (!from->finished() || !to->finished()) return fail(__func__, 507006, "an event has not been reached yet");
    if (to->when < from->when) return fail(__func__, 107007, "the end event was reached before the start event");
    *ms = std::chrono::duration<float, std::milli>(to->when - from->when).count();
    return 0;
}
