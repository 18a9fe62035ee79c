// Rules that CANN does not check: strict mode fails the call, tolerant mode records the violation and goes on.
#include "harness.h"

static aclTensor *tensor_on(void *data, std::vector<int64_t> dims, int64_t offset = 0) {
    return aclCreateTensor(dims.data(), dims.size(), ACL_FLOAT, nullptr, offset, ACL_FORMAT_ND, dims.data(),
                           dims.size(), data);
}

static void double_destroy() {
    int64_t dims[1] = {2}, numbers[2] = {1, 2};
    int words[2] = {};
    float number = 1;
    bool flag = true;
    aclTensor *t = tensor_on(words, {2});
    OK(aclDestroyTensor(t));
    EXPECT_VIOLATION(aclDestroyTensor(t), 161002, "already destroyed");
    EXPECT_VIOLATION(aclDestroyTensor(reinterpret_cast<aclTensor *>(dims)), 161002, "no such handle");
    OK(aclDestroyTensor(nullptr));
    aclIntArray *ints = aclCreateIntArray(numbers, 2);
    OK(aclDestroyIntArray(ints));
    EXPECT_VIOLATION(aclDestroyIntArray(ints), 161002, "already destroyed");
    aclScalar *scalar = aclCreateScalar(&number, ACL_FLOAT);
    OK(aclDestroyScalar(scalar));
    EXPECT_VIOLATION(aclDestroyScalar(scalar), 161002, "already destroyed");
    aclFloatArray *floats = aclCreateFloatArray(&number, 1);
    EXPECT_VIOLATION(aclDestroyBoolArray(reinterpret_cast<aclBoolArray *>(floats)), 161002, "no such handle");
    OK(aclDestroyFloatArray(floats));
    aclBoolArray *bools = aclCreateBoolArray(&flag, 1);
    OK(aclDestroyBoolArray(bools));
    aclnnEmulatorSetStrict(0);
    EXPECT_VIOLATION(aclDestroyTensor(t), 0, "already destroyed");
    EXPECT_VIOLATION(aclDestroyTensor(reinterpret_cast<aclTensor *>(dims)), 0, "no such handle");
    aclnnEmulatorSetStrict(1);
}

static void lists_own_their_elements() {
    int words[2] = {};
    const aclTensor *pair[3] = {tensor_on(words, {2}), nullptr, tensor_on(words, {2})};
    aclTensorList *list = aclCreateTensorList(pair, 3);
    uint64_t size = 0;
    OK(aclGetTensorListSize(list, &size));
    EXPECT(size == 3);
    EXPECT_CODE(count("tensors"), 2);
    OK(aclDestroyTensorList(list));
    EXPECT_CODE(count("tensors"), 0);
    EXPECT_VIOLATION(aclDestroyTensorList(list), 161002, "already destroyed");
    EXPECT_VIOLATION(aclDestroyTensor(pair[0]), 161002, "already destroyed");
    pair[0] = tensor_on(words, {2});
    list = aclCreateTensorList(pair, 1);
    OK(aclDestroyTensor(pair[0]));
    EXPECT_VIOLATION(aclDestroyTensorList(list), 161002, "the list destroys its elements");
    double value = 1;
    const aclScalar *scalars[1] = {aclCreateScalar(&value, ACL_DOUBLE)};
    aclScalarList *scalar_list = aclCreateScalarList(scalars, 1);
    OK(aclDestroyScalarList(scalar_list));
    EXPECT_CODE(count("scalars"), 0);
    EXPECT_CODE(count("lists"), 0);
}

