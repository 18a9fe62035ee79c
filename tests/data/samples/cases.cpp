// One helper, three cases, each with the numbers that it must give.
#include "common.h"
#include "aclnnop/aclnn_cumsum.h"
#include <cmath>


int RunCase(aclrtStream stream, const std::vector<int64_t> &shape, const std::vector<float> &host,
            const std::vector<float> &golden, int64_t dim) {
    void *xAddr = nullptr, *outAddr = nullptr;
    aclTensor *x = nullptr, *out = nullptr;
    std::vector<float> zeros(host.size(), 0);
    CHECK_RET(CreateAclTensor(host, shape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
    CHECK_RET(CreateAclTensor(zeros, shape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK_RET(aclnnCumsumGetWorkspaceSize(x, dim, ACL_FLOAT, out, &workspaceSize, &executor) == 0, return 1);
    CHECK_RET(Run(aclnnCumsum, workspaceSize, executor, stream) == 0, return 1);
    std::vector<float> result(host.size());
    auto bytes = result.size() * sizeof(float);
    CHECK_RET(aclrtMemcpy(result.data(), bytes, outAddr, bytes, ACL_MEMCPY_DEVICE_TO_HOST) == 0, return 1);
    for (size_t i = 0; i < result.size(); i++) {
        if (std::fabs(result[i] - golden[i]) > 1e-5f) {
            LOG_PRINT("element %zu is %f, not %f\n", i, result[i], golden[i]);
            return 1;
        }
    }
    aclDestroyTensor(x);
    aclDestroyTensor(out);
    aclrtFree(xAddr);
    aclrtFree(outAddr);
    return 0;
}

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<float> once = {1, 2, 3};
    CHECK_RET(RunCase(stream, {3}, once, {1, 3, 6}, 0) == 0, return 1);
    CHECK_RET(RunCase(stream, {2, 2}, {1, 2, 3, 4}, {1, 2, 4, 6}, 0) == 0, return 1);
    CHECK_RET(RunCase(stream, {2, 2}, {1, 2, 3, 4}, {1, 3, 3, 7}, 1) == 0, return 1);
    Finish(0, stream);
    return 0;
}
