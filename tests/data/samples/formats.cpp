// A named layout, and a private format whose storage has another shape.
#include "common.h"
#include "aclnnop/aclnn_example_resize.h"

int main() {
    aclrtStream stream;
    CHECK_RET(Init(0, &stream) == 0, return 1);
    std::vector<float> imageHost = {1, 2, 3, 4};
    std::vector<int64_t> imageShape = {1, 1, 2, 2};
    std::vector<int64_t> imageStrides = {4, 4, 2, 1};
    void *imageAddr = nullptr;
    CHECK_RET(aclrtMalloc(&imageAddr, 4 * sizeof(float), ACL_MEM_MALLOC_HUGE_FIRST) == 0, return 1);
    CHECK_RET(aclrtMemcpy(imageAddr, 4 * sizeof(float), imageHost.data(), 4 * sizeof(float),
                          ACL_MEMCPY_HOST_TO_DEVICE) == 0, return 1);
    aclTensor *image = aclCreateTensor(imageShape.data(), 4, ACL_FLOAT, imageStrides.data(), 0, ACL_FORMAT_NCHW,
                                       imageShape.data(), 4, imageAddr);
    std::vector<uint16_t> weightHost(512, 0x3C00);
    std::vector<int64_t> weightShape = {16, 32};
    std::vector<int64_t> weightStrides = {32, 1};
    std::vector<int64_t> weightStorage = {2, 1, 16, 16};
    void *weightAddr = nullptr;
    CHECK_RET(aclrtMalloc(&weightAddr, 1024, ACL_MEM_MALLOC_HUGE_FIRST) == 0, return 1);
    CHECK_RET(aclrtMemcpy(weightAddr, 1024, weightHost.data(), 1024, ACL_MEMCPY_HOST_TO_DEVICE) == 0, return 1);
    aclTensor *weight = aclCreateTensor(weightShape.data(), 2, ACL_FLOAT16, weightStrides.data(), 0,
                                        ACL_FORMAT_FRACTAL_NZ, weightStorage.data(), 4, weightAddr);
    std::vector<int64_t> outShape = {1, 1, 2, 2};
    std::vector<float> outHost(4, 0);
    void *outAddr = nullptr;
    aclTensor *out = nullptr;
    CHECK_RET(CreateAclTensor(outHost, outShape, &outAddr, ACL_FLOAT, &out) == 0, return 1);
    uint64_t workspaceSize = 0;
    aclOpExecutor *executor = nullptr;
    auto ret = aclnnExampleResizeGetWorkspaceSize(image, weight, out, &workspaceSize, &executor);
    CHECK_RET(ret == ACL_SUCCESS, LOG_PRINT("aclnnExampleResizeGetWorkspaceSize failed: %d\n", ret); return 1);
    CHECK_RET(Run(aclnnExampleResize, workspaceSize, executor, stream) == 0, return 1);
    PrintOutResult<float>("out", outShape, outAddr);
    Finish(0, stream);
    return 0;
}
