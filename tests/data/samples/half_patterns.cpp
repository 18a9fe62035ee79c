// bfloat16 and float16 as bit patterns.
#include "common.h"
#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_cast.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> xShape = {2, 2};
    std::vector<uint16_t> xHost = {0x3F80, 0x4000, 0x3DCD, 0xC0A0};
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, aclDataType::ACL_BF16, &x) == 0, return 1);
    std::vector<int64_t> outShape = {2, 2};
    std::vector<float> outHost(4, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, aclDataType::ACL_FLOAT, &out) == 0, return 1);
    std::vector<int64_t> halfShape = {2};
    std::vector<uint16_t> halfHost = {15360, 0x3555};
    void *halfAddr = nullptr;
    aclTensor *half = nullptr;
    CHECK_RET(CreateAclTensor(halfHost, halfShape, &halfAddr, aclDataType::ACL_FLOAT16, &half) == 0, return 1);
    std::vector<int64_t> wideShape = {2};
    std::vector<float> wideHost(2, 0);
    void *wideAddr = nullptr;
    aclTensor *wide = nullptr;
    CHECK_RET(CreateAclTensor(wideHost, wideShape, &wideAddr, ACL_FLOAT, &wide) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnCastGetWorkspaceSize(x, ACL_FLOAT, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnCastGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnCast, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    ret = aclnnCastGetWorkspaceSize(half, ACL_FLOAT, wide, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnCastGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnCast, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("wide", wideShape, wideAddr);
    Finish(0, stream);
    return 0;
}
