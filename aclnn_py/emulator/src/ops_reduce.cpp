// Reductions, running sums and softmax. Floats are summed in double and rounded once, which is within every order of
// a float32 sum; integers in int64_t.
#include <cmath>

#include "checks_core.h"
#include "kernels_core_loops.h"

namespace emu {

namespace {

template <class F>
void with_sum(aclDataType dtype, F &&f) {
    if (category(dtype) == 2) {
        f(double{});
    } else {
        f(int64_t{});
    }
}

// ---- one number from many: a fold takes them in row-major order, converted to the dtype `as`

template <class C>
struct Sum {
    C total = 0;
    void add(C value) { total = emu::add(total, value); }
    C result(int64_t) const { return total; }
};

template <class C>
struct Average : Sum<C> {
    C result(int64_t count) const { return this->total / static_cast<C>(count); }
};

// The first of the largest; a NaN is larger than any number.
template <class C, bool largest, bool position>
struct Extreme {
    C best = 0;
    int64_t seen = 0, at = 0;
    void add(C value) {
        bool better = value != value || (largest ? value > best : value < best);
        if (seen == 0 || (better && best == best)) {
            best = value;
            at = seen;
        }
        ++seen;
    }
    C result(int64_t) const { return position ? static_cast<C>(at) : best; }
};
template <class C>
using Largest = Extreme<C, true, false>;
template <class C>
using Smallest = Extreme<C, false, false>;
template <class C>
using LargestAt = Extreme<C, true, true>;
template <class C>
using SmallestAt = Extreme<C, false, true>;

template <class C, bool every>
struct Truth {
    bool value = every;
    void add(C x) { value = every ? value && x != 0 : value || x != 0; }
    C result(int64_t) const { return value; }
};
template <class C>
using Every = Truth<C, true>;
template <class C>
using Some = Truth<C, false>;

template <template <class> class Fold>
void reduce(const View &tensor, uint32_t mask, bool keep, aclDataType as, const View &out) {
    View self = at_least_1d(tensor), inner = subset(self, mask);
    View outer[] = {keep ? subset(out, ~mask) : out, subset(self, ~mask)};
    int64_t item = dtype_size(self.dtype), count = inner.numel();
    with_sum(as, [&](auto type) {
        using C = decltype(type);
        each_index(outer, count, [&](char *const *at) {
            Fold<C> fold;
            C block[kBlock];
            StridedLoop<1> loop(inner);
            loop.operand(0, inner, item);
            loop.base[0] = at[1];
            loop.coalesce();
            loop.each(0, loop.runs(), [&](char *const *from, const int64_t *step, int64_t n) {
                for (int64_t first = 0; first < n; first += kBlock) {
                    int64_t size = std::min(kBlock, n - first);
                    load(self.dtype, from[0] + first * step[0], step[0], size, block);
                    if (self.dtype != as) settle(as, block, size);
                    for (int64_t i = 0; i < size; ++i) fold.add(block[i]);
                }
            });
            C result = fold.result(count);
            store(out.dtype, at[0], 0, 1, &result);
        });
    });
}

Status check_dims(const Arg &dims, const char *name, const View &self, uint32_t &mask) {
    mask = 0;
    for (int64_t dim : dims.ints) {
        int d;
        EMU_PASS(check_dim(dim, self.ndim, name, d));
        EMU_REQUIRE(!(mask >> d & 1), kParamInvalid, name, " has dim ", dim, " twice; accepted: each dim once");
        mask |= 1u << d;
    }
    if (mask == 0) mask = ~0u;
    return {};
}

uint32_t dims_mask(const Arg &dims, const View &self) {
    uint32_t mask = 0;
    for (int64_t dim : dims.ints) mask |= 1u << wrap_dim(dim, self);
    return mask ? mask : ~0u;
}

Status check_reduced(const View &self, uint32_t mask, bool keep, const View &out) {
    Shape shape;
    for (int d = 0; d < self.ndim; ++d) {
        if (!(mask >> d & 1)) shape.push_back(self.dims[d]);
        if ((mask >> d & 1) && keep) shape.push_back(1);
    }
    return check_shape(out, "out", shape);
}

// There is an element to take for each of the output.
Status check_extreme(const View &self, const View &out) {
    EMU_REQUIRE(self.numel() > 0 || out.numel() == 0, kParamInvalid, "self has shape ", shape_text(self),
                "; accepted: at least one element for each of out");
    return ready(0, out.numel() == 0);
}

// ---- aclnnReduceSum, aclnnMean: (self, dims, keepDims, dtype, out)

struct SumRule {
    const char *dims;
    Accept out;
};
constexpr SumRule kSumRule = {"dims", Accept::All}, kMeanRule = {"dim", Accept::Floating};

template <const SumRule &rule>
Status check_sum(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core_present(args, {{0, "self"}, {1, rule.dims}}));
    EMU_PASS(check_core(args, {{0, "self"}, {4, "out", rule.out}}));
    const View &self = args[0].tensor, &out = args[4].tensor;
    EMU_PASS(check_same_dtype(out, "out", static_cast<aclDataType>(args[3].i), "dtype"));
    EMU_PASS(check_castable(self.dtype, out, "out"));
    uint32_t mask;
    EMU_PASS(check_dims(args[1], rule.dims, self, mask));
    EMU_PASS(check_reduced(self, mask, args[2].i != 0, out));
    return ready(0, out.numel() == 0);
}

template <template <class> class Fold>
void run_sum(std::vector<Arg> &args, const Config &) {
    const View &self = args[0].tensor, &out = args[4].tensor;
    reduce<Fold>(self, dims_mask(args[1], self), args[2].i != 0, out.dtype, out);
}

// ---- aclnnAmax, aclnnAmin: (self, dim, keepDim, out)

Status check_amax(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core_present(args, {{0, "self"}, {1, "dim"}}));
    EMU_PASS(check_core(args, {{0, "self"}, {3, "out"}}));
    const View &self = args[0].tensor, &out = args[3].tensor;
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    uint32_t mask;
    EMU_PASS(check_dims(args[1], "dim", self, mask));
    EMU_PASS(check_reduced(self, mask, args[2].i != 0, out));
    return check_extreme(self, out);
}

