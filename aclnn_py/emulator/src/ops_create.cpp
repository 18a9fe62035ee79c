// Operators that fill, copy and convert: InplaceOne, InplaceZero, InplaceFillScalar, InplaceCopy, Cast, Arange.
#include <cmath>

#include "checks_core.h"
#include "kernels_core_loops.h"

namespace emu {

namespace {

void fill(const View &out, const Arg &value) {
    with_compute(value.dtype, [&](auto type) {
        using C = decltype(type);
        C block[kBlock];
        std::fill_n(block, kBlock, scalar_value<C>(value, value.dtype));
        StridedLoop<1> loop(out);
        loop.operand(0, out, dtype_size(out.dtype));
        each_run(loop, [&](char *const *at, const int64_t *step, int64_t n) {
            for (int64_t i = 0; i < n; i += kBlock) {
                store(out.dtype, at[0] + i * step[0], step[0], std::min(kBlock, n - i), block);
            }
        });
    });
}

Status check_fill(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "selfRef"}}));
    return ready(0, args[0].tensor.numel() == 0);
}

Status check_fill_scalar(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "selfRef"}, {1, "value", Accept::All, true}}));
    return ready(0, args[0].tensor.numel() == 0);
}

template <int64_t number>
void run_fill(std::vector<Arg> &args, const Config &) {
    Arg value;
    value.dtype = ACL_INT64;
    value.i = number;
    fill(args[0].tensor, value);
}

void run_fill_scalar(std::vector<Arg> &args, const Config &) { fill(args[0].tensor, args[1]); }

Status check_copy(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "selfRef"}, {1, "src"}}));
    const View &to = args[0].tensor;
    Shape shape = shape_of(to);
    EMU_PASS(check_broadcast(args[1].tensor, "src", shape));
    EMU_PASS(check_shape(to, "selfRef", shape));
    return ready(0, to.numel() == 0);
}

void run_copy(std::vector<Arg> &args, const Config &) { copy(args[1].tensor, args[0].tensor); }

Status check_cast(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {2, "out"}}));
    const View &self = args[0].tensor, &out = args[2].tensor;
    EMU_PASS(check_same_dtype(out, "out", static_cast<aclDataType>(args[1].i), "dtype"));
    EMU_PASS(check_shape(out, "out", shape_of(self)));
    return ready(0, out.numel() == 0);
}

void run_cast(std::vector<Arg> &args, const Config &) { copy(args[0].tensor, args[2].tensor); }

Status check_arange(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "start", Accept::All, true}, {1, "end", Accept::All, true},
                               {2, "step", Accept::All, true}, {3, "out"}}));
    double start = args[0].f, end = args[1].f, step = args[2].f;
    EMU_REQUIRE(std::isfinite(start) && std::isfinite(end), kParamInvalid, "start is ", start, " and end is ", end,
                "; accepted: finite numbers");
    EMU_REQUIRE(std::isfinite(step) && step != 0 && (end - start) / step >= 0, kParamInvalid, "step is ", step,
                "; accepted: a number that leads from start ", start, " to end ", end);
    double count = std::ceil((end - start) / step);
    const View &out = args[3].tensor;
    EMU_REQUIRE(out.ndim == 1 && static_cast<double>(out.dims[0]) == count, kParamInvalid, "out has shape ",
                shape_text(out), "; accepted: (", count, ",)");
    return ready(0, out.numel() == 0);
}

void run_arange(std::vector<Arg> &args, const Config &) {
    const View &out = args[3].tensor;
    double start = args[0].f, step = args[2].f, block[kBlock];
    int64_t stride = step_along(out, 0);
    for (int64_t first = 0; first < out.dims[0]; first += kBlock) {
        int64_t count = std::min(kBlock, out.dims[0] - first);
        for (int64_t i = 0; i < count; ++i) block[i] = start + static_cast<double>(first + i) * step;
        store(out.dtype, static_cast<char *>(out.data) + first * stride, stride, count, block);
    }
}

}  // namespace

EMU_OPERATOR(InplaceOne, check_fill, run_fill<1>);
EMU_OPERATOR(InplaceZero, check_fill, run_fill<0>);
EMU_OPERATOR(InplaceFillScalar, check_fill_scalar, run_fill_scalar);
EMU_OPERATOR(InplaceCopy, check_copy, run_copy);
EMU_OPERATOR(Cast, check_cast, run_cast);
EMU_OPERATOR(Arange, check_arange, run_arange);

}  // namespace emu
