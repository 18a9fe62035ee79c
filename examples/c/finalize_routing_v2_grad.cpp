// aclnnMoeFinalizeRoutingV2Grad, dropless mode: two tokens, two experts each, with bias.
#include "sample.h"

#include "aclnnop/aclnn_moe_finalize_routing_v2_grad.h"

int main() {
    Session session;
    Tensor<float> grad_y({2, 2}, ACL_FLOAT, {0.3816f, 0.3939f, 0.8474f, 0.1652f});
    // Row-major (token, slot): the layout of forward modes 2 and 3, not that of modes 0 and 1.
    Tensor<int32_t> row_index({4}, ACL_INT32, {1, 3, 0, 2});
    Tensor<float> expanded_x({4, 2}, ACL_FLOAT, {0.6049f, 0.3315f, 0.4954f, 0.3284f, 0.706f, 0.4359f, 0.6514f, 0.9476f});
    Tensor<float> scales({2, 2}, ACL_FLOAT, {0.4708f, 0.0656f, 0.9652f, 0.9512f});
    Tensor<int32_t> experts({2, 2}, ACL_INT32, {0, 1, 0, 1});
    Tensor<float> bias({2, 2}, ACL_FLOAT, {0.6452f, 0.1981f, 0.4159f, 0.9575f});
    Tensor<float> grad_expanded_x({4, 2}, ACL_FLOAT, std::vector<float>(8, 0.0f));
    Tensor<float> grad_scales({2, 2}, ACL_FLOAT, std::vector<float>(4, 0.0f));

    const int64_t drop_pad_mode = 0, active_num = 0, expert_num = 0, expert_capacity = 0;
    uint64_t workspace_size = 0;
    aclOpExecutor *executor = nullptr;
    CHECK(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(
        grad_y.get(), row_index.get(), expanded_x.get(), scales.get(), experts.get(), bias.get(), drop_pad_mode,
        active_num, expert_num, expert_capacity, grad_expanded_x.get(), grad_scales.get(), &workspace_size, &executor));
    std::printf("workspace: %llu bytes\n", static_cast<unsigned long long>(workspace_size));
    session.run(aclnnMoeFinalizeRoutingV2Grad, workspace_size, executor);

    bool good = report("gradExpandedX", grad_expanded_x.fetch(),
                       {0.8179105f, 0.1594510f, 0.1796573f, 0.1854481f, 0.8060469f, 0.1571382f, 0.0250330f, 0.0258398f});
    good &= report("gradScales", grad_scales.fetch(), {0.6426413f, 1.1577005f, 1.1468247f, 1.1808877f});
    return good ? 0 : 1;
}
