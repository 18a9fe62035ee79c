// The queue of a stream and what runs it.
#include <algorithm>
#include <exception>
#include <thread>

#include "stream.h"

namespace emu {

namespace {

// In deferred mode one thread at a time runs queued work, of whatever stream it needs.
std::recursive_mutex &deferred_mutex() {
    static std::recursive_mutex *instance = new std::recursive_mutex;
    return *instance;
}

struct Registry {
    std::mutex mutex;
    std::vector<std::weak_ptr<Stream>> streams;
};

Registry &registry() {
    static Registry *instance = new Registry;
    return *instance;
}

std::atomic<int32_t> g_next_id{0};

}  // namespace

Stream::Stream(const void *context, int device)
    : context_(context), device_(device), id_(g_next_id.fetch_add(1)) {}

Stream::~Stream() = default;

void Stream::push_locked(std::unique_ptr<Task> task) {
    ++last_;
    queue_.push_back({last_, std::move(task)});
    if (settings().deferred) return;
    if (!thread_started_) {
        thread_started_ = true;
        std::thread([self = shared_from_this()] { self->work(); }).detach();
    }
    has_work_.notify_one();
}

Mark Stream::push(std::unique_ptr<Task> task) {
    std::lock_guard<std::mutex> guard(mutex_);
    Mark mark = next_mark();
    push_locked(std::move(task));
    return mark;
}

void Stream::run(Item &item) {
    std::string text;
    int code = 0;
    try {
        code = item.task->run(text);
    } catch (const std::bad_alloc &) {
        code = 207001;
        text = "the host has not enough memory for the kernel";
    } catch (const std::exception &error) {
        code = 507015;
        text = std::string("the kernel failed: ") + error.what();
    }
    item.task.reset();  // lets go of memory before anyone is told
    std::lock_guard<std::mutex> guard(mutex_);
    progress_->done.store(item.sequence);
    if (code != 0 && error_ == 0) {
        error_ = code;
        error_text_ = text;
    }
    progressed_.notify_all();
}

void Stream::work() {
    std::unique_lock<std::mutex> guard(mutex_);
    while (true) {
        has_work_.wait(guard, [this] { return stopped_ || !queue_.empty(); });
        if (queue_.empty()) return;
        Item item = std::move(queue_.front());
        queue_.pop_front();
        guard.unlock();
        run(item);
        guard.lock();
    }
}

bool Stream::run_deferred(uint64_t sequence, Deadline deadline) {
    std::lock_guard<std::recursive_mutex> only(deferred_mutex());
    while (progress_->done.load() < sequence) {
        if (Clock::now() >= deadline) return false;
        Item item;
        {
            std::lock_guard<std::mutex> guard(mutex_);
            if (queue_.empty() || queue_.front().sequence > sequence) return true;
            item = std::move(queue_.front());
            queue_.pop_front();
        }
        item.task->before_deferred();
        run(item);
    }
    return true;
}

bool Stream::wait_for(uint64_t sequence, Deadline deadline) {
    if (progress_->done.load() >= sequence) return true;
    if (settings().deferred) return run_deferred(sequence, deadline);
    auto reached = [&] { return progress_->done.load() >= sequence; };
    std::unique_lock<std::mutex> guard(mutex_);
    if (deadline == Deadline::max()) {
        progressed_.wait(guard, reached);
        return true;
    }
    return progressed_.wait_until(guard, deadline, reached);
}

bool Stream::wait(Deadline deadline) {
    uint64_t sequence;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        sequence = last_;
    }
    return wait_for(sequence, deadline);
}

bool Stream::idle() {
    std::lock_guard<std::mutex> guard(mutex_);
    return progress_->done.load() >= last_;
}

void Stream::help() {
    if (settings().deferred) run_deferred(progress_->done.load() + 1, Deadline::max());
}

void Stream::abort() {
    std::deque<Item> dropped;
    {
        std::lock_guard<std::mutex> guard(mutex_);
        dropped.swap(queue_);
    }
    for (Item &item : dropped) item.task->cancel();
    if (dropped.empty()) return;
    // the dropped numbers count as done once the task before them is
    uint64_t before = dropped.front().sequence - 1;
    wait_for(before, Deadline::max());
    std::lock_guard<std::mutex> guard(mutex_);
    uint64_t done = progress_->done.load();
    progress_->done.store(std::max(done, dropped.back().sequence));
    progressed_.notify_all();
}

void Stream::stop() {
    std::lock_guard<std::mutex> guard(mutex_);
    stopped_ = true;
    has_work_.notify_all();
}

int Stream::take_error(std::string &text) {
    std::lock_guard<std::mutex> guard(mutex_);
    int code = error_;
    text.swap(error_text_);
    error_ = 0;
    error_text_.clear();
    return code;
}

std::vector<Mark> Stream::history_locked() {
    std::vector<Mark> marks = learned_;
    if (last_ > 0) merge(marks, {progress_, last_});
    return marks;
}

std::vector<Mark> Stream::history() {
    std::lock_guard<std::mutex> guard(mutex_);
    return history_locked();
}

void Stream::learn(const std::vector<Mark> &marks) {
    std::lock_guard<std::mutex> guard(mutex_);
    learned_.erase(std::remove_if(learned_.begin(), learned_.end(),
                                  [](const Mark &m) { return m.progress->observed.load() >= m.sequence; }),
                   learned_.end());
    for (const Mark &mark : marks) {
        if (mark.progress != progress_) merge(learned_, mark);
    }
}

void observe(const std::vector<Mark> &marks) {
    for (const Mark &mark : marks) mark.progress->observe(mark.sequence);
}

void register_stream(const std::shared_ptr<Stream> &stream) {
    std::lock_guard<std::mutex> guard(registry().mutex);
    auto &all = registry().streams;
    all.erase(std::remove_if(all.begin(), all.end(), [](const auto &s) { return s.expired(); }), all.end());
    all.push_back(stream);
}

std::vector<std::shared_ptr<Stream>> live_streams(int device) {
    std::vector<std::shared_ptr<Stream>> out;
    std::lock_guard<std::mutex> guard(registry().mutex);
    for (auto &weak : registry().streams) {
        auto stream = weak.lock();
        if (stream != nullptr && (device < 0 || stream->device() == device)) out.push_back(std::move(stream));
    }
    return out;
}

}  // namespace emu
