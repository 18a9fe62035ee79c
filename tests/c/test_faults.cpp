// Faults injected on request, and that a program which handles them leaves nothing behind.
#include "harness.h"

static void named(Session &s) {
    aclnnEmulatorFailNext("aclrtMalloc", 207001, "EL0004: out of memory");
    void *p = nullptr;
    OK(aclrtSynchronizeStream(s.stream));  // another function passes
    EXPECT_CODE(aclrtMalloc(&p, 8, ACL_MEM_MALLOC_HUGE_FIRST), 207001);
    EXPECT(error_text() == "EL0004: out of memory");
    OK(aclrtMalloc(&p, 8, ACL_MEM_MALLOC_HUGE_FIRST));  // one-shot
    aclnnEmulatorFailNext("aclrtFree", 107000, nullptr);
    EXPECT_CODE(aclrtFree(p), 107000);
    EXPECT(aclGetRecentErrMsg() == nullptr);
    EXPECT_CODE(count("device_allocations"), 0);  // a release releases all the same
    int64_t dims[1] = {1};
    aclnnEmulatorFailNext("aclCreateTensor", 500000, "no");
    EXPECT(aclCreateTensor(dims, 1, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 1, nullptr) == nullptr);
    EXPECT(error_text() == "no");
    // text A, a success, a failure without text: A is gone
    aclnnEmulatorFailNext("aclrtGetRunMode", 100000, "A");
    aclrtRunMode mode;
    EXPECT_CODE(aclrtGetRunMode(&mode), 100000);
    OK(aclrtGetRunMode(&mode));
    aclnnEmulatorFailNext("aclrtGetRunMode", 100000, nullptr);
    EXPECT_CODE(aclrtGetRunMode(&mode), 100000);
    EXPECT(aclGetRecentErrMsg() == nullptr);
    std::string text(20000, 'x');
    text += "\xff\xfe";
    aclnnEmulatorFailNext("aclrtGetRunMode", 100000, text.c_str());
    EXPECT_CODE(aclrtGetRunMode(&mode), 100000);
    EXPECT(error_text() == text);
}

static void stages(Session &s) {
    Grad g;
    g.executor = nullptr;
    aclnnEmulatorFailNext("aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize", 561002, "EZ9999: expert count is 128");
    EXPECT_CODE(g.one(), 561002);
    EXPECT(error_text() == "EZ9999: expert count is 128" && g.executor == nullptr);
    OK(g.one());
    g.need_workspace();
    aclnnEmulatorFailNext("aclnnMoeFinalizeRoutingV2Grad", 361001, "launch");
    int64_t launches = count("launches");
    EXPECT_CODE(g.two(s.stream), 361001);
    EXPECT_CODE(count("executors"), 0);  // used up
    OK(aclrtSynchronizeStream(s.stream));
    EXPECT_CODE(count("launches"), launches);

    EpGrad e;
    int64_t slots = count("executor_slots");
    aclnnEmulatorFailNext("aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize", 561003, nullptr);
    EXPECT_CODE(e.one(), 561003);
    EXPECT(e.executor != nullptr);
    EXPECT_CODE(count("executor_slots"), slots + 1);
    EXPECT_CODE(count("executors"), 0);
}

static void asynchronous(Session &s) {
    Grad g;
    aclnnEmulatorFailAsync("aclnnMoeFinalizeRoutingV2Grad", 507035);
    OK(g.one());
    g.need_workspace();
    OK(g.two(s.stream));
    EXPECT_CODE(aclrtSynchronizeStream(s.stream), 507035);
    EXPECT(error_text().find("aclnnMoeFinalizeRoutingV2Grad") != std::string::npos);
    OK(aclrtSynchronizeStream(s.stream));
    EXPECT(!g.right());
    aclnnEmulatorFailNext("aclrtSynchronizeStream", 507015, "device fault");
    OK(g.one());
    OK(g.two(s.stream));
    EXPECT_CODE(aclrtSynchronizeStream(s.stream), 507015);
    EXPECT(error_text() == "device fault");
    EXPECT(g.right());  // it did wait
    aclnnEmulatorFailNext("aclrtSynchronizeStream", 507046, nullptr);
    OK(g.one());
    OK(g.two(s.stream));
    EXPECT_CODE(aclrtSynchronizeStream(s.stream), 507046);  // it did not: the work is still in flight
    EXPECT_VIOLATION(aclrtFree(g.workspace), 107000, "still needed by queued work");
    OK(aclrtSynchronizeStream(s.stream));
}