template <template <class> class Fold>
void run_amax(std::vector<Arg> &args, const Config &) {
    const View &self = args[0].tensor;
    reduce<Fold>(self, dims_mask(args[1], self), args[2].i != 0, self.dtype, args[3].tensor);
}

// ---- aclnnMax, aclnnMin: (self, out)

Status check_max(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {1, "out"}}));
    const View &self = args[0].tensor, &out = args[1].tensor;
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    EMU_PASS(check_reduced(self, ~0u, false, out));
    return check_extreme(self, out);
}

template <template <class> class Fold>
void run_max(std::vector<Arg> &args, const Config &) {
    reduce<Fold>(args[0].tensor, ~0u, false, args[0].tensor.dtype, args[1].tensor);
}

// ---- aclnnArgMax, aclnnArgMin: (self, dim, keepdim, out)

Status check_argmax(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {3, "out", Accept::Index}}));
    const View &self = args[0].tensor, &out = args[3].tensor;
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    EMU_PASS(check_reduced(self, 1u << d, args[2].i != 0, out));
    return check_extreme(self, out);
}

template <template <class> class Fold>
void run_argmax(std::vector<Arg> &args, const Config &) {
    const View &self = args[0].tensor;
    reduce<Fold>(self, 1u << wrap_dim(args[1].i, self), args[2].i != 0, self.dtype, args[3].tensor);
}

// ---- aclnnAny, aclnnAll: (self, dim, keepdim, out)

