// Executor kinds and who owns one after each way a call can go.
#include <thread>

#include "harness.h"

static void plain_run(Session &s) {
    Grad g;
    OK(g.one());
    EXPECT_CODE(count("executors"), 1);
    g.need_workspace();
    OK(g.two(s.stream));
    EXPECT_CODE(count("executors"), 0);
    OK(aclrtSynchronizeStream(s.stream));
    EXPECT(g.right());

    EpGrad e;
    OK(e.one());
    e.need_workspace();
    OK(e.two(s.stream));
    OK(aclrtSynchronizeStream(s.stream));
    EXPECT(e.right());
    EXPECT_CODE(count("executors"), 0);
}

static void tensors_may_go_after_stage_two(Session &s) {
    Grad g;
    OK(g.one());
    g.need_workspace();
    aclnnEmulatorSetDelay(30);
    OK(g.two(s.stream));
    for (Tensor *t : {&g.grad_y, &g.rows, &g.out, &g.scales_out}) {
        OK(aclDestroyTensor(t->handle));
        t->handle = nullptr;
    }
    OK(aclrtSynchronizeStream(s.stream));
    aclnnEmulatorSetDelay(0);
    EXPECT(g.right());
}

static void failed_stage_one(Session &) {
    // composite: nothing is written; generated: the slot is, and stays busy
    Grad g;
    g.executor = reinterpret_cast<aclOpExecutor *>(0x10);
    EXPECT_CODE(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(nullptr, g.rows.handle, nullptr, nullptr, nullptr, nullptr,
                                                              0, 0, 0, 0, g.out.handle, g.scales_out.handle, &g.size,
                                                              &g.executor),
                161001);
    EXPECT(g.executor == reinterpret_cast<aclOpExecutor *>(0x10));
    EXPECT(error_text().find("gradY") != std::string::npos);

    EpGrad e;
    int64_t slots = count("executor_slots");
    EXPECT_CODE(e.one(1000), 561002);
    EXPECT(e.executor != nullptr);
    EXPECT_CODE(count("executor_slots"), slots + 1);
    EXPECT_CODE(count("executors"), 0);
    EXPECT_VIOLATION(aclDestroyAclOpExecutor(e.executor), 561000, "the library owns it");
    EXPECT_VIOLATION(e.two(nullptr), 561000, "stage one that failed");

    EXPECT_CODE(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(g.grad_y.handle, g.rows.handle, nullptr, nullptr, nullptr,
                                                              nullptr, 0, 0, 0, 0, g.out.handle, g.scales_out.handle,
                                                              nullptr, &g.executor),
                161001);
    EXPECT_CODE(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(g.grad_y.handle, g.rows.handle, nullptr, nullptr, nullptr,
                                                              nullptr, 0, 0, 0, 0, g.out.handle, g.scales_out.handle,
                                                              &g.size, nullptr),
                161001);
}

static void null_workspace(Session &s) {
    Grad g;
    OK(g.one());
    EXPECT_CODE(aclnnMoeFinalizeRoutingV2Grad(nullptr, g.size, g.executor, s.stream), 161001);
    EXPECT_CODE(count("executors"), 0);  // deleted
    EXPECT_VIOLATION(aclDestroyAclOpExecutor(g.executor), 561000, "already destroyed");
    EXPECT_CODE(aclnnMoeFinalizeRoutingV2Grad(nullptr, 0, nullptr, s.stream), 161001);

    EpGrad e;
    int64_t slots = count("executor_slots");
    OK(e.one());
    EXPECT_CODE(aclnnMoeTokenUnpermuteWithEpGrad(nullptr, e.size, e.executor, s.stream), 161001);
    EXPECT_CODE(count("executors"), 0);
    EXPECT_CODE(count("executor_slots"), slots + 1);  // not released, and may be retried
    e.need_workspace();
    EXPECT_CODE(aclnnMoeTokenUnpermuteWithEpGrad(e.workspace, e.size - 1, e.executor, s.stream), 161002);
    OK(e.two(s.stream));
    OK(aclrtSynchronizeStream(s.stream));
    EXPECT(e.right());
    EXPECT_CODE(count("executor_slots"), slots);
}

