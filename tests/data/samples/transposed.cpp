// A transposed view: strides that are not those of the shape.
#include "common.h"
#include "aclnnop/aclnn_add.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<float> xHost = {1, 2, 3, 4, 5, 6};
    std::vector<int64_t> viewShape = {3, 2};
    std::vector<int64_t> viewStrides = {1, 3};
    std::vector<int64_t> storageShape = {2, 3};
    void *xAddr = nullptr;
    CHECK_RET(aclrtMalloc(&xAddr, 6 * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST) == 0, return 1);
    CHECK_RET(aclrtMemcpy(xAddr, 6 * sizeof(float), xHost.data(), 6 * sizeof(float), ACL_MEMCPY_HOST_TO_DEVICE) == 0,
              return 1);
    aclTensor *x = aclCreateTensor(viewShape.data(), viewShape.size(), ACL_FLOAT, viewStrides.data(), 0, ACL_FORMAT_ND,
                                   storageShape.data(), storageShape.size(), xAddr);
    std::vector<int64_t> otherShape = {3, 2};
    std::vector<float> otherHost = {10, 20, 30, 40, 50, 60};
    void *otherAddr = nullptr;
    aclTensor *other = nullptr;
    CHECK_RET(CreateAclTensor(otherHost, otherShape, &otherAddr, ACL_FLOAT, &other) == 0, return 1);
    std::vector<int64_t> outShape = {3, 2};
    std::vector<float> outHost(6, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    float one = 1.0f;
    aclScalar *alpha = aclCreateScalar(&one, ACL_FLOAT);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnAddGetWorkspaceSize(x, other, alpha, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnAddGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnAdd, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