Status check_truth(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core_present(args, {{0, "self"}, {1, "dim"}}));
    EMU_PASS(check_core(args, {{0, "self"}, {3, "out", Accept::Condition}}));
    const View &self = args[0].tensor, &out = args[3].tensor;
    uint32_t mask;
    EMU_PASS(check_dims(args[1], "dim", self, mask));
    EMU_PASS(check_reduced(self, mask, args[2].i != 0, out));
    return ready(0, out.numel() == 0);
}

// ---- aclnnMaxDim, aclnnMinDim: (self, dim, keepdim, out, indices)

Status check_max_dim(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {3, "out"}, {4, "indices", Accept::Index}}));
    const View &self = args[0].tensor, &out = args[3].tensor;
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    EMU_PASS(check_reduced(self, 1u << d, args[2].i != 0, out));
    EMU_PASS(check_shape(args[4].tensor, "indices", shape_of(out)));
    return check_extreme(self, out);
}

template <template <class> class Value, template <class> class Position>
void run_max_dim(std::vector<Arg> &args, const Config &) {
    const View &self = args[0].tensor;
    uint32_t mask = 1u << wrap_dim(args[1].i, self);
    reduce<Position>(self, mask, args[2].i != 0, self.dtype, args[4].tensor);
    reduce<Value>(self, mask, args[2].i != 0, self.dtype, args[3].tensor);
}

// ---- line by line: aclnnCumsum, aclnnSoftmax, aclnnLogSoftmax and their gradients

Status check_cumsum(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {3, "out"}}));
    const View &self = args[0].tensor, &out = args[3].tensor;
    EMU_PASS(check_same_dtype(out, "out", static_cast<aclDataType>(args[2].i), "dtype"));
    EMU_PASS(check_castable(self.dtype, out, "out"));
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    EMU_PASS(check_shape(out, "out", shape_of(self)));
    return ready(0, out.numel() == 0);
}

void run_cumsum(std::vector<Arg> &args, const Config &) {
    View views[] = {at_least_1d(args[3].tensor), at_least_1d(args[0].tensor)};
    const View &out = views[0], &self = views[1];
    int d = wrap_dim(args[1].i, self);
    int64_t n = self.dims[d];
    with_sum(out.dtype, [&](auto type) {
        using C = decltype(type);
        each_line(views, d, [&](char *const *at) {
            std::vector<C> line(n);
            load(self.dtype, at[1], step_along(self, d), n, line.data());
            settle(out.dtype, line.data(), n);
            Sum<C> sum;
            for (C &value : line) {
                sum.add(value);
                value = sum.total;
            }
            store(out.dtype, at[0], step_along(out, d), n, line.data());
        });
    });
}

template <int inputs>
Status check_softmax(const std::vector<Arg> &args, const Config &) {
    const char *first = inputs == 1 ? "self" : "gradOutput";
    EMU_PASS(check_core_present(args, {{0, first}}));
    if (inputs == 2) EMU_PASS(check_core_present(args, {{1, "output"}}));
    EMU_PASS(check_core_present(args, {{inputs + 1, "out"}}));
    EMU_PASS(check_core(args, {{0, first, Accept::Floating}, {inputs + 1, "out"}}));
    const View &self = args[0].tensor, &out = args[inputs + 1].tensor;
    aclDataType common = self.dtype;
    if (inputs == 2) {
        EMU_PASS(check_core(args, {{1, "output", Accept::Floating}}));
        common = promote(common, args[1].tensor.dtype);
    }
    EMU_PASS(check_castable(common, out, "out"));
    int d;
    EMU_PASS(check_dim(args[inputs].i, self.ndim, "dim", d));
    if (inputs == 2) EMU_PASS(check_shape(args[1].tensor, "output", shape_of(self)));
    EMU_PASS(check_shape(out, "out", shape_of(self)));
    return ready(0, out.numel() == 0);
}

