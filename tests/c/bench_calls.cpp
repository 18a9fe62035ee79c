// The C side of tests/bench_calls.py: the calls that aclnn_py makes, made from C, and a kernel beside a copy.
//
//   bench_calls calls [batches [calls a batch]]   microseconds a call, one number a batch
//   bench_calls kernel [repeats]                  milliseconds, on ACLNN_EMULATOR_THREADS threads (default 1)
//
// Prints one JSON object. Waiting for the stream is outside of the timed batches.
#include <algorithm>
#include <array>
#include <chrono>
#include <random>
#include <thread>

#include "harness.h"
#include "aclnnop/aclnn_cat.h"

namespace {

using Clock = std::chrono::steady_clock;
using Numbers = std::vector<double>;

double since(Clock::time_point begin) { return std::chrono::duration<double>(Clock::now() - begin).count(); }

void print(const char *name, const Numbers &numbers, const char *end) {
    printf("\"%s\": [", name);
    for (size_t i = 0; i < numbers.size(); ++i) printf("%s%.4f", i == 0 ? "" : ", ", numbers[i]);
    printf("]%s", end);
}

std::vector<float> noise(size_t count) {
    std::minstd_rand random(20260101);
    std::vector<float> values(count);
    for (float &value : values) value = static_cast<float>(random()) / 2147483648.0f - 0.5f;
    return values;
}

// What aclCreateTensor takes, ready: a caller that repeats itself would not make it anew either.
struct Spec {
    std::vector<int64_t> dims, strides;
    aclDataType dtype;
    void *data;
    Spec(const Tensor &tensor, aclDataType dtype_)
        : dims(tensor.dims), strides(dims.size(), 1), dtype(dtype_), data(tensor.data) {
        for (size_t i = dims.size(); i-- > 1;) strides[i - 1] = strides[i] * dims[i];
    }
    aclTensor *create() const {
        aclTensor *made = aclCreateTensor(dims.data(), dims.size(), dtype, strides.data(), 0, ACL_FORMAT_ND,
                                          dims.data(), dims.size(), data);
        EXPECT(made != nullptr);
        return made;
    }
};

// aclnnMoeFinalizeRoutingV2Grad with all eight tensors.
struct FullGrad {
    Tensor grad_y, row_index, expanded_x, scales, experts, bias, grad_x, grad_scales;
    std::vector<Spec> specs;
    uint64_t size = 0;
    aclOpExecutor *executor = nullptr;
    void *workspace = nullptr;

    FullGrad(int64_t tokens, int64_t slots, int64_t hidden, int64_t expert_count)
        : grad_y({tokens, hidden}, ACL_FLOAT, noise(tokens * hidden)),
          row_index({tokens * slots}, ACL_INT32, permutation(tokens * slots)),
          expanded_x({tokens * slots, hidden}, ACL_FLOAT, noise(tokens * slots * hidden)),
          scales({tokens, slots}, ACL_FLOAT, noise(tokens * slots)),
          experts({tokens, slots}, ACL_INT32, cycle(tokens * slots, expert_count)),
          bias({expert_count, hidden}, ACL_FLOAT, noise(expert_count * hidden)),
          grad_x({tokens * slots, hidden}, ACL_FLOAT, std::vector<float>(tokens * slots * hidden, 0.0f)),
          grad_scales({tokens, slots}, ACL_FLOAT, std::vector<float>(tokens * slots, 0.0f)) {
        for (const Tensor *t : {&grad_y, &row_index, &expanded_x, &scales, &experts, &bias, &grad_x, &grad_scales}) {
            specs.emplace_back(*t, t == &row_index || t == &experts ? ACL_INT32 : ACL_FLOAT);
        }
    }
    ~FullGrad() {
        if (workspace != nullptr) aclrtFree(workspace);
    }

    static std::vector<int32_t> permutation(int64_t count) {
        std::vector<int32_t> values(count);
        for (int64_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i);
        std::shuffle(values.begin(), values.end(), std::minstd_rand(7));
        return values;
    }
    static std::vector<int32_t> cycle(int64_t count, int64_t period) {
        std::vector<int32_t> values(count);
        for (int64_t i = 0; i < count; ++i) values[i] = static_cast<int32_t>(i % period);
        return values;
    }