// A careful program: every status is looked at, everything is released on every way out. True when all went well.
static bool careful(bool generated) {
    aclrtStream stream = nullptr;
    void *data[4] = {}, *workspace = nullptr;
    aclTensor *tensors[4] = {};
    aclOpExecutor *executor = nullptr;
    uint64_t size = 0;
    float numbers[8] = {1, 2, 3, 4, 5, 6, 7, 8}, result[8] = {};
    int32_t rows[2] = {1, 0};
    int64_t wide[2] = {2, 4}, index[1] = {2}, narrow[2] = {2, 1};
    struct Spec {
        int64_t *dims;
        uint64_t ndim;
        aclDataType dtype;
        size_t bytes;
        const void *values;
    } specs[4] = {{wide, 2, ACL_FLOAT, 32, numbers},
                  {index, 1, ACL_INT32, 8, rows},
                  {wide, 2, ACL_FLOAT, 32, nullptr},
                  {narrow, 2, ACL_FLOAT, 8, nullptr}};
    bool good = aclrtCreateStream(&stream) == 0;
    for (int i = 0; i < 4 && good; ++i) {
        good = aclrtMalloc(&data[i], specs[i].bytes, ACL_MEM_MALLOC_HUGE_FIRST) == 0;
        if (good && specs[i].values != nullptr) {
            good = aclrtMemcpy(data[i], specs[i].bytes, specs[i].values, specs[i].bytes, ACL_MEMCPY_HOST_TO_DEVICE) == 0;
        }
        if (good) {
            tensors[i] = aclCreateTensor(specs[i].dims, specs[i].ndim, specs[i].dtype, nullptr, 0, ACL_FORMAT_ND,
                                         specs[i].dims, specs[i].ndim, data[i]);
            good = tensors[i] != nullptr;
        }
    }
    bool ready = false;
    if (good) {
        good = ready = (generated ? aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize(
                                        tensors[0], tensors[1], nullptr, nullptr, false, nullptr, nullptr, 1, tensors[2],
                                        tensors[3], &size, &executor)
                                  : aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(
                                        tensors[0], tensors[1], nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0,
                                        tensors[2], tensors[3], &size, &executor)) == 0;
    }
    if (good && size > 0) good = aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST) == 0;
    if (ready && !good) aclDestroyAclOpExecutor(executor);
    if (good) {
        good = (generated ? aclnnMoeTokenUnpermuteWithEpGrad(workspace, size, executor, stream)
                          : aclnnMoeFinalizeRoutingV2Grad(workspace, size, executor, stream)) == 0;
    }
    if (stream != nullptr && aclrtSynchronizeStream(stream) != 0) good = false;
    if (good) good = aclrtMemcpy(result, 32, data[2], 32, ACL_MEMCPY_DEVICE_TO_HOST) == 0;
    for (aclTensor *t : tensors) good = aclDestroyTensor(t) == 0 && good;
    for (void *p : data) {
        if (p != nullptr) good = aclrtFree(p) == 0 && good;
    }
    if (workspace != nullptr) good = aclrtFree(workspace) == 0 && good;
    if (stream != nullptr) good = aclrtDestroyStream(stream) == 0 && good;
    return good && result[0] == 5;
}

static void each_call_in_turn(int rounds) {
    for (int round = 0; round < rounds; ++round) {
        for (bool generated : {false, true}) {
            uint64_t before = aclnnEmulatorCallCount();
            EXPECT(careful(generated));
            uint64_t calls = aclnnEmulatorCallCount() - before;
            EXPECT(calls > 20);
            for (uint64_t nth = 1; nth <= calls; ++nth) {
                aclnnEmulatorFailAt(nth, 507899);
                EXPECT(!careful(generated));
                aclnnEmulatorFailAt(0, 0);
                for (const char *what : {"tensors", "executors", "device_bytes", "device_allocations"}) {
                    if (count(what) == 0) continue;
                    fprintf(stderr, "after a failure of call %llu: %lld %s\n", static_cast<unsigned long long>(nth),
                            static_cast<long long>(count(what)), what);
                    exit(1);
                }
            }
            EXPECT(careful(generated));
        }
    }
}

int main(int argc, char **argv) {
    aclnnEmulatorSetStrict(1);
    {
        Session s;
        named(s);
        stages(s);
        asynchronous(s);
        aclnnEmulatorReset();
        OK(aclrtDestroyStream(s.stream));
        each_call_in_turn(argc > 1 ? atoi(argv[1]) : 3);
        EXPECT_CODE(count("violations"), 0);
        EXPECT_CODE(aclnnEmulatorCount("nonsense"), -1);
        OK(aclrtCreateStream(&s.stream));
    }
    expect_no_handles();
    puts("ok");
}
