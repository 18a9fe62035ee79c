// Eight threads on two devices, each with its own stream, plus one that all share.
#include <thread>

#include "harness.h"

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 50;
    aclnnEmulatorSetStrict(1);
    OK(aclInit(nullptr));
    OK(aclrtSetDevice(0));
    aclrtStream shared = nullptr;
    OK(aclrtCreateStream(&shared));
    std::vector<std::thread> workers;
    for (int w = 0; w < 8; ++w) {
        workers.emplace_back([=] {
            OK(aclrtSetDevice(w % 2));
            aclrtStream own = nullptr;
            aclrtEvent event = nullptr;
            OK(aclrtCreateStream(&own));
            OK(aclrtCreateEvent(&event));
            for (int i = 0; i < rounds; ++i) {
                Grad g;
                EpGrad e;
                aclrtStream stream = w % 2 == 0 && i % 2 == 0 ? shared : own;
                OK(g.one());
                g.need_workspace();
                OK(e.one());
                e.need_workspace();
                OK(g.two(stream));
                OK(aclrtRecordEvent(event, stream));
                OK(aclrtStreamWaitEvent(own, event));
                OK(e.two(own));
                EXPECT_CODE(aclrtFree(nullptr), 100000);
                EXPECT(error_text() == "aclrtFree: the pointer is null");
                OK(aclrtSynchronizeStream(own));  // which had waited for the other
                EXPECT(g.right() && e.right());
            }
            OK(aclrtDestroyEvent(event));
            OK(aclrtDestroyStream(own));
            OK(aclrtResetDevice(w % 2));
        });
    }
    for (std::thread &worker : workers) worker.join();
    OK(aclrtDestroyStream(shared));
    OK(aclrtResetDevice(0));
    OK(aclFinalize());
    EXPECT_CODE(count("violations"), 0);
    expect_no_handles();
    puts("ok");
}
