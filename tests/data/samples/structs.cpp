// Cases in a table of structs.
#include "common.h"
#include "aclnnop/aclnn_muls.h"


struct Case {
    std::vector<float> host;
    std::vector<int64_t> shape;
    float factor;
};

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<Case> cases = {{{1, 2, 3}, {3}, 2.0f}, {{4, 5, 6, 7}, {2, 2}, 0.5f}};
    for (auto &c : cases) {
        std::vector<float> zeros(c.host.size(), 0);
        void *xAddr = nullptr, *outAddr = nullptr;
        aclTensor *x = nullptr, *out = nullptr;
        CHECK_RET(CreateAclTensor(c.host, c.shape, &xAddr, ACL_FLOAT, &x) == 0, return 1);
        CHECK_RET(CreateAclTensor(zeros, c.shape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
        aclScalar *factor = aclCreateScalar(&c.factor, ACL_FLOAT);
        uint64_t workspaceSize = 0;
        aclOpExecutor *executor = nullptr;
        CHECK_RET(aclnnMulsGetWorkspaceSize(x, factor, out, &workspaceSize, &executor) == 0, return 1);
        CHECK_RET(Run(aclnnMuls, workspaceSize, executor, stream) == 0, return 1);
        PrintOutResult<float>("out", c.shape, outAddr);
        aclDestroyTensor(x);
        aclDestroyTensor(out);
        aclDestroyScalar(factor);
        aclrtFree(xAddr);
        aclrtFree(outAddr);
    }
    Finish(0, stream);
    return 0;
}
