// The same call for several values of an attribute.
#include "common.h"
#include "aclnnop/aclnn_softmax.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> xShape = {2, 2};
    std::vector<float> xHost = {1, 2, 3, 4};
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
    std::vector<int64_t> outShape = {2, 2};
    std::vector<float> outHost(4, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    for (int64_t dim = 0; dim < 2; dim++) {
        uint64_t workspaceSize = 0;
        aclOpExecutor *executor = nullptr;
        auto ret = aclnnSoftmaxGetWorkspaceSize(x, dim, out, &workspaceSize, &executor);
        CHECK_RET(ret == ACL_SUCCESS, return 1);
        CHECK_RET(Run(aclnnSoftmax, workspaceSize, executor, stream) == 0, return 1);
        PrintOutResult<float>("out", outShape, outAddr);
    }
    Finish(0, stream);
    return 0;
}