// One or two lines of n become the first of them.
using LineFunction = void (*)(double *x, const double *y, int64_t n);

template <int inputs, LineFunction function>
void run_softmax(std::vector<Arg> &args, const Config &) {
    View views[inputs + 1] = {at_least_1d(args[inputs + 1].tensor)};
    for (int i = 0; i < inputs; ++i) views[i + 1] = at_least_1d(args[i].tensor);
    const View &out = views[0];
    aclDataType common = promote(views[1].dtype, views[inputs].dtype);
    int d = wrap_dim(args[inputs].i, out);
    int64_t n = out.dims[d];
    each_line(views, d, [&](char *const *at) {
        std::vector<double> lines[inputs];
        for (int i = 0; i < inputs; ++i) {
            lines[i].resize(n);
            load(views[i + 1].dtype, at[i + 1], step_along(views[i + 1], d), n, lines[i].data());
        }
        function(lines[0].data(), lines[inputs - 1].data(), n);
        if (out.dtype != common) settle(common, lines[0].data(), n);
        store(out.dtype, at[0], step_along(out, d), n, lines[0].data());
    });
}

// Subtracts the largest; the sum of the powers.
double shift(double *x, int64_t n) {
    Largest<double> largest;
    for (int64_t i = 0; i < n; ++i) largest.add(x[i]);
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) {
        x[i] -= largest.best;
        sum += std::exp(x[i]);
    }
    return sum;
}

void softmax(double *x, const double *, int64_t n) {
    double sum = shift(x, n);
    for (int64_t i = 0; i < n; ++i) x[i] = std::exp(x[i]) / sum;
}

void log_softmax(double *x, const double *, int64_t n) {
    double log_sum = std::log(shift(x, n));
    for (int64_t i = 0; i < n; ++i) x[i] -= log_sum;
}

void softmax_backward(double *grad, const double *output, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += grad[i] * output[i];
    for (int64_t i = 0; i < n; ++i) grad[i] = output[i] * (grad[i] - sum);
}

void log_softmax_backward(double *grad, const double *output, int64_t n) {
    double sum = 0;
    for (int64_t i = 0; i < n; ++i) sum += grad[i];
    for (int64_t i = 0; i < n; ++i) grad[i] -= std::exp(output[i]) * sum;
}

}  // namespace

EMU_OPERATOR(Any, check_truth, run_amax<Some>);
EMU_OPERATOR(All, check_truth, run_amax<Every>);
EMU_OPERATOR(MaxDim, check_max_dim, (run_max_dim<Largest, LargestAt>));
EMU_OPERATOR(MinDim, check_max_dim, (run_max_dim<Smallest, SmallestAt>));
EMU_OPERATOR(Max, check_max, run_max<Largest>);
EMU_OPERATOR(Min, check_max, run_max<Smallest>);
EMU_OPERATOR(LogSoftmaxBackward, check_softmax<2>, (run_softmax<2, log_softmax_backward>));
EMU_OPERATOR(ReduceSum, check_sum<kSumRule>, run_sum<Sum>);
EMU_OPERATOR(Mean, check_sum<kMeanRule>, run_sum<Average>);
EMU_OPERATOR(Amax, check_amax, run_amax<Largest>);
EMU_OPERATOR(Amin, check_amax, run_amax<Smallest>);
EMU_OPERATOR(ArgMax, check_argmax, run_argmax<LargestAt>);
EMU_OPERATOR(ArgMin, check_argmax, run_argmax<SmallestAt>);
EMU_OPERATOR(Cumsum, check_cumsum, run_cumsum);
EMU_OPERATOR(Softmax, check_softmax<1>, (run_softmax<1, softmax>));
EMU_OPERATOR(LogSoftmax, check_softmax<1>, (run_softmax<1, log_softmax>));
EMU_OPERATOR(SoftmaxBackward, check_softmax<2>, (run_softmax<2, softmax_backward>));

}  // namespace emu
