// One thread for each device, and communication between them.
#include <thread>

#include "common.h"
#include "hccl/hccl.h"
#include "aclnnop/aclnn_all_gather_matmul.h"

int Rank(int32_t device, HcclComm comm) {
    aclrtStream stream;
    CHECK_RET(aclrtSetDevice(device) == 0, return 1);
    CHECK_RET(aclrtCreateStream(&stream) == 0, return 1);
    char group[128] = {0};
    CHECK_RET(HcclGetCommName(comm, group) == 0, return 1);
    std::vector<uint16_t> xHost(16 * 16, 0x3C00);
    std::vector<int64_t> shape = {16, 16};
    std::vector<int64_t> outShape = {32, 16};
    std::vector<uint16_t> outHost(32 * 16, 0);
    void *xAddr = nullptr, *yAddr = nullptr, *outAddr = nullptr, *gatherAddr = nullptr;
    aclTensor *x = nullptr, *y = nullptr, *out = nullptr, *gather = nullptr;
    CHECK_RET(CreateAclTensor(xHost, shape, &xAddr, ACL_FLOAT16, &x) == 0, return 1);
    CHECK_RET(CreateAclTensor(xHost, shape, &yAddr, ACL_FLOAT16, &y) == 0, return 1);
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT16, &out) == 0, return 1);
    CHECK_RET(CreateAclTensor(outHost, outShape, &gatherAddr, ACL_FLOAT16, &gather) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnAllGatherMatmulGetWorkspaceSize(x, y, nullptr, group, 0, 0, 1, out, gather, &workspaceSize, &executor);
    CHECK_RET(ret == 0, return 1);
    return Run(aclnnAllGatherMatmul, workspaceSize, executor, stream);
}

int main() {
    CHECK_RET(aclInit(nullptr) == 0, return 1);
    int32_t devices[2] = {0, 1};
    HcclComm comms[2];
    CHECK_RET(HcclCommInitAll(2, devices, comms) == 0, return 1);
    std::vector<std::thread> threads;
    for (int i = 0; i < 2; i++) {
        threads.emplace_back(Rank, devices[i], comms[i]);
    }
    for (auto &thread : threads) {
        thread.join();
    }
    return 0;
}
