// Data from a file that is not shipped.
#include "common.h"
#include "aclnnop/aclnn_neg.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> xShape = {2, 2};
    std::vector<float> xHost(4, 0);
    FILE *file = fopen("./x.bin", "rb");
    if (file != nullptr) {
        size_t count = fread(xHost.data(), sizeof(float), xHost.size(), file);
        fclose(file);
        LOG_PRINT("read %zu\n", count);
    }
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
    std::vector<int64_t> outShape = {2, 2};
    std::vector<float> outHost(4, 0);
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
