// Optional tensors that are null, by name and by a pointer that nothing is assigned to; an output that is not read.
#include "common.h"
#include "aclnnop/aclnn_moe_finalize_routing_v2_grad.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> gradYShape = {2, 2};
    std::vector<float> gradYHost = {1, 2, 3, 4};
    void *gradYAddr = nullptr;
    aclTensor *gradY = nullptr;
    CHECK_RET(CreateAclTensor(gradYHost, gradYShape, &gradYAddr, ACL_FLOAT, &gradY) == 0, return 1);
    std::vector<int64_t> rowIdxShape = {2};
    std::vector<int32_t> rowIdxHost = {1, 0};
    void *rowIdxAddr = nullptr;
    aclTensor *rowIdx = nullptr;
    CHECK_RET(CreateAclTensor(rowIdxHost, rowIdxShape, &rowIdxAddr, ACL_INT32, &rowIdx) == 0, return 1);
    std::vector<int64_t> gradXShape = {2, 2};
    std::vector<float> gradXHost(4, 0);
    void *gradXAddr = nullptr;
    aclTensor *gradX = nullptr;
    CHECK_RET(CreateAclTensor(gradXHost, gradXShape, &gradXAddr, ACL_FLOAT, &gradX) == 0, return 1);
    std::vector<int64_t> gradScalesShape = {2, 1};
    std::vector<float> gradScalesHost(2, 0);
    void *gradScalesAddr = nullptr;
    aclTensor *gradScales = nullptr;
    CHECK_RET(CreateAclTensor(gradScalesHost, gradScalesShape, &gradScalesAddr, ACL_FLOAT, &gradScales) == 0, return 1);
    aclTensor *scales = nullptr;
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(gradY, rowIdx, nullptr, scales, nullptr, nullptr, 0, 0, 0, 0, gradX,
                                                        gradScales, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnMoeFinalizeRoutingV2Grad, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("gradX", gradXShape, gradXAddr);
    Finish(0, stream);
    return 0;
}
