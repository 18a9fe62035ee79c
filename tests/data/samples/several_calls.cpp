// Two operators in a row: the second takes what the first gave.
#include "common.h"
#include "aclnnop/aclnn_exp.h"
#include "aclnnop/aclnn_log.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> xShape = {3};
    std::vector<float> xHost = {0, 1, 2};
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
    std::vector<int64_t> middleShape = {3};
    std::vector<float> middleHost(3, 0);
    void *middleAddr = nullptr;
    aclTensor *middle = nullptr;
    CHECK_RET(CreateAclTensor(middleHost, middleShape, &middleAddr, ACL_FLOAT, &middle) == 0, return 1);
    std::vector<int64_t> outShape = {3};
    std::vector<float> outHost(3, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnExpGetWorkspaceSize(x, middle, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnExpGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnExp, workspaceSize, executor, stream) == 0, return 1);
    ret = aclnnLogGetWorkspaceSize(middle, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnLogGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnLog, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
