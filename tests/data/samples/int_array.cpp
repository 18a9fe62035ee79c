// An array of integers, a bool and a dtype among the attributes.
#include "common.h"
#include "aclnnop/aclnn_reduce_sum.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> selfShape = {2, 3};
    std::vector<float> selfHost = {1, 2, 3, 4, 5, 6};
    void *selfAddr = nullptr;
    aclTensor *self = nullptr;
    CHECK_RET(CreateAclTensor(selfHost, selfShape, &selfAddr, ACL_FLOAT, &self) == 0, return 1);
    std::vector<int64_t> outShape = {2, 1};
    std::vector<float> outHost(2, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    std::vector<int64_t> dimsData = {1};
    aclIntArray *dims = aclCreateIntArray(dimsData.data(), dimsData.size());
    bool keepDims = true;
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnReduceSumGetWorkspaceSize(self, dims, keepDims, aclDataType::ACL_FLOAT, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnReduceSumGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnReduceSum, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
