// ACLNN_EMULATOR_STREAM=deferred: queued work runs when the host waits for it, and not before.
#include "harness.h"

int main() {
    aclnnEmulatorSetStrict(1);
    {
        Session s;
        Grad g;
        aclrtStream other = nullptr;
        aclrtEvent event = nullptr;
        OK(aclrtCreateStream(&other));
        OK(aclrtCreateEvent(&event));
        OK(g.one());
        g.need_workspace();
        OK(g.two(s.stream));
        EXPECT_CODE(count("launches"), 0);
        EXPECT(!g.right());
        OK(aclrtSynchronizeStream(other));  // another stream
        EXPECT_CODE(count("launches"), 0);
        OK(aclrtSynchronizeStream(s.stream));
        EXPECT_CODE(count("launches"), 1);
        EXPECT(g.right());

        // waiting for a stream that waits for an event runs the other one up to that event
        OK(g.one());
        OK(g.two(s.stream));
        OK(aclrtRecordEvent(event, s.stream));
        OK(g.one());
        OK(g.two(s.stream));
        OK(aclrtStreamWaitEvent(other, event));
        OK(aclrtSynchronizeStream(other));
        EXPECT_CODE(count("launches"), 2);
        aclrtEventRecordedStatus status = ACL_EVENT_RECORDED_STATUS_NOT_READY;
        OK(aclrtQueryEventStatus(event, &status));
        EXPECT(status == ACL_EVENT_RECORDED_STATUS_COMPLETE);
        OK(aclrtDestroyStream(other));

        // polling makes progress, one task a look
        aclrtStreamStatus idle = ACL_STREAM_STATUS_COMPLETE;
        OK(aclrtStreamQuery(s.stream, &idle));
        EXPECT(idle == ACL_STREAM_STATUS_NOT_READY);
        OK(aclrtStreamQuery(s.stream, &idle));
        EXPECT(idle == ACL_STREAM_STATUS_COMPLETE);
        EXPECT_CODE(count("launches"), 3);

        OK(g.one());
        OK(g.two(s.stream));
        OK(aclrtRecordEvent(event, s.stream));
        OK(aclrtSynchronizeEvent(event));
        EXPECT_CODE(count("launches"), 4);
        OK(g.one());
        OK(g.two(s.stream));
        EXPECT_VIOLATION(aclrtFree(g.workspace), 107000, "still needed by queued work");
        OK(aclrtStreamAbort(s.stream));
        OK(aclrtSynchronizeStream(s.stream));
        EXPECT_CODE(count("launches"), 4);
        OK(g.one());
        OK(g.two(s.stream));
        OK(aclrtSynchronizeDevice());
        EXPECT_CODE(count("launches"), 5);
        OK(aclrtDestroyEvent(event));
    }
    expect_no_handles();
    puts("ok");
}