static void descriptors() {
    int64_t dims[2] = {2, 3}, many[26] = {};
    EXPECT(aclCreateTensor(nullptr, 2, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, nullptr) == nullptr);
    EXPECT(aclCreateTensor(many, 26, ACL_FLOAT, nullptr, 0, ACL_FORMAT_ND, dims, 2, nullptr) == nullptr);
    aclTensor *t = aclCreateTensor(dims, 2, ACL_FLOAT, nullptr, 5, ACL_FORMAT_NCL, dims, 1, dims);
    int64_t *values = nullptr, offset = 0;
    uint64_t n = 0;
    aclFormat format;
    aclDataType dtype;
    OK(aclGetViewStrides(t, &values, &n));
    EXPECT(n == 2 && values[0] == 3 && values[1] == 1);  // null strides: contiguous
    delete[] values;
    OK(aclGetViewShape(t, &values, &n));
    EXPECT(n == 2 && values[0] == 2 && values[1] == 3);
    delete[] values;
    OK(aclGetStorageShape(t, &values, &n));
    EXPECT(n == 1 && values[0] == 2);
    delete[] values;
    OK(aclGetViewOffset(t, &offset));
    OK(aclGetFormat(t, &format));
    OK(aclGetDataType(t, &dtype));
    EXPECT(offset == 5 && format == ACL_FORMAT_NCL && dtype == ACL_FLOAT);
    OK(aclInitTensor(t, dims, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, dims, 1, nullptr));
    OK(aclGetDataType(t, &dtype));
    EXPECT(dtype == ACL_INT8);
    EXPECT_CODE(aclInitTensor(nullptr, dims, 1, ACL_INT8, nullptr, 0, ACL_FORMAT_ND, dims, 1, nullptr), 161001);
    EXPECT_CODE(aclGetViewShape(nullptr, &values, &n), 161001);
    EXPECT_CODE(aclSetRawTensorAddr(nullptr, dims), 161001);
    OK(aclDestroyTensor(t));
    EXPECT_VIOLATION(aclGetFormat(t, &format), 161002, "already destroyed");
    EXPECT(aclCreateScalar(nullptr, ACL_FLOAT) == nullptr);
    EXPECT(aclCreateScalar(dims, ACL_STRING) == nullptr && aclCreateScalar(dims, ACL_INT4) == nullptr);
    EXPECT(aclCreateIntArray(nullptr, 1) == nullptr);
    aclIntArray *empty = aclCreateIntArray(nullptr, 0);
    EXPECT(empty != nullptr);
    OK(aclGetIntArraySize(empty, &n));
    EXPECT(n == 0);
    EXPECT_CODE(aclGetIntArraySize(nullptr, &n), 161001);
    OK(aclDestroyIntArray(empty));
}

