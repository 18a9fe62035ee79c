// An operator that changes its first tensor.
#include "common.h"
#include "aclnnop/aclnn_inplace_add.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> selfShape = {2, 2};
    std::vector<float> selfHost = {1, 2, 3, 4};
    void *selfAddr = nullptr;
    aclTensor *self = nullptr;
    CHECK_RET(CreateAclTensor(selfHost, selfShape, &selfAddr, ACL_FLOAT, &self) == 0, return 1);
    std::vector<int64_t> otherShape = {2, 2};
    std::vector<float> otherHost = {10, 20, 30, 40};
    void *otherAddr = nullptr;
    aclTensor *other = nullptr;
    CHECK_RET(CreateAclTensor(otherHost, otherShape, &otherAddr, ACL_FLOAT, &other) == 0, return 1);
    int64_t alphaValue = 2;
    aclScalar *alpha = aclCreateScalar(&alphaValue, aclDataType::ACL_INT64);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnInplaceAddGetWorkspaceSize(self, other, alpha, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnInplaceAddGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnInplaceAdd, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("sum", selfShape, selfAddr);
    Finish(0, stream);
    return 0;
}
