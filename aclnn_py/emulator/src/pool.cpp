// parallel_for: the threads that kernels share.
#include <algorithm>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "core.h"

namespace emu {

namespace {

struct Job {
    int64_t n, grain;
    void (*fn)(int64_t, int64_t, void *);
    void *context;
    TaskFault *task;
    std::atomic<int64_t> next{0};
    int helpers = 0;  // pool threads inside, guarded by the pool's mutex
    std::mutex failed_mutex;
    std::exception_ptr failed;

    void take_part() {
        for (int64_t begin; (begin = next.fetch_add(grain)) < n;) {
            try {
                fn(begin, std::min(begin + grain, n), context);
            } catch (...) {
                std::lock_guard<std::mutex> lock(failed_mutex);
                if (!failed) failed = std::current_exception();
                next.store(n);
            }
        }
    }
};

struct Pool {
    std::mutex mutex;
    std::condition_variable has_job, left;
    std::deque<Job *> jobs;

    explicit Pool(int threads) {
        for (int i = 1; i < threads; ++i) std::thread([this] { help(); }).detach();
    }

    void help() {
        std::unique_lock<std::mutex> lock(mutex);
        while (true) {
            has_job.wait(lock, [this] { return !jobs.empty(); });
            Job *job = jobs.front();
            if (job->next.load() >= job->n) {  // nothing left to begin; its caller takes it away
                jobs.pop_front();
                continue;
            }
            ++job->helpers;
            lock.unlock();
            ThreadState &state = thread_state();
            state.task = job->task;
            inside() = true;
            job->take_part();
            inside() = false;
            state.task = nullptr;
            lock.lock();
            if (--job->helpers == 0) left.notify_all();
        }
    }

    static bool &inside() {
        static thread_local bool flag = false;
        return flag;
    }
};

}  // namespace

void parallel_for(int64_t n, int64_t grain, void (*fn)(int64_t, int64_t, void *), void *context) {
    if (n <= 0) return;
    grain = std::max<int64_t>(grain, 1);
    if (n <= grain || settings().threads == 1 || Pool::inside()) {
        fn(0, n, context);
        return;
    }
    static Pool *pool = new Pool(settings().threads);
    Job job;
    job.n = n;
    job.grain = grain;
    job.fn = fn;
    job.context = context;
    job.task = thread_state().task;
    {
        std::lock_guard<std::mutex> lock(pool->mutex);
        pool->jobs.push_back(&job);
    }
    pool->has_job.notify_all();
    bool &inside = Pool::inside();
    inside = true;  // a nested loop runs in place
    job.take_part();
    inside = false;
    {
        std::unique_lock<std::mutex> lock(pool->mutex);
        auto &jobs = pool->jobs;
        jobs.erase(std::remove(jobs.begin(), jobs.end(), &job), jobs.end());
        pool->left.wait(lock, [&] { return job.helpers == 0; });
    }
    if (job.failed) std::rethrow_exception(job.failed);
}

}  // namespace emu