static void small_workspace_of_a_composite(Session &s) {
    Grad g;
    OK(g.one());
    g.need_workspace();
    EXPECT(g.size > 0);
    EXPECT_VIOLATION(aclnnMoeFinalizeRoutingV2Grad(g.workspace, g.size - 1, g.executor, s.stream), 161002, "needed are");
    EXPECT_CODE(count("executors"), 0);
    aclnnEmulatorSetStrict(0);  // CANN does not look
    OK(g.one());
    OK(aclnnMoeFinalizeRoutingV2Grad(g.workspace, g.size - 1, g.executor, s.stream));
    OK(aclrtSynchronizeStream(s.stream));
    EXPECT(g.right());
    aclnnEmulatorSetStrict(1);
}

static void used_up(Session &s) {
    Grad g;
    OK(g.one());
    g.need_workspace();
    OK(g.two(s.stream));
    EXPECT_VIOLATION(g.two(s.stream), 561000, "already destroyed");
    EXPECT_VIOLATION(aclDestroyAclOpExecutor(g.executor), 561000, "already destroyed");
    EpGrad e;
    OK(e.one());
    e.need_workspace();
    OK(e.two(s.stream));
    EXPECT_VIOLATION(e.two(s.stream), 561000, "already destroyed");
    OK(aclrtSynchronizeStream(s.stream));
    // a failed launch uses it up as well
    OK(g.one());
    aclrtStream gone = nullptr;
    OK(aclrtCreateStream(&gone));
    OK(aclrtDestroyStream(gone));
    EXPECT_VIOLATION(g.two(gone), 107017, "already destroyed");
    EXPECT_CODE(count("executors"), 0);
    // an executor of another operator
    OK(e.one());
    EXPECT_VIOLATION(aclnnMoeFinalizeRoutingV2Grad(e.workspace, e.size, e.executor, s.stream), 561000,
                     "belongs to another operator");
    OK(aclDestroyAclOpExecutor(e.executor));
}

static void discarded(Session &) {
    Grad g;
    EpGrad e;
    OK(g.one());
    OK(e.one());
    EXPECT_CODE(count("executors"), 2);
    OK(aclDestroyAclOpExecutor(g.executor));
    OK(aclDestroyAclOpExecutor(e.executor));
    EXPECT_CODE(count("executors"), 0);
    EXPECT_CODE(aclDestroyAclOpExecutor(nullptr), 161001);
}

static void other_thread(Session &s) {
    Grad g;
    OK(g.one());
    g.need_workspace();
    std::thread([&] {
        OK(aclrtSetDevice(0));
        EXPECT_VIOLATION(aclDestroyAclOpExecutor(g.executor), 561000, "another thread");
        EXPECT_VIOLATION(g.two(s.stream), 561000, "another thread");
        OK(aclrtResetDevice(0));
    }).join();
    EXPECT_CODE(count("executors"), 0);
    aclnnEmulatorSetStrict(0);
    OK(g.one());
    std::thread([&] {
        OK(aclrtSetDevice(0));
        OK(g.two(s.stream));
        OK(aclrtSynchronizeStream(s.stream));
        OK(aclrtResetDevice(0));
    }).join();
    aclnnEmulatorSetStrict(1);
    EXPECT(g.right());
}

// Every case on its own thread: the op cache belongs to the thread.
template <class F>
static void on_thread(F body) {
    std::thread([&] {
        OK(aclrtSetDevice(0));
        body();
        OK(aclrtResetDevice(0));
    }).join();
}

