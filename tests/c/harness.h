// Checks and a small V2Grad / UnpermuteWithEpGrad call for the C tests of the emulator.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "acl/acl.h"
#include "aclnn_emulator.h"
#include "aclnnop/aclnn_moe_finalize_routing_v2_grad.h"
#include "aclnnop/aclnn_moe_token_unpermute_with_ep_grad.h"

#define EXPECT(condition)                                                                    \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition);          \
            const char *text_ = aclGetRecentErrMsg();                                        \
            fprintf(stderr, "  last error: %s\n", text_ != nullptr ? text_ : "(none)");      \
            exit(1);                                                                         \
        }                                                                                    \
    } while (0)

#define EXPECT_CODE(call, expected)                                                                       \
    do {                                                                                                  \
        long long got_ = (call), want_ = (expected);                                                      \
        if (got_ != want_) {                                                                              \
            fprintf(stderr, "%s:%d: %s gave %lld, expected %lld\n", __FILE__, __LINE__, #call, got_, want_); \
            const char *text_ = aclGetRecentErrMsg();                                                     \
            fprintf(stderr, "  last error: %s\n", text_ != nullptr ? text_ : "(none)");                   \
            exit(1);                                                                                      \
        }                                                                                                 \
    } while (0)

#define OK(call) EXPECT_CODE(call, 0)

inline int64_t count(const char *what) { return aclnnEmulatorCount(what); }

inline std::string violation_text() {
    char buffer[512] = "";
    aclnnEmulatorViolation(buffer, sizeof buffer);
    return buffer;
}

// Runs the call and expects exactly one more violation, whose text contains the words.
#define EXPECT_VIOLATION(call, expected, words)                                \
    do {                                                                       \
        int64_t before_ = count("violations");                                 \
        EXPECT_CODE(call, expected);                                           \
        EXPECT_CODE(count("violations") - before_, 1);                         \
        if (violation_text().find(words) == std::string::npos) {               \
            fprintf(stderr, "%s:%d: violation says: %s\n", __FILE__, __LINE__, violation_text().c_str()); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

inline std::string error_text() {
    const char *text = aclGetRecentErrMsg();
    return text != nullptr ? text : "";
}

struct Tensor {
    void *data = nullptr;
    aclTensor *handle = nullptr;
    std::vector<int64_t> dims;
    size_t bytes = 0;

    template <class T>
    Tensor(std::vector<int64_t> dims_, aclDataType dtype, const std::vector<T> &values) : dims(std::move(dims_)) {
        bytes = values.size() * sizeof(T);
        OK(aclrtMalloc(&data, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        OK(aclrtMemcpy(data, bytes, values.data(), bytes, ACL_MEMCPY_HOST_TO_DEVICE));
        make(dtype);
    }
    void make(aclDataType dtype) {
        handle = aclCreateTensor(dims.data(), dims.size(), dtype, nullptr, 0, ACL_FORMAT_ND, dims.data(), dims.size(),
                                 data);
        EXPECT(handle != nullptr);
    }
    template <class T>
    std::vector<T> read() const {
        std::vector<T> out(bytes / sizeof(T));
        OK(aclrtMemcpy(out.data(), bytes, data, bytes, ACL_MEMCPY_DEVICE_TO_HOST));
        return out;
    }
    ~Tensor() {
        if (handle != nullptr) aclDestroyTensor(handle);
        if (data != nullptr) aclrtFree(data);
    }
    Tensor(const Tensor &) = delete;
    Tensor &operator=(const Tensor &) = delete;
};

// aclnnMoeFinalizeRoutingV2Grad on R=2, K=1, H=4: gradExpandedX is gradY with its rows swapped.
struct Grad {
    Tensor grad_y{{2, 4}, ACL_FLOAT, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}};
    Tensor rows{{2}, ACL_INT32, std::vector<int32_t>{1, 0}};
    Tensor out{{2, 4}, ACL_FLOAT, std::vector<float>(8, 0.0f)};
    Tensor scales_out{{2, 1}, ACL_FLOAT, std::vector<float>(2, 0.0f)};
    uint64_t size = 12345;
    aclOpExecutor *executor = nullptr;
    void *workspace = nullptr;

    aclnnStatus one() {
        return aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(grad_y.handle, rows.handle, nullptr, nullptr, nullptr,
                                                             nullptr, 0, 0, 0, 0, out.handle, scales_out.handle, &size,
                                                             &executor);
    }
    void need_workspace() {
        if (workspace == nullptr && size > 0) OK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    aclnnStatus two(aclrtStream stream) { return aclnnMoeFinalizeRoutingV2Grad(workspace, size, executor, stream); }
    bool right() const { return out.read<float>() == std::vector<float>{5, 6, 7, 8, 1, 2, 3, 4}; }
    void clear() {
        std::vector<float> zeros(8, 0.0f);
        OK(aclrtMemcpy(out.data, 32, zeros.data(), 32, ACL_MEMCPY_HOST_TO_DEVICE));
    }
    ~Grad() {
        if (workspace != nullptr) aclrtFree(workspace);
    }
};

// aclnnMoeTokenUnpermuteWithEpGrad, a generated operator: 2 tokens, K=1, H=4, no probs; rows swapped as well.
struct EpGrad {
    Tensor grad{{2, 4}, ACL_FLOAT, std::vector<float>{1, 2, 3, 4, 5, 6, 7, 8}};
    Tensor indices{{2}, ACL_INT32, std::vector<int32_t>{1, 0}};
    Tensor out{{2, 4}, ACL_FLOAT, std::vector<float>(8, 0.0f)};
    Tensor probs_out{{2, 1}, ACL_FLOAT, std::vector<float>(2, 0.0f)};
    aclIntArray *range;
    uint64_t size = 12345;
    aclOpExecutor *executor = nullptr;
    void *workspace = nullptr;

    EpGrad() {
        int64_t all[2] = {0, 2};
        range = aclCreateIntArray(all, 2);
    }
    aclnnStatus one(int64_t topk = 1) {
        return aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize(grad.handle, indices.handle, nullptr, nullptr, false,
                                                                nullptr, range, topk, out.handle, probs_out.handle,
                                                                &size, &executor);
    }
    void need_workspace() {
        if (workspace == nullptr && size > 0) OK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    aclnnStatus two(aclrtStream stream) { return aclnnMoeTokenUnpermuteWithEpGrad(workspace, size, executor, stream); }
    bool right() const { return out.read<float>() == std::vector<float>{5, 6, 7, 8, 1, 2, 3, 4}; }
    ~EpGrad() {
        aclDestroyIntArray(range);
        if (workspace != nullptr) aclrtFree(workspace);
    }
};

// Initialised library, device 0, one stream.
struct Session {
    aclrtStream stream = nullptr;
    Session() {
        OK(aclInit(nullptr));
        OK(aclrtSetDevice(0));
        OK(aclrtCreateStream(&stream));
    }
    ~Session() {
        OK(aclrtDestroyStream(stream));
        OK(aclrtResetDevice(0));
        OK(aclFinalize());
    }
};

inline void expect_no_handles() {
    for (const char *what : {"tensors", "scalars", "arrays", "lists", "executors", "streams", "events", "contexts",
                             "device_bytes", "device_allocations", "host_bytes", "host_allocations"}) {
        if (count(what) != 0) {
            fprintf(stderr, "left over: %lld %s\n", static_cast<long long>(count(what)), what);
            exit(1);
        }
    }
}
