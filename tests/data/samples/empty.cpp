// A tensor without axes and one without elements.
#include "common.h"
#include "aclnnop/aclnn_add.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> xShape = {};
    std::vector<float> xHost = {2.5};
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
    std::vector<int64_t> yShape = {};
    std::vector<float> yHost = {4};
    void *yAddr = nullptr;
    aclTensor *y = nullptr;
    CHECK_RET(CreateAclTensor(yHost, yShape, &yAddr, ACL_FLOAT, &y) == 0, return 1);
    std::vector<int64_t> outShape = {};
    std::vector<float> outHost(1, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    std::vector<int64_t> noneShape = {0, 3};
    std::vector<float> noneHost = {};
    void *noneAddr = nullptr;
    aclTensor *none = nullptr;
    CHECK_RET(CreateAclTensor(noneHost, noneShape, &noneAddr, ACL_FLOAT, &none) == 0, return 1);
    std::vector<int64_t> noneOutShape = {0, 3};
    std::vector<float> noneOutHost = {};
    void *noneOutAddr = nullptr;
    aclTensor *noneOut = nullptr;
    CHECK_RET(CreateAclTensor(noneOutHost, noneOutShape, &noneOutAddr, ACL_FLOAT, &noneOut) == 0, return 1);
    float one = 1.0f;
    aclScalar *alpha = aclCreateScalar(&one, ACL_FLOAT);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnAddGetWorkspaceSize(x, y, alpha, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnAddGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnAdd, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    ret = aclnnAddGetWorkspaceSize(none, none, alpha, noneOut, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnAddGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnAdd, workspaceSize, executor, stream) == 0, return 1);
    Finish(0, stream);
    return 0;
}
