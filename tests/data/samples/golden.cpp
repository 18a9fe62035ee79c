// A result that must equal what the sample says.
#include "common.h"
#include "aclnnop/aclnn_sub.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> xShape = {2, 2};
    std::vector<int32_t> xHost = {5, 6, 7, 8};
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, ACL_INT32, &x) == 0, return 1);
    std::vector<int64_t> yShape = {2, 2};
    std::vector<int32_t> yHost = {1, 1, 2, 2};
    void *yAddr = nullptr;
    aclTensor *y = nullptr;
    CHECK_RET(CreateAclTensor(yHost, yShape, &yAddr, ACL_INT32, &y) == 0, return 1);
    std::vector<int64_t> outShape = {2, 2};
    std::vector<int32_t> outHost(4, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_INT32, &out) == 0, return 1);
    int32_t one = 1;
    aclScalar *alpha = aclCreateScalar(&one, ACL_INT32);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnSubGetWorkspaceSize(x, y, alpha, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnSubGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnSub, workspaceSize, executor, stream) == 0, return 1);
    std::vector<int32_t> expected = {4, 5, 5, 6};
    std::vector<int32_t> result(4);
    CHECK_RET(aclrtMemcpy(result.data(), 16, outAddr, 16, ACL_MEMCPY_DEVICE_TO_HOST) == 0, return 1);
    for (int i = 0; i < 4; i++) {
        if (result[i] != expected[i]) {
            LOG_PRINT("element %d is %d\n", i, result[i]);
            return 1;
        }
    }
    Finish(0, stream);
    return 0;
}
