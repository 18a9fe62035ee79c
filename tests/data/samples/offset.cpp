// A view that starts inside its storage.
#include "common.h"
#include "aclnnop/aclnn_neg.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int32_t> xHost = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
    int64_t viewShape[] = {2, 2};
    int64_t viewStrides[] = {4, 1};
    int64_t storageShape[] = {3, 4};
    void *xAddr = nullptr;
    CHECK_RET(aclrtMalloc(&xAddr, 12 * sizeof(int32_t), ACL_MEM_MALLOC_HUGE_FIRST) == 0, return 1);
    CHECK_RET(aclrtMemcpy(xAddr, 12 * sizeof(int32_t), xHost.data(), 12 * sizeof(int32_t), ACL_MEMCPY_HOST_TO_DEVICE) ==
                  0, return 1);
    aclTensor *x =
        aclCreateTensor(viewShape, 2, ACL_INT32, viewStrides, 5, ACL_FORMAT_ND, storageShape, 2, xAddr);
    std::vector<int64_t> outShape = {2, 2};
    std::vector<int32_t> outHost(4, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_INT32, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnNegGetWorkspaceSize(x, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnNegGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnNeg, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<int32_t>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
