// ACLNN_CACHE_LIMIT and DISABLE_L2_CACHE. An executor from the op cache shows by refusing to be made repeatable.
#include "harness.h"

// With attribute value n, which the operator ignores in this mode but the cache's key does not.
static aclnnStatus one(Grad &g, int64_t n) {
    return aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(g.grad_y.handle, g.rows.handle, nullptr, nullptr, nullptr,
                                                         nullptr, 0, 0, n, 0, g.out.handle, g.scales_out.handle, &g.size,
                                                         &g.executor);
}

static void run(Session &s, Grad &g, int64_t n) {
    OK(one(g, n));
    g.need_workspace();
    OK(g.two(s.stream));
}

static bool cached(Grad &g, int64_t n) {
    OK(one(g, n));
    aclnnStatus code = aclSetAclOpExecutorRepeatable(g.executor);
    OK(aclDestroyAclOpExecutor(g.executor));
    return code == 561000;
}

int main() {
    aclnnEmulatorSetStrict(1);
    {
        Session s;
        Grad g;
        run(s, g, 1);
        if (getenv("DISABLE_L2_CACHE") != nullptr) {
            EXPECT(!cached(g, 1));
        } else if (getenv("ACLNN_CACHE_LIMIT") != nullptr) {  // 2
            run(s, g, 2);
            EXPECT(cached(g, 1) && cached(g, 2));
            run(s, g, 3);  // 30 at a time are thrown out, so both
            EXPECT(!cached(g, 1) && !cached(g, 2) && cached(g, 3));
        } else {
            for (int64_t n = 2; n < 200; ++n) run(s, g, n);
            EXPECT(cached(g, 1) && cached(g, 199) && !cached(g, 200));
        }
        OK(aclrtSynchronizeStream(s.stream));
    }
    expect_no_handles();
    puts("ok");
}
