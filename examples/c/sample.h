// What both samples share: status checks, and tensors that own their device memory.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <utility>
#include <vector>

#include "acl/acl.h"
#include "aclnn/acl_meta.h"

// Stops with the status and CANN's own text.
inline void check(int status, const char *call) {
    if (status == 0) return;
    const char *text = aclGetRecentErrMsg();
    std::fprintf(stderr, "%s failed: %d\n%s\n", call, status, text ? text : "");
    std::exit(1);
}
#define CHECK(call) check((call), #call)

// A contiguous ND tensor in device memory, filled from host values.
template <typename T>
class Tensor {
public:
    Tensor(std::vector<int64_t> shape, aclDataType dtype, std::vector<T> values)
        : values_(std::move(values)), bytes_(values_.size() * sizeof(T)) {
        CHECK(aclrtMalloc(&device_, bytes_, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(aclrtMemcpy(device_, bytes_, values_.data(), bytes_, ACL_MEMCPY_HOST_TO_DEVICE));
        std::vector<int64_t> strides(shape.size(), 1);
        for (size_t i = shape.size(); i-- > 1;) strides[i - 1] = strides[i] * shape[i];
        handle_ = aclCreateTensor(shape.data(), shape.size(), dtype, strides.data(), 0, ACL_FORMAT_ND, shape.data(),
                                  shape.size(), device_);
        check(handle_ ? 0 : 1, "aclCreateTensor");
    }
    Tensor(const Tensor &) = delete;
    Tensor &operator=(const Tensor &) = delete;
    ~Tensor() {
        aclDestroyTensor(handle_);
        aclrtFree(device_);
    }

    aclTensor *get() const { return handle_; }

    // Copies back; the stream must have been synchronised.
    const std::vector<T> &fetch() {
        CHECK(aclrtMemcpy(values_.data(), bytes_, device_, bytes_, ACL_MEMCPY_DEVICE_TO_HOST));
        return values_;
    }

private:
    std::vector<T> values_;
    size_t bytes_;
    void *device_ = nullptr;
    aclTensor *handle_ = nullptr;
};

// Device 0, one stream and a workspace that lives until the stream has passed.
class Session {
public:
    Session() {
        CHECK(aclInit(nullptr));
        CHECK(aclrtSetDevice(0));
        CHECK(aclrtCreateStream(&stream_));
    }
    ~Session() {
        aclrtDestroyStream(stream_);
        aclrtResetDevice(0);
        aclFinalize();
    }

    using Run = aclnnStatus (*)(void *, uint64_t, aclOpExecutor *, aclrtStream);

    // Second stage: workspace, run, wait.
    void run(Run stage_two, uint64_t bytes, aclOpExecutor *executor) {
        void *workspace = nullptr;
        if (bytes > 0) CHECK(aclrtMalloc(&workspace, bytes, ACL_MEM_MALLOC_HUGE_FIRST));
        CHECK(stage_two(workspace, bytes, executor, stream_));
        CHECK(aclrtSynchronizeStream(stream_));
        if (workspace) CHECK(aclrtFree(workspace));
    }

private:
    aclrtStream stream_ = nullptr;
};

// Prints a result and compares it with the expected numbers.
inline bool report(const char *name, const std::vector<float> &got, const std::vector<float> &expected) {
    bool good = got.size() == expected.size();
    std::printf("%s:", name);
    for (size_t i = 0; i < got.size(); ++i) {
        std::printf(" %.6f", got[i]);
        if (good && !(std::fabs(got[i] - expected[i]) <= 1e-6f)) good = false;
    }
    std::printf("  %s\n", good ? "ok" : "WRONG");
    return good;
}
