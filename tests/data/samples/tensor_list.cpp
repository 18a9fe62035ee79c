// A list of tensors.
#include "common.h"
#include "aclnnop/aclnn_cat.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> firstShape = {1, 2};
    std::vector<float> firstHost = {1, 2};
    void *firstAddr = nullptr;
    aclTensor *first = nullptr;
    CHECK_RET(CreateAclTensor(firstHost, firstShape, &firstAddr, ACL_FLOAT, &first) == 0, return 1);
    std::vector<int64_t> secondShape = {2, 2};
    std::vector<float> secondHost = {3, 4, 5, 6};
    void *secondAddr = nullptr;
    aclTensor *second = nullptr;
    CHECK_RET(CreateAclTensor(secondHost, secondShape, &secondAddr, ACL_FLOAT, &second) == 0, return 1);
    std::vector<int64_t> outShape = {3, 2};
    std::vector<float> outHost(6, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    std::vector<aclTensor *> list = {first, second};
    aclTensorList *tensors = aclCreateTensorList(list.data(), list.size());
    int64_t dim = 0;
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnCatGetWorkspaceSize(tensors, dim, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnCatGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnCat, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    aclDestroyTensorList(tensors);
    Finish(0, stream);
    return 0;
}
