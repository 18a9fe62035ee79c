// Owners with deleters.
#include "common.h"
#include "aclnnop/aclnn_relu.h"
#include <memory>

int Rectify(aclrtStream stream) {
    std::vector<int64_t> shape = {2, 2};
    std::vector<float> xHost = {-1, 2, -3, 4};
    std::vector<float> outHost(4, 0.0f);
    void *xAddr = nullptr, *outAddr = nullptr;
    aclTensor *x = nullptr, *out = nullptr;
    auto ret = CreateAclTensor(xHost, shape, &xAddr, ACL_FLOAT, &x);
    std::unique_ptr<aclTensor, aclnnStatus (*)(const aclTensor *)> xPtr(x, aclDestroyTensor);
    std::unique_ptr<void, aclError (*)(void *)> xAddrPtr(xAddr, aclrtFree);
    CHECK_RET(ret == ACL_SUCCESS, return 1);
    ret = CreateAclTensor(outHost, shape, &outAddr, ACL_FLOAT, &out);
    std::unique_ptr<aclTensor, aclnnStatus (*)(const aclTensor *)> outPtr(out, aclDestroyTensor);
    std::unique_ptr<void, aclError (*)(void *)> outAddrPtr(outAddr, aclrtFree);
    CHECK_RET(ret == ACL_SUCCESS, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    ret = aclnnReluGetWorkspaceSize(xPtr.get(), outPtr.get(), &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, return 1);
    CHECK_RET(Run(aclnnRelu, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", shape, outAddr);
    return 0;
}

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    int status = Rectify(stream);
    Finish(0, stream);
    return status;
}
