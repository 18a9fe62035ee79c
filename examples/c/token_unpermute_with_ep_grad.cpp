// aclnnMoeTokenUnpermuteWithEpGrad: this rank owns positions [1, 5) of the six in expert order.
#include "sample.h"

#include "aclnnop/aclnn_moe_token_unpermute_with_ep_grad.h"

int main() {
    Session session;
    Tensor<float> grad({3, 2}, ACL_FLOAT, {1, 2, -3, 4, 0.5f, -8});
    Tensor<int32_t> sorted_indices({6}, ACL_INT32, {2, 0, 4, 1, 5, 3});
    // All six rows, as the newest releases insist; only the first four are this rank's.
    Tensor<float> permuted({6, 2}, ACL_FLOAT, {1, 10, 2, 20, 3, 30, 4, 40, 5, 50, 6, 60});
    Tensor<float> probs({3, 2}, ACL_FLOAT, {1, 0.5f, 0.25f, -2, 3, 4});
    Tensor<float> permuted_grad({6, 2}, ACL_FLOAT, std::vector<float>(12, 0.0f));
    Tensor<float> probs_grad({3, 2}, ACL_FLOAT, std::vector<float>(6, 0.0f));

    // Said explicitly: released versions disagree about a null range.
    const int64_t range_values[] = {1, 5};
    aclIntArray *range = aclCreateIntArray(range_values, 2);
    uint64_t workspace_size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize(
        grad.get(), sorted_indices.get(), permuted.get(), probs.get(), /*paddedMode=*/false,
        /*restoreShapeOptional=*/nullptr, range, /*topkNum=*/2, permuted_grad.get(), probs_grad.get(), &workspace_size,
        &executor));
    std::printf("workspace: %llu bytes\n", static_cast<unsigned long long>(workspace_size));
    session.run(aclnnMoeTokenUnpermuteWithEpGrad, workspace_size, executor);
    CHECK(aclDestroyIntArray(range));

    bool good = report("permutedTokensGrad", permuted_grad.fetch(), {6, -8, 1, 2, 2, -32, -0.75f, 1, 0, 0, 0, 0});
    good &= report("probsGrad", probs_grad.fetch(), {42, 0, 148, 37, 0, -238.5f});
    return good ? 0 : 1;
}
