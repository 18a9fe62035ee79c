// Streams: queues of tasks, each run in order by the stream's own thread, or by whoever waits (deferred mode).
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core.h"
#include "memory.h"

namespace emu {

using Clock = std::chrono::steady_clock;
using Deadline = Clock::time_point;

// Timeouts in milliseconds, -1 for ever.
inline Deadline deadline_after(int32_t ms) {
    return ms < 0 ? Deadline::max() : Clock::now() + std::chrono::milliseconds(ms);
}

class Task {
  public:
    virtual ~Task() = default;
    virtual int run(std::string &text) = 0;  // a status code and its text
    virtual void cancel() {}                 // dropped by an abort
    // In deferred mode, before run: what another stream must do first.
    virtual void before_deferred() {}
};

class Stream : public std::enable_shared_from_this<Stream> {
  public:
    Stream(const void *context, int device);
    ~Stream();

    // The mark of the enqueued task; its memory uses are registered by the caller with next_mark() under lock().
    std::unique_lock<std::mutex> lock() { return std::unique_lock<std::mutex>(mutex_); }
    Mark next_mark() const { return {progress_, last_ + 1}; }
    void push_locked(std::unique_ptr<Task> task);

    Mark push(std::unique_ptr<Task> task);
    bool wait(Deadline deadline);                        // until everything enqueued so far has run
    bool wait_for(uint64_t sequence, Deadline deadline);  // until that task has run
    bool idle();
    void help();    // deferred mode: runs one queued task, so that polling gets somewhere
    void abort();   // drops what has not started
    void stop();    // no more tasks; the thread ends
    int take_error(std::string &text);

    // What the host knows once it has waited for this stream's newest task.
    std::vector<Mark> history();
    std::vector<Mark> history_locked();
    void learn(const std::vector<Mark> &marks);

    const void *context() const { return context_; }
    int device() const { return device_; }
    int32_t id() const { return id_; }

  private:
    struct Item {
        uint64_t sequence;
        std::unique_ptr<Task> task;
    };
    void work();
    void run(Item &item);
    bool run_deferred(uint64_t sequence, Deadline deadline);

    const void *context_;
    int device_;
    int32_t id_;
    std::mutex mutex_;
    std::condition_variable has_work_, progressed_;
    std::deque<Item> queue_;
    uint64_t last_ = 0;  // sequence of the newest task
    std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
    std::vector<Mark> learned_;  // points of other streams that this one has waited for
    bool thread_started_ = false;
    bool stopped_ = false;
    int error_ = 0;
    std::string error_text_;
};

// Every live stream, also default ones; of one device, or of all with -1.
std::vector<std::shared_ptr<Stream>> live_streams(int device);
void register_stream(const std::shared_ptr<Stream> &stream);

// Waits for the device's streams (-1: that of the current context) and reports the first error.
int synchronize_all(const char *api, int device, Deadline deadline = Deadline::max());

int synchronize(const char *api, Stream &stream, Deadline deadline);
void observe(const std::vector<Mark> &marks);

void destroy_context_handles(const void *context);  // stream.cpp: the streams of a context that goes
void drop_events(const void *context);              // event.cpp

}  // namespace emu