static void repeatable(Session &s) {
    on_thread([&] {
        Grad g;
        OK(g.one());
        OK(aclSetAclOpExecutorRepeatable(g.executor));
        g.need_workspace();
        for (int i = 0; i < 3; ++i) {
            g.clear();
            OK(g.two(s.stream));
            OK(aclrtSynchronizeStream(s.stream));
            EXPECT(g.right());
        }
        // another address for gradY: in the executor and in the aclTensor
        Tensor other({2, 4}, ACL_FLOAT, std::vector<float>{10, 20, 30, 40, 50, 60, 70, 80});
        OK(aclSetInputTensorAddr(g.executor, 0, g.grad_y.handle, other.data));
        void *now = nullptr;
        OK(aclGetRawTensorAddr(g.grad_y.handle, &now));
        EXPECT(now == other.data);
        OK(g.two(s.stream));
        OK(aclrtSynchronizeStream(s.stream));
        EXPECT(g.out.read<float>()[0] == 50);
        // outputs: counted apart, or after the inputs (6 of them, null ones too)
        Tensor target({2, 4}, ACL_FLOAT, std::vector<float>(8, 0.0f));
        OK(AclSetOutputTensorAddr(g.executor, 0, g.out.handle, target.data));
        OK(g.two(s.stream));
        OK(aclrtSynchronizeStream(s.stream));
        EXPECT(target.read<float>()[0] == 50);
        OK(aclSetTensorAddr(g.executor, 6, g.out.handle, g.out.data));
        EXPECT_CODE(aclSetTensorAddr(g.executor, 8, g.out.handle, g.out.data), 161002);
        EXPECT_CODE(aclSetTensorAddr(nullptr, 0, g.out.handle, g.out.data), 561103);
        EXPECT_CODE(aclSetTensorAddr(g.executor, 0, nullptr, g.out.data), 561103);
        EXPECT_VIOLATION(aclSetInputTensorAddr(g.executor, 1, g.grad_y.handle, other.data), 161002, "is not the one");
        OK(aclSetRawTensorAddr(g.grad_y.handle, g.grad_y.data));  // takes effect at the next launch
        OK(g.two(s.stream));
        OK(aclrtSynchronizeStream(s.stream));
        EXPECT(g.right());
        OK(aclDestroyAclOpExecutor(g.executor));
        EXPECT_VIOLATION(g.two(s.stream), 561000, "already destroyed");
        // a repeatable executor dies of a null workspace too
        OK(g.one());
        OK(aclSetAclOpExecutorRepeatable(g.executor));
        EXPECT_CODE(aclnnMoeFinalizeRoutingV2Grad(nullptr, g.size, g.executor, s.stream), 161001);
        EXPECT_CODE(count("executors"), 0);
        EXPECT_CODE(aclSetAclOpExecutorRepeatable(nullptr), 161001);
    });
}

