// Fills by constructor, by loop, and a pattern that repeats.
#include "common.h"
#include "aclnnop/aclnn_mul.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> shape = {16, 32};
    std::vector<float> rampHost(16 * 32);
    for (size_t i = 0; i < rampHost.size(); i++) {
        rampHost[i] = static_cast<float>(i % 8);
    }
    std::vector<float> halfHost(16 * 32, 0.5f);
    std::vector<float> outHost(16 * 32, 0.0f);
    void *rampAddr = nullptr, *halfAddr = nullptr, *outAddr = nullptr;
    aclTensor *ramp = nullptr, *half = nullptr, *out = nullptr;
    CHECK_RET(CreateAclTensor(rampHost, shape, &rampAddr, ACL_FLOAT, &ramp) == 0, return 1);
    CHECK_RET(CreateAclTensor(halfHost, shape, &halfAddr, ACL_FLOAT, &half) == 0, return 1);
    CHECK_RET(CreateAclTensor(outHost, shape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnMulGetWorkspaceSize(ramp, half, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnMulGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnMul, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", shape, outAddr);
    Finish(0, stream);
    return 0;
}
