// A struct that is copied into a tensor of bytes.
#include "common.h"
#include "aclnnop/aclnn_neg.h"
#include <cstring>


struct Header {
    int32_t count;
    float scale;
};

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    Header header = {3, 0.5f};
    std::vector<int8_t> bytesHost(sizeof(Header));
    memcpy(bytesHost.data(), &header, sizeof(Header));
    std::vector<int64_t> bytesShape = {static_cast<int64_t>(sizeof(Header))};
    void *bytesAddr = nullptr;
    aclTensor *bytes = nullptr;
    CHECK_RET(CreateAclTensor(bytesHost, bytesShape, &bytesAddr, ACL_INT8, &bytes) == 0, return 1);
    std::vector<int64_t> outShape = {8};
    std::vector<int8_t> outHost(8, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_INT8, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnNegGetWorkspaceSize(bytes, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnNegGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnNeg, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<int8_t>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