static void cache_hit_refuses_repeatable(Session &s) {
    on_thread([&] {
        Grad g;
        OK(g.one());
        g.need_workspace();
        OK(g.two(s.stream));
        OK(g.one());  // an identical call: the wrapper
        EXPECT_CODE(aclSetAclOpExecutorRepeatable(g.executor), 561000);
        EXPECT(error_text().find("op cache") != std::string::npos);
        OK(aclrtSynchronizeStream(s.stream));
        g.clear();
        OK(g.two(s.stream));  // and still runs
        OK(aclrtSynchronizeStream(s.stream));
        EXPECT(g.right());
    });
    on_thread([&] {  // another thread, another cache
        Grad g;
        OK(g.one());
        OK(aclSetAclOpExecutorRepeatable(g.executor));
        OK(aclDestroyAclOpExecutor(g.executor));
        // a repeatable one leaves nothing in the cache, so the next may be repeatable as well
        OK(g.one());
        OK(aclSetAclOpExecutorRepeatable(g.executor));
        OK(aclDestroyAclOpExecutor(g.executor));
    });
    on_thread([&] {  // discarded before its first launch: that key is never cached
        Grad g;
        OK(g.one());
        OK(aclDestroyAclOpExecutor(g.executor));
        for (int i = 0; i < 2; ++i) {
            OK(g.one());
            g.need_workspace();
            OK(g.two(s.stream));
        }
        OK(g.one());
        OK(aclSetAclOpExecutorRepeatable(g.executor));
        OK(aclDestroyAclOpExecutor(g.executor));
        OK(aclrtSynchronizeStream(s.stream));
    });
    on_thread([&] {  // generated operators have no wrapper
        EpGrad e;
        OK(e.one());
        e.need_workspace();
        OK(e.two(s.stream));
        OK(e.one());
        OK(aclSetAclOpExecutorRepeatable(e.executor));
        OK(aclDestroyAclOpExecutor(e.executor));
        OK(aclrtSynchronizeStream(s.stream));
    });
    on_thread([&] {  // an attribute or an aliasing change is another key
        Grad g;
        OK(g.one());
        g.need_workspace();
        OK(g.two(s.stream));
        OK(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(g.grad_y.handle, g.rows.handle, nullptr, nullptr, nullptr,
                                                         nullptr, 0, 0, 5, 0, g.out.handle, g.scales_out.handle,
                                                         &g.size, &g.executor));
        OK(aclSetAclOpExecutorRepeatable(g.executor));
        OK(aclDestroyAclOpExecutor(g.executor));
        OK(aclrtSynchronizeStream(s.stream));
    });
}

static void wrapper_keeps_its_addresses(Session &s) {
    on_thread([&] {
        Grad g;
        OK(g.one());
        g.need_workspace();
        OK(g.two(s.stream));
        OK(aclrtSynchronizeStream(s.stream));
        Tensor other({2, 4}, ACL_FLOAT, std::vector<float>(8, 9.0f));
        // composite: read at stage two
        OK(aclDestroyTensor(g.grad_y.handle));
        g.grad_y.make(ACL_FLOAT);
        OK(g.one());
        OK(aclSetRawTensorAddr(g.grad_y.handle, other.data));
        OK(g.two(s.stream));  // this one came from the cache
        OK(aclrtSynchronizeStream(s.stream));
        EXPECT(g.right());
    });
}

static void repeatable_at_once(Session &) {
    on_thread([&] {
        Grad g;
        EpGrad e;
        OK(g.one());
        OK(e.one());
        EXPECT_VIOLATION(aclSetAclOpExecutorRepeatable(g.executor), 561000, "its own stage one");
        OK(aclDestroyAclOpExecutor(g.executor));
        OK(aclDestroyAclOpExecutor(e.executor));
    });
}

static void tensors_live_until_stage_two(Session &s) {
    Grad g;
    OK(g.one());
    g.need_workspace();
    OK(aclDestroyTensor(g.grad_y.handle));
    EXPECT_VIOLATION(g.two(s.stream), 361001, "gradY: the aclTensor was destroyed");
    g.grad_y.make(ACL_FLOAT);
}

static void needs_a_device() {
    std::thread([] {
        int64_t dims[1] = {2};
        int words[2] = {};
        aclTensor *t = aclCreateTensor(dims, 1, ACL_INT32, nullptr, 0, ACL_FORMAT_ND, dims, 1, words);
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        EXPECT_CODE(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(t, t, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0, t,
                                                                  t, &size, &executor),
                    107002);
        EXPECT(executor == nullptr);
        OK(aclDestroyTensor(t));
    }).join();
}

int main() {
    aclnnEmulatorSetStrict(1);
    {
        Session s;
        plain_run(s);
        tensors_may_go_after_stage_two(s);
        failed_stage_one(s);
        null_workspace(s);
        small_workspace_of_a_composite(s);
        used_up(s);
        discarded(s);
        other_thread(s);
        repeatable(s);
        cache_hit_refuses_repeatable(s);
        wrapper_keeps_its_addresses(s);
        repeatable_at_once(s);
        tensors_live_until_stage_two(s);
        needs_a_device();
    }
    expect_no_handles();
    puts("ok");
}
