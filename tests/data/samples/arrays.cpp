// Arrays of floats and bools, a list of scalars and a string, of an operator that is not built in.
#include "common.h"
#include "aclnnop/aclnn_example_mix.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> xShape = {4};
    std::vector<float> xHost = {1, 2, 3, 4};
    void *xAddr = nullptr;
    aclTensor *x = nullptr;
    CHECK_RET(CreateAclTensor(xHost, xShape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
    std::vector<int64_t> outShape = {4};
    std::vector<float> outHost(4, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    std::vector<float> scalesData = {0.1f, 2.5f};
    aclFloatArray *scales = aclCreateFloatArray(scalesData.data(), scalesData.size());
    bool maskData[3] = {true, false, true};
    aclBoolArray *mask = aclCreateBoolArray(maskData, 3);
    float first = 0.5f;
    float second = 3.0f;
    std::vector<aclScalar *> weightsData = {aclCreateScalar(&first, ACL_FLOAT), aclCreateScalar(&second, ACL_FLOAT)};
    aclScalarList *weights = aclCreateScalarList(weightsData.data(), weightsData.size());
    char layout[] = {'T', 'N', 'D', 0};
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnExampleMixGetWorkspaceSize(x, scales, mask, weights, layout, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnExampleMixGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnExampleMix, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