    using Handles = std::array<aclTensor *, 8>;
    Handles create() const {
        Handles made;
        for (size_t i = 0; i < made.size(); ++i) made[i] = specs[i].create();
        return made;
    }
    static void destroy(const Handles &tensors) {
        for (aclTensor *tensor : tensors) OK(aclDestroyTensor(tensor));
    }
    void one(const Handles &t) {
        OK(aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(t[0], t[1], t[2], t[3], t[4], t[5], 0, 0, 0, 0, t[6], t[7],
                                                         &size, &executor));
        if (workspace == nullptr && size > 0) OK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
    }
    void two(aclrtStream stream) { OK(aclnnMoeFinalizeRoutingV2Grad(workspace, size, executor, stream)); }
};

// Microseconds a call of `body`, for each batch after an untimed one.
template <class F>
Numbers per_call(aclrtStream stream, int batches, int calls, F body) {
    Numbers result;
    for (int batch = 0; batch <= batches; ++batch) {
        Clock::time_point begin = Clock::now();
        for (int i = 0; i < calls; ++i) body();
        if (batch > 0) result.push_back(since(begin) * 1e6 / calls);
        OK(aclrtSynchronizeStream(stream));
    }
    return result;
}

Numbers one_shot(Session &s, FullGrad &g, int batches, int calls) {
    return per_call(s.stream, batches, calls, [&] {
        FullGrad::Handles tensors = g.create();
        g.one(tensors);
        g.two(s.stream);
        FullGrad::destroy(tensors);
    });
}

Numbers repeatable(Session &s, FullGrad &g, int batches, int calls) {
    FullGrad::Handles tensors = g.create();
    g.one(tensors);
    OK(aclSetAclOpExecutorRepeatable(g.executor));
    Numbers result = per_call(s.stream, batches, calls, [&] { g.two(s.stream); });
    OK(aclDestroyAclOpExecutor(g.executor));
    FullGrad::destroy(tensors);
    return result;
}

// One-shot aclnnCat of `count` tensors of two elements.
Numbers cat(Session &s, size_t count, int batches, int calls) {
    Tensor in({2}, ACL_FLOAT, noise(2)), out({static_cast<int64_t>(2 * count)}, ACL_FLOAT, noise(2 * count));
    Spec in_spec(in, ACL_FLOAT), out_spec(out, ACL_FLOAT);
    std::vector<aclTensor *> tensors(count);
    void *workspace = nullptr;
    Numbers result = per_call(s.stream, batches, calls, [&] {
        uint64_t size = 0;
        aclOpExecutor *executor = nullptr;
        for (aclTensor *&tensor : tensors) tensor = in_spec.create();
        aclTensorList *list = aclCreateTensorList(tensors.data(), count);
        aclTensor *target = out_spec.create();
        OK(aclnnCatGetWorkspaceSize(list, 0, target, &size, &executor));
        if (workspace == nullptr && size > 0) OK(aclrtMalloc(&workspace, size, ACL_MEM_MALLOC_HUGE_FIRST));
        OK(aclnnCat(workspace, size, executor, s.stream));
        OK(aclDestroyTensorList(list));  // and its tensors
        OK(aclDestroyTensor(target));
    });
    if (workspace != nullptr) OK(aclrtFree(workspace));
    return result;
}

void calls(int batches, int calls_a_batch) {
    Session s;
    printf("{");
    {  // of its own: a call that the op cache knows cannot be made repeatable
        FullGrad g(2, 2, 2, 2);
        print("repeatable", repeatable(s, g, batches, calls_a_batch), ", ");
        print("one_shot", one_shot(s, g, batches, calls_a_batch), ", ");
    }
    printf("\"cat\": {");
    for (size_t count : {1, 2, 4, 8, 16}) {
        print(std::to_string(count).c_str(), cat(s, count, batches, calls_a_batch), count == 16 ? "}}\n" : ", ");
    }
}

void copy(char *to, const char *from, size_t bytes, size_t threads) {
    std::vector<std::thread> helpers;
    size_t part = bytes / threads;
    for (size_t i = 1; i < threads; ++i) {
        size_t end = i + 1 == threads ? bytes : (i + 1) * part;
        helpers.emplace_back([=] { memcpy(to + i * part, from + i * part, end - i * part); });
    }
    memcpy(to, from, part);
    for (std::thread &helper : helpers) helper.join();
}

// Row i of the slots in token order went to row index[i], scaled.
void expect_right(const FullGrad &g, int64_t slots, int64_t hidden) {
    const auto *index = static_cast<int32_t *>(g.row_index.data);
    const auto *y = static_cast<float *>(g.grad_y.data), *scales = static_cast<float *>(g.scales.data);
    const auto *out = static_cast<float *>(g.grad_x.data);
    for (int64_t i = 0; i < g.row_index.dims[0]; i += 97) {
        for (int64_t h = 0; h < hidden; h += 31) {
            EXPECT(out[index[i] * hidden + h] == y[i / slots * hidden + h] * scales[i]);
        }
    }
}

void kernel(int repeats, size_t threads) {
    const int64_t slots = 8, hidden = 4096;
    Session s;
    FullGrad g(2048, slots, hidden, 8);
    FullGrad::Handles tensors = g.create();
    Numbers copies, kernels;
    for (int i = 0; i <= repeats; ++i) {  // taking turns, so that a busy moment hits both; the first warms up
        Clock::time_point begin = Clock::now();
        copy(static_cast<char *>(g.grad_x.data), static_cast<char *>(g.expanded_x.data), g.expanded_x.bytes, threads);
        if (i > 0) copies.push_back(since(begin) * 1e3);
        begin = Clock::now();
        g.one(tensors);
        g.two(s.stream);
        OK(aclrtSynchronizeStream(s.stream));
        if (i > 0) kernels.push_back(since(begin) * 1e3);
        if (i == 0) expect_right(g, slots, hidden);
    }
    FullGrad::destroy(tensors);
    printf("{");
    print("copy", copies, ", ");
    print("kernel", kernels, "}\n");
}

}  // namespace

int main(int count, char **arguments) {
    const std::string what = count > 1 ? arguments[1] : "";
    auto number = [&](int at, int otherwise) { return count > at ? std::max(1, atoi(arguments[at])) : otherwise; };
    setenv("ACLNN_EMULATOR_THREADS", "1", 0);  // before the library reads it
    aclnnEmulatorSetStrict(1);                 // as aclnn_py runs it
    if (what == "calls") {
        calls(number(2, 10), number(3, 200));
    } else if (what == "kernel") {
        kernel(number(2, 9), static_cast<size_t>(std::max(1, atoi(getenv("ACLNN_EMULATOR_THREADS")))));
    } else {
        fprintf(stderr, "usage: bench_calls calls [batches [calls a batch]] | kernel [repeats]\n");
        return 2;
    }
    expect_no_handles();
    return 0;
}
