// One function for every element type.
#include "common.h"
#include "aclnnop/aclnn_neg.h"


template <typename T>
int Negate(aclrtStream stream, aclDataType dtype, const std::vector<T> &host) {
    std::vector<int64_t> shape = {static_cast<int64_t>(host.size())};
    std::vector<T> zeros(host.size(), 0);
    void *xAddr = nullptr, *outAddr = nullptr;
    aclTensor *x = nullptr, *out = nullptr;
    CHECK_RET(CreateAclTensor(host, shape, &xAddr, dtype, &x) == 0, return 1);
    CHECK_RET(CreateAclTensor(zeros, shape, &outAddr, dtype, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK_RET(aclnnNegGetWorkspaceSize(x, out, &workspaceSize, &executor) == 0, return 1);
    CHECK_RET(Run(aclnnNeg, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<T>("out", shape, outAddr);
    aclDestroyTensor(x);
    aclDestroyTensor(out);
    aclrtFree(xAddr);
    aclrtFree(outAddr);
    return 0;
}

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    CHECK_RET(Negate<float>(stream, ACL_FLOAT, {1.5f, -2}) == 0, return 1);
    CHECK_RET(Negate<int32_t>(stream, ACL_INT32, {3, 4}) == 0, return 1);
    Finish(0, stream);
    return 0;
}
