// A range that is null: releases disagree about its meaning.
#include "common.h"
#include "aclnnop/aclnn_moe_token_unpermute_with_ep_grad.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> gradShape = {3, 2};
    std::vector<float> gradHost = {1, 2, -3, 4, 0.5f, -8};
    void *gradAddr = nullptr;
    aclTensor *grad = nullptr;
    CHECK_RET(CreateAclTensor(gradHost, gradShape, &gradAddr, ACL_FLOAT, &grad) == 0, return 1);
    std::vector<int64_t> sortedIndicesShape = {6};
    std::vector<int32_t> sortedIndicesHost = {2, 0, 4, 1, 5, 3};
    void *sortedIndicesAddr = nullptr;
    aclTensor *sortedIndices = nullptr;
    CHECK_RET(CreateAclTensor(sortedIndicesHost, sortedIndicesShape, &sortedIndicesAddr, ACL_INT32, &sortedIndices) == 0, return 1);
    std::vector<int64_t> permutedShape = {6, 2};
    std::vector<float> permutedHost(12, 1);
    void *permutedAddr = nullptr;
    aclTensor *permuted = nullptr;
    CHECK_RET(CreateAclTensor(permutedHost, permutedShape, &permutedAddr, ACL_FLOAT, &permuted) == 0, return 1);
    std::vector<int64_t> probsShape = {3, 2};
    std::vector<float> probsHost = {1, 0.5f, 0.25f, -2, 3, 4};
    void *probsAddr = nullptr;
    aclTensor *probs = nullptr;
    CHECK_RET(CreateAclTensor(probsHost, probsShape, &probsAddr, ACL_FLOAT, &probs) == 0, return 1);
    std::vector<int64_t> permutedGradShape = {6, 2};
    std::vector<float> permutedGradHost(12, 0);
    void *permutedGradAddr = nullptr;
    aclTensor *permutedGrad = nullptr;
    CHECK_RET(CreateAclTensor(permutedGradHost, permutedGradShape, &permutedGradAddr, ACL_FLOAT, &permutedGrad) == 0, return 1);
    std::vector<int64_t> probsGradShape = {3, 2};
    std::vector<float> probsGradHost(6, 0);
    void *probsGradAddr = nullptr;
    aclTensor *probsGrad = nullptr;
    CHECK_RET(CreateAclTensor(probsGradHost, probsGradShape, &probsGradAddr, ACL_FLOAT, &probsGrad) == 0, return 1);
    aclIntArray *range = nullptr;
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize(grad, sortedIndices, permuted, probs, false, nullptr, range, 2,
                                                           permutedGrad, probsGrad, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnMoeTokenUnpermuteWithEpGrad, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("permutedGrad", permutedGradShape, permutedGradAddr);
    PrintOutResult<float>("probsGrad", probsGradShape, probsGradAddr);
    Finish(0, stream);
    return 0;
}