static void frees(Session &s) {
    void *p = nullptr;
    OK(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(p));
    EXPECT_VIOLATION(aclrtFree(p), 107000, "freed already");
    EXPECT_VIOLATION(aclrtFree(&p), 107000, "not allocated");
    char word[4];
    EXPECT_VIOLATION(aclrtMemcpy(word, 4, p, 4, ACL_MEMCPY_DEVICE_TO_HOST), 107000, "freed memory");
    EXPECT_VIOLATION(aclrtMemset(p, 4, 0, 4), 107000, "freed memory");
    OK(aclrtMallocHost(&p, 64));
    EXPECT_VIOLATION(aclrtFree(p), 107000, "not allocated by aclrtMalloc");
    OK(aclrtFreeHost(p));
    // large blocks are mapped, and their addresses keep being watched after the free
    OK(aclrtMalloc(&p, 8 << 20, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(p));
    aclnnEmulatorSetStrict(0);
    EXPECT_VIOLATION(aclrtMemcpy(word, 4, p, 4, ACL_MEMCPY_DEVICE_TO_HOST), 0, "freed memory");
    EXPECT_VIOLATION(aclrtFree(p), 107000, "freed already");
    aclnnEmulatorSetStrict(1);

    Grad g;
    OK(g.one());
    g.need_workspace();
    OK(g.two(s.stream));
    // whether or not the kernel has run: the host has not waited for it
    EXPECT_VIOLATION(aclrtFree(g.workspace), 107000, "still needed by queued work");
    EXPECT_VIOLATION(aclrtFree(g.out.data), 107000, "still needed by queued work");
    EXPECT_VIOLATION(aclrtMemset(g.out.data, 4, 0, 4), 107000, "still used by queued work");
    aclrtEvent event = nullptr;
    OK(aclrtCreateEvent(&event));
    OK(aclrtRecordEvent(event, s.stream));
    OK(aclrtSynchronizeEvent(event));
    OK(aclrtDestroyEvent(event));
    OK(aclrtFree(g.workspace));
    g.workspace = nullptr;
    EXPECT(g.right());

    aclnnEmulatorSetStrict(0);  // tolerant: memory that is freed too early stays until the work has run
    OK(g.one());
    g.need_workspace();
    Tensor *out = &g.out;
    aclnnEmulatorSetDelay(30);
    OK(g.two(s.stream));
    EXPECT_VIOLATION(aclrtFree(out->data), 0, "still needed");
    out->data = nullptr;
    OK(aclrtSynchronizeStream(s.stream));
    aclnnEmulatorSetDelay(0);
    aclnnEmulatorSetStrict(1);
}

static void copies() {
    void *p = nullptr;
    std::vector<char> host(100000, 'x');
    OK(aclrtMalloc(&p, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    EXPECT_VIOLATION(aclrtMemcpy(p, 65, host.data(), 65, ACL_MEMCPY_HOST_TO_DEVICE), 107000, "its allocation has 64");
    EXPECT_VIOLATION(aclrtMemcpy(host.data(), 65, p, 65, ACL_MEMCPY_DEVICE_TO_HOST), 107000, "its allocation has 64");
    EXPECT_VIOLATION(aclrtMemset(p, 65, 0, 65), 107000, "its allocation has 64");
    EXPECT_VIOLATION(aclrtMemcpy(p, 64, host.data(), 64, ACL_MEMCPY_DEVICE_TO_DEVICE), 107000, "is host memory");
    EXPECT_VIOLATION(aclrtMemcpy(p, 64, host.data(), 64, ACL_MEMCPY_HOST_TO_HOST), 107000, "is device memory");
    EXPECT_VIOLATION(aclrtMemcpy(host.data(), 4, &p, 4, ACL_MEMCPY_DEVICE_TO_HOST), 107000, "is host memory");
    aclnnEmulatorSetStrict(0);  // clamped to what is there
    EXPECT_VIOLATION(aclrtMemcpy(p, 100000, host.data(), 100000, ACL_MEMCPY_HOST_TO_DEVICE), 0, "its allocation has 64");
    EXPECT_VIOLATION(aclrtMemcpy(host.data(), 100000, p, 100000, ACL_MEMCPY_DEVICE_TO_HOST), 0, "its allocation");
    EXPECT_VIOLATION(aclrtMemset(p, 100000, 1, 100000), 0, "its allocation has 64");
    aclnnEmulatorSetStrict(1);
    OK(aclrtFree(p));
}

// Launches with gradY on the given tensor; the other arguments are right.
static aclnnStatus run_on(Session &s, aclTensor *grad_y, Grad &g) {
    OK(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(grad_y, g.rows.handle, nullptr, nullptr, nullptr, nullptr, 0, 0, 0,
                                                     0, g.out.handle, g.scales_out.handle, &g.size, &g.executor));
    g.need_workspace();
    return g.two(s.stream);
}

static void operands(Session &s) {
    Grad g;
    std::vector<float> host(8, 1.0f);
    void *small = nullptr, *freed = nullptr;
    OK(aclrtMalloc(&small, 8, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMalloc(&freed, 32, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtFree(freed));
    struct Case {
        aclTensor *tensor;
        const char *words;
        int tolerant;  // what the synchronise gives
    };
    Case cases[] = {
        {tensor_on(host.data(), {2, 4}), "no device memory", 507035},
        {tensor_on(nullptr, {2, 4}), "null", 507035},
        {tensor_on(freed, {2, 4}), "freed memory", 507035},
        {tensor_on(small, {2, 4}), "of an allocation of 8", 0},
        {tensor_on(g.grad_y.data, {2, 4}, 1), "spans bytes 4 to 36", 0},
        {tensor_on(static_cast<char *>(g.grad_y.data) + 4, {2, 4}, -1), "not a multiple of 32", 0},
    };
    for (Case &c : cases) {
        EXPECT_VIOLATION(run_on(s, c.tensor, g), 361001, c.words);
        EXPECT_CODE(count("executors"), 0);
        OK(aclrtSynchronizeStream(s.stream));
        aclnnEmulatorSetStrict(0);
        EXPECT_VIOLATION(run_on(s, c.tensor, g), 0, c.words);
        EXPECT_CODE(aclrtSynchronizeStream(s.stream), c.tolerant);
        OK(aclrtSynchronizeStream(s.stream));  // reported once
        aclnnEmulatorSetStrict(1);
        OK(aclDestroyTensor(c.tensor));
    }
    // a tensor far larger than its buffer is computed on a copy; what fits comes back
    aclnnEmulatorSetStrict(0);
    std::vector<int64_t> wide = {2, 40000};
    void *tiny_in = nullptr, *tiny_out = nullptr;
    OK(aclrtMalloc(&tiny_in, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMalloc(&tiny_out, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(aclrtMemset(tiny_out, 64, 0, 64));
    aclTensor *in = tensor_on(tiny_in, wide), *out = tensor_on(tiny_out, wide);
    int32_t in_order[2] = {0, 1};
    OK(aclrtMemcpy(g.rows.data, 8, in_order, 8, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclrtMemcpy(tiny_in, 64, host.data(), 32, ACL_MEMCPY_HOST_TO_DEVICE));
    OK(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(in, g.rows.handle, nullptr, nullptr, nullptr, nullptr, 0, 0, 0, 0,
                                                     out, g.scales_out.handle, &g.size, &g.executor));
    OK(g.two(s.stream));
    OK(aclrtSynchronizeStream(s.stream));
    float back[8] = {};
    OK(aclrtMemcpy(back, 32, tiny_out, 32, ACL_MEMCPY_DEVICE_TO_HOST));
    for (float value : back) EXPECT(value == 1.0f);
    aclnnEmulatorSetStrict(1);
    OK(aclDestroyTensor(in));
    OK(aclDestroyTensor(out));
    for (void *p : {small, tiny_in, tiny_out}) OK(aclrtFree(p));
}

static void workspaces(Session &s) {
    Grad g;
    OK(g.one());
    std::vector<char> host(64);
    EXPECT_VIOLATION(aclnnMoeFinalizeRoutingV2Grad(host.data(), g.size, g.executor, s.stream), 361001,
                     "no device memory");
    void *small = nullptr;
    OK(aclrtMalloc(&small, 64, ACL_MEM_MALLOC_HUGE_FIRST));
    OK(g.one());
    EXPECT_VIOLATION(aclnnMoeFinalizeRoutingV2Grad(small, g.size, g.executor, s.stream), 361001, "allocation has 64");
    OK(aclrtFree(small));
    OK(g.one());
    EXPECT_VIOLATION(aclnnMoeFinalizeRoutingV2Grad(small, g.size, g.executor, s.stream), 361001, "freed");
    EXPECT_CODE(count("executors"), 0);
}

static void other_device(Session &s) {
    Grad g;
    OK(aclrtSetDevice(1));
    Tensor there({2, 4}, ACL_FLOAT, std::vector<float>(8, 1.0f));
    OK(aclrtSetDevice(0));
    EXPECT_VIOLATION(run_on(s, there.handle, g), 361001, "another device");
    OK(aclrtResetDevice(0));
    OK(aclDestroyTensor(there.handle));
    OK(aclrtFree(there.data));
    there.handle = nullptr;
    there.data = nullptr;
    OK(aclrtResetDevice(1));
}

static void stage_one_arguments(Session &) {
    Grad g;
    aclTensor *gone = tensor_on(g.out.data, {2, 4});
    OK(aclDestroyTensor(gone));
    EXPECT_VIOLATION(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(gone, g.rows.handle, nullptr, nullptr, nullptr,
                                                                   nullptr, 0, 0, 0, 0, g.out.handle,
                                                                   g.scales_out.handle, &g.size, &g.executor),
                     161002, "gradY");
    aclTensor *vast = tensor_on(g.out.data, {INT64_MAX, INT64_MAX});
    EXPECT_CODE(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(vast, g.rows.handle, nullptr, nullptr, nullptr, nullptr, 0,
                                                              0, 0, 0, g.out.handle, g.scales_out.handle, &g.size,
                                                              &g.executor),
                161002);
    OK(aclDestroyTensor(vast));
}

static void events(Session &s) {
    aclrtEvent event = nullptr;
    OK(aclrtCreateEvent(&event));
    EXPECT_VIOLATION(aclrtStreamWaitEvent(s.stream, event), 507006, "never recorded");
    aclnnEmulatorSetStrict(0);
    EXPECT_VIOLATION(aclrtStreamWaitEvent(s.stream, event), 0, "never recorded");
    aclnnEmulatorSetStrict(1);
    OK(aclrtDestroyEvent(event));
}

int main() {
    aclnnEmulatorSetStrict(1);
    double_destroy();
    lists_own_their_elements();
    descriptors();
    {
        Session s;
        frees(s);
        copies();
        operands(s);
        workspaces(s);
        other_device(s);
        stage_one_arguments(s);
        events(s);
    }
    expect_no_handles();
    puts("ok");
}
