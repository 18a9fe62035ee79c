// Random input, which no reading of the source can know.
#include "common.h"
#include "aclnnop/aclnn_neg.h"
#include <cstdlib>

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<float> xHost(6);
    for (auto &value : xHost) {
        value = static_cast<float>(rand()) / RAND_MAX;
    }
    std::vector<int64_t> xShape = {2, 3};
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
    std::vector<int64_t> outShape = {2, 3};
    std::vector<float> outHost(6, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnNegGetWorkspaceSize(x, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnNegGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnNeg, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
