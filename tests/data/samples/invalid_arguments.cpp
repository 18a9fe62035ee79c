// Not C++: aclCreateTensor has nine parameters.
#include "common.h"
#include "aclnnop/aclnn_neg.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<int64_t> shape = {2};
    void *address = nullptr;
    CHECK_RET(aclrtMalloc(&address, 8, ACL_MEM_MALLOC_HUGE_FIRST) == 0, return 1);
    aclTensor *x = aclCreateTensor(shape.data(), shape.size(), ACL_FLOAT, ACL_FORMAT_ND, address);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    CHECK_RET(aclnnNegGetWorkspaceSize(x, x, &workspaceSize, &executor) == 0, return 1);
    return Run(aclnnNeg, workspaceSize, executor, stream);
}
