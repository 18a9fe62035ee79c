// Elementwise operators: one check and one loop, and a row for each operator.
#include <cmath>
#include <limits>

#include "checks_core.h"
#include "kernels_core_loops.h"

namespace emu {

namespace {

// The arguments of an operator: a letter each, and their C names.
//   t tensor operand   s scalar operand   T, S such an operand that may be null, but not all of them
//   a scalar factor, without a say in the dtype   c condition   r operand that is the output too   o output
struct Form {
    const char *roles;
    const char *names[4];
};

enum class Result { Same, Float, Bool };  // Float: as Same, but integers give float32

template <class C>
using Kernel = void (*)(const C *const *in, C *out, int64_t n);

struct Kernels {
    Kernel<float> f;
    Kernel<double> d;
    Kernel<int64_t> i;
    Kernel<int64_t> flag;  // of bool

    Kernel<float> of(float, bool) const { return f; }
    Kernel<double> of(double, bool) const { return d; }
    Kernel<int64_t> of(int64_t, bool is_flag) const { return is_flag ? flag : i; }
};

struct Elementwise {
    Form form;
    Kernels kernels;
    Accept accept = Accept::All;  // common dtypes
    Result result = Result::Same;
    bool non_negative = false;    // refuses a negative scalar for integers
};

bool is_operand(char role) { return role != 'a' && role != 'c' && role != 'o'; }
bool is_scalar(char role) { return role == 's' || role == 'S' || role == 'a'; }
bool is_optional(char role) { return role == 'S' || role == 'T'; }

int output_of(const Form &form) {
    int last = 0;
    for (int i = 0; form.roles[i]; ++i) {
        if (form.roles[i] == 'o' || form.roles[i] == 'r') last = i;
    }
    return last;
}

// Scalars are promoted after all tensors.
aclDataType common_dtype(const Elementwise &op, const std::vector<Arg> &args) {
    aclDataType common = ACL_DT_UNDEFINED;
    for (bool scalars : {false, true}) {
        for (int i = 0; char role = op.form.roles[i]; ++i) {
            if (!is_operand(role) || is_scalar(role) != scalars || !args[i].present) continue;
            if (scalars) {
                common = promote_scalar(common, args[i].dtype);
            } else {
                common = common == ACL_DT_UNDEFINED ? args[i].tensor.dtype : promote(common, args[i].tensor.dtype);
            }
        }
    }
    return op.result == Result::Float && category(common) < 2 ? ACL_FLOAT : common;
}

Status check_elementwise(const Elementwise &op, const std::vector<Arg> &args) {
    const char *roles = op.form.roles;
    const char *const *names = op.form.names;
    int optional = -1, given = 0;
    for (int i = 0; roles[i]; ++i) {
        if (!is_optional(roles[i])) {
            EMU_PASS(check_core_present(args, {{i, names[i]}}));
        } else {
            optional = i;
            given += args[i].present;
        }
    }
    EMU_REQUIRE(optional < 0 || given > 0, kParamNullptr, names[optional - 1], " and ", names[optional],
                " are null pointers; at least one is required");
    for (int i = 0; roles[i]; ++i) {
        if (!args[i].present) continue;
        EMU_PASS(check_core_dtype(is_scalar(roles[i]) ? args[i].dtype : args[i].tensor.dtype, names[i],
                                  roles[i] == 'c' ? Accept::Condition : Accept::All));
    }

    aclDataType common = common_dtype(op, args);
    EMU_REQUIRE(accepts(op.accept, common), kParamInvalid, names[0], ": the common dtype of the operands is ",
                dtype_text(common), "; accepted: ", accept_text(op.accept));
    int out = output_of(op.form);
    for (int i = 0; roles[i]; ++i) {
        if (roles[i] == 'a') EMU_PASS(check_factor(args[i], names[i], common));
        EMU_REQUIRE(!op.non_negative || roles[i] != 's' || category(common) == 2 || args[i].i >= 0, kParamInvalid,
                    names[i], " is ", args[i].i, "; accepted: 0 or greater for ", dtype_text(common));
    }
    EMU_PASS(check_castable(op.result == Result::Bool ? ACL_BOOL : common, args[out].tensor, names[out]));

    for (int i = 0; roles[i]; ++i) {
        if (!is_scalar(roles[i]) && args[i].present) EMU_PASS(check_rank(args[i].tensor, names[i]));
    }
    Shape shape;
    for (int i = 0; roles[i]; ++i) {
        if (is_scalar(roles[i]) || roles[i] == 'o' || !args[i].present) continue;
        EMU_PASS(check_broadcast(args[i].tensor, names[i], shape));
    }
    EMU_PASS(check_shape(args[out].tensor, names[out], shape));
    return ready(0, args[out].tensor.numel() == 0);
}

// ---- the loop

// Walking both in step never reads what was written before: the same elements in the same order.
bool same_walk(const View &one, const View &other) {
    if (one.data != other.data || one.ndim != other.ndim) return false;
    if (dtype_size(one.dtype) != dtype_size(other.dtype)) return false;
    for (int d = 0; d < one.ndim; ++d) {
        if (one.dims[d] != other.dims[d] || (one.dims[d] > 1 && one.strides[d] != other.strides[d])) return false;
    }
    return true;
}

// One input of a kernel: a tensor (which = place in the loop) or a number.
template <class C>
struct Source {
    int which = 0;
    aclDataType dtype = ACL_DT_UNDEFINED;
    bool settled = true;
    C value = 0;
};

template <class C>
void compute(const Elementwise &op, aclDataType common, const std::vector<Arg> &args) {
    const View &out = args[output_of(op.form)].tensor;
    Kernel<C> kernel = op.kernels.of(C{}, common == ACL_BOOL);
    std::vector<Dense> copies;
    copies.reserve(3);
    StridedLoop<4> loop(out);  // places without an operand have stride 0
    loop.operand(0, out, dtype_size(out.dtype));
    Source<C> sources[3];
    int count = 0;
    for (int i = 0; char role = op.form.roles[i]; ++i) {
        if (role == 'o') continue;
        const Arg &arg = args[i];
        Source<C> &source = sources[count++];
        if (!arg.present) {  // the bound of a clamp that changes nothing
            using Limits = std::numeric_limits<C>;
            C most = Limits::has_infinity ? Limits::infinity() : Limits::max();
            source.value = count == 2 ? (Limits::has_infinity ? -most : Limits::lowest()) : most;
        } else if (is_scalar(role)) {
            source.value = scalar_value<C>(arg, common);
        } else {
            const View *view = &arg.tensor;
            if (overlap(out, *view) && !same_walk(out, *view)) {
                copies.emplace_back(*view, view->dtype);
                view = &copies.back().view;
            }
            source.which = count;
            source.dtype = view->dtype;
            source.settled = role == 'c' || view->dtype == common;
            loop.operand(count, *view, dtype_size(view->dtype));
        }
    }
    bool settled = op.result == Result::Bool || out.dtype == common;

    each_run(loop, [&](char *const *at, const int64_t *step, int64_t n) {
        C buffers[3][kBlock], result[kBlock];
        const C *in[3] = {buffers[0], buffers[1], buffers[2]};
        for (int s = 0; s < 3; ++s) {
            if (sources[s].which == 0) std::fill_n(buffers[s], std::min(n, kBlock), sources[s].value);
        }
        for (int64_t first = 0; first < n; first += kBlock) {
            int64_t size = std::min(kBlock, n - first);
            for (int s = 0; s < count; ++s) {
                const Source<C> &source = sources[s];
                int w = source.which;
                if (w == 0) continue;
                load(source.dtype, at[w] + first * step[w], step[w], size, buffers[s]);
                if (!source.settled) settle(common, buffers[s], size);
            }
            kernel(in, result, size);
            if (!settled) settle(common, result, size);
            store(out.dtype, at[0] + first * step[0], step[0], size, result);
        }
    });
}

template <const Elementwise &op>
Status check_row(const std::vector<Arg> &args, const Config &) {
    return check_elementwise(op, args);
}

template <const Elementwise &op>
void run_row(std::vector<Arg> &args, const Config &) {
    aclDataType common = common_dtype(op, args);
    with_compute(common, [&](auto type) { compute<decltype(type)>(op, common, args); });
}

template <class F, class C>
void apply(const C *const *in, C *__restrict out, int64_t n) {
    const C *x = in[0], *y = in[1], *z = in[2];
    for (int64_t i = 0; i < n; ++i) out[i] = F::of(x[i], y[i], z[i]);
}

template <class F>
constexpr Kernels any() { return {apply<F, float>, apply<F, double>, apply<F, int64_t>, apply<F, int64_t>}; }
template <class F>
constexpr Kernels floating() { return {apply<F, float>, apply<F, double>, nullptr, nullptr}; }
template <class F, class Flag = F>
constexpr Kernels integral() { return {nullptr, nullptr, apply<F, int64_t>, apply<Flag, int64_t>}; }

// ---- functions

template <class C>
C larger(C x, C y) { return x > y || x != x ? x : y; }  // a NaN wins
template <class C>
C smaller(C x, C y) { return x < y || x != x ? x : y; }

double power(double x, double y) { return std::pow(x, y); }
int64_t power(int64_t x, int64_t y) {
    if (y < 0) return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
    int64_t result = 1;
    for (; y > 0; y >>= 1, x = multiply(x, x)) {
        if (y & 1) result = multiply(result, x);
    }
    return result;
}

template <class C>
C round_even(C x) { return std::nearbyint(x); }
inline int64_t round_even(int64_t x) { return x; }
template <class C>
C round_down(C x) { return std::floor(x); }
inline int64_t round_down(int64_t x) { return x; }
template <class C>
C round_up(C x) { return std::ceil(x); }
inline int64_t round_up(int64_t x) { return x; }

// Rounded down, as floats by way of the remainder, which is exact.
int64_t floor_divide(int64_t x, int64_t y) {
    if (y == 0) return 0;
    if (y == -1) return subtract(int64_t{0}, x);
    return x / y - (x % y != 0 && (x < 0) != (y < 0));
}
int64_t remainder_of(int64_t x, int64_t y) { return y == 0 || y == -1 ? 0 : x - floor_divide(x, y) * y; }

template <class C>
C floor_divide(C x, C y) {
    if (y == 0) return x / y;
    C rest = std::fmod(x, y), quotient = (x - rest) / y;
    if (rest != 0 && (y < 0) != (rest < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(C{0}, x / y);
    C whole = std::floor(quotient);
    return quotient - whole > C{0.5} ? whole + 1 : whole;
}
template <class C>
C remainder_of(C x, C y) {
    C rest = std::fmod(x, y);
    if (rest == 0) return std::copysign(rest, y);
    return rest != rest || (y < 0) == (rest < 0) ? rest : rest + y;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

// A function of up to three operands of type C.
#define EMU_FUNCTION(Name, expression)          \
    struct Name {                               \
        template <class C>                      \
        static C of(C x, C y, C z) {            \
            return static_cast<C>(expression);  \
        }                                       \
    }
// The same of one operand, in double, so that the result is rounded once.
#define EMU_WIDE(Name, expression)              \
    struct Name {                               \
        template <class C>                      \
        static C of(C narrow, C, C) {           \
            double x = narrow;                  \
            return static_cast<C>(expression);  \
        }                                       \
    }

// Of two operands.
#define EMU_WIDE2(Name, expression)                       \
    struct Name {                                         \
        template <class C>                                \
        static C of(C first, C second, C) {               \
            double x = first, y = second;                 \
            return static_cast<C>(expression);            \
        }                                                 \
    }

EMU_FUNCTION(AddOf, add(x, multiply(y, z)));
EMU_FUNCTION(SubOf, subtract(x, multiply(y, z)));
EMU_FUNCTION(MulOf, multiply(x, y));
EMU_FUNCTION(DivOf, x / y);
EMU_FUNCTION(PowOf, power(x, y));
EMU_FUNCTION(MaximumOf, larger(x, y));
EMU_FUNCTION(MinimumOf, smaller(x, y));
EMU_FUNCTION(ClampOf, smaller(larger(x, y), z));
EMU_FUNCTION(WhereOf, x != 0 ? y : z);
EMU_FUNCTION(EqOf, x == y);
EMU_FUNCTION(NeOf, x != y);
EMU_FUNCTION(LtOf, x < y);
EMU_FUNCTION(LeOf, x <= y);
EMU_FUNCTION(GtOf, x > y);
EMU_FUNCTION(GeOf, x >= y);
EMU_FUNCTION(LogicalAndOf, x != 0 && y != 0);
EMU_FUNCTION(LogicalOrOf, x != 0 || y != 0);
EMU_FUNCTION(LogicalNotOf, x == 0);
EMU_FUNCTION(BitwiseAndOf, x & y);
EMU_FUNCTION(BitwiseOrOf, x | y);
EMU_FUNCTION(BitwiseXorOf, x ^ y);
EMU_FUNCTION(BitwiseNotOf, ~x);
EMU_FUNCTION(AbsOf, std::is_integral_v<C> ? (x < 0 ? subtract(C{0}, x) : x) : static_cast<C>(std::fabs(x)));
EMU_FUNCTION(NegOf, std::is_integral_v<C> ? subtract(C{0}, x) : -x);
EMU_FUNCTION(SignOf, x != x ? x : static_cast<C>((x > 0) - (x < 0)));
EMU_FUNCTION(FloorOf, round_down(x));
EMU_FUNCTION(CeilOf, round_up(x));
EMU_FUNCTION(RoundOf, round_even(x));
EMU_FUNCTION(ReluOf, larger(x, C{0}));
EMU_FUNCTION(SqrtOf, std::sqrt(x));
EMU_FUNCTION(ReciprocalOf, 1 / x);
EMU_WIDE(RsqrtOf, 1 / std::sqrt(x));
EMU_WIDE(ExpOf, std::exp(x));
EMU_WIDE(LogOf, std::log(x));
EMU_WIDE(Log1pOf, std::log1p(x));
EMU_WIDE(SinOf, std::sin(x));
EMU_WIDE(CosOf, std::cos(x));
EMU_WIDE(TanhOf, std::tanh(x));
EMU_WIDE(ErfOf, std::erf(x));
EMU_WIDE(SigmoidOf, sigmoid(x));
EMU_WIDE(SiluOf, x * sigmoid(x));
EMU_FUNCTION(RsubOf, subtract(y, multiply(x, z)));
EMU_FUNCTION(FloorDivideOf, floor_divide(x, y));
EMU_FUNCTION(RemainderOf, remainder_of(x, y));
EMU_FUNCTION(IsFiniteOf, x - x == 0);
EMU_FUNCTION(MaskedFillOf, y != 0 ? z : x);
EMU_FUNCTION(ThresholdBackwardOf, y <= z ? C{0} : x);
EMU_WIDE2(SigmoidBackwardOf, x * (1 - y) * y);
EMU_WIDE2(TanhBackwardOf, x * (1 - y * y));
EMU_WIDE2(SiluBackwardOf, x * sigmoid(y) * (1 + y * (1 - sigmoid(y))));
EMU_WIDE2(GeluBackwardOf, x * (0.5 * std::erfc(-y * 0.70710678118654752440) +
                               y * std::exp(-0.5 * y * y) * 0.39894228040143267794));
EMU_WIDE(GeluOf, 0.5 * x * std::erfc(-x * 0.70710678118654752440));

// ---- forms

constexpr Form kUnary = {"to", {"self", "out"}};
constexpr Form kUnaryInplace = {"r", {"selfRef"}};
constexpr Form kTensors = {"tto", {"self", "other", "out"}};
constexpr Form kTensorsInplace = {"rt", {"selfRef", "other"}};
constexpr Form kScalar = {"tso", {"self", "other", "out"}};
constexpr Form kScalarInplace = {"rs", {"selfRef", "other"}};
constexpr Form kTensorsAlpha = {"ttao", {"self", "other", "alpha", "out"}};
constexpr Form kTensorsAlphaInplace = {"rta", {"selfRef", "other", "alpha"}};
constexpr Form kScalarAlpha = {"tsao", {"self", "other", "alpha", "out"}};
constexpr Form kScalarAlphaInplace = {"rsa", {"selfRef", "other", "alpha"}};

}  // namespace

// ---- rows

#define EMU_ROW(Name, ...)                          \
    namespace {                                     \
    constexpr Elementwise kRow##Name = {__VA_ARGS__}; \
    }                                               \
    EMU_OPERATOR(Name, check_row<kRow##Name>, run_row<kRow##Name>)

#define EMU_PAIR(Name, form, ...)                       \
    EMU_ROW(Name, form, __VA_ARGS__);                   \
    EMU_ROW(Inplace##Name, form##Inplace, __VA_ARGS__)

#define EMU_ALPHA(Name, ...)                                     \
    EMU_PAIR(Name, kTensorsAlpha, __VA_ARGS__);   \
    EMU_PAIR(Name##s, kScalarAlpha, __VA_ARGS__)
EMU_ALPHA(Add, any<AddOf>());
EMU_ALPHA(Sub, any<SubOf>(), Accept::Numeric);

#define EMU_BINARY(Name, ...)                               \
    EMU_PAIR(Name, kTensors, __VA_ARGS__);   \
    EMU_PAIR(Name##s, kScalar, __VA_ARGS__)
EMU_BINARY(Mul, any<MulOf>());
EMU_BINARY(Div, floating<DivOf>(), Accept::All, Result::Float);

EMU_ROW(Maximum, kTensors, any<MaximumOf>());
EMU_ROW(Minimum, kTensors, any<MinimumOf>());

#define EMU_POW(Name, roles, ...) \
    EMU_ROW(Name, {roles, {"self", "exponent", "out"}}, any<PowOf>(), Accept::Numeric, __VA_ARGS__)
EMU_POW(PowTensorScalar, "tso", Result::Same, true);
EMU_POW(InplacePowTensorScalar, "rs", Result::Same, true);
EMU_POW(PowScalarTensor, "sto", Result::Same);
EMU_POW(PowTensorTensor, "tto", Result::Same);
EMU_POW(InplacePowTensorTensor, "rt", Result::Same);

#define EMU_TENSOR_OR_SCALAR(Name, ...)                                     \
    EMU_PAIR(Name##Tensor, kTensors, __VA_ARGS__);   \
    EMU_PAIR(Name##Scalar, kScalar, __VA_ARGS__)
EMU_TENSOR_OR_SCALAR(Eq, any<EqOf>(), Accept::All, Result::Bool);
EMU_TENSOR_OR_SCALAR(Ne, any<NeOf>(), Accept::All, Result::Bool);
EMU_TENSOR_OR_SCALAR(Lt, any<LtOf>(), Accept::All, Result::Bool);
EMU_TENSOR_OR_SCALAR(Le, any<LeOf>(), Accept::All, Result::Bool);
EMU_TENSOR_OR_SCALAR(Gt, any<GtOf>(), Accept::All, Result::Bool);
EMU_TENSOR_OR_SCALAR(Ge, any<GeOf>(), Accept::All, Result::Bool);
EMU_TENSOR_OR_SCALAR(BitwiseAnd, integral<BitwiseAndOf>(), Accept::Integral);
EMU_TENSOR_OR_SCALAR(BitwiseOr, integral<BitwiseOrOf>(), Accept::Integral);
EMU_TENSOR_OR_SCALAR(BitwiseXor, integral<BitwiseXorOf>(), Accept::Integral);
EMU_ROW(BitwiseNot, kUnary, integral<BitwiseNotOf, LogicalNotOf>(), Accept::Integral);

EMU_PAIR(LogicalAnd, kTensors, any<LogicalAndOf>(), Accept::All, Result::Bool);
EMU_PAIR(LogicalOr, kTensors, any<LogicalOrOf>(), Accept::All, Result::Bool);
EMU_PAIR(LogicalNot, kUnary, any<LogicalNotOf>(), Accept::All, Result::Bool);

#define EMU_CLAMP(Name, function, ...) EMU_ROW(Name, {__VA_ARGS__}, any<function>(), Accept::Numeric)
EMU_CLAMP(Clamp, ClampOf, "tSSo", {"self", "clipValueMin", "clipValueMax", "out"});
EMU_CLAMP(ClampMin, MaximumOf, "tso", {"self", "clipValueMin", "out"});
EMU_CLAMP(ClampMax, MinimumOf, "tso", {"self", "clipValueMax", "out"});
EMU_CLAMP(InplaceClampMax, MinimumOf, "rs", {"selfRef", "clipValueMax"});
EMU_CLAMP(ClampTensor, ClampOf, "tTTo", {"self", "clipValueMin", "clipValueMax", "out"});
EMU_CLAMP(ClampMinTensor, MaximumOf, "tto", {"self", "clipValueMin", "out"});
EMU_CLAMP(InplaceClampMinTensor, MaximumOf, "rt", {"selfRef", "clipValueMin"});
EMU_CLAMP(ClampMaxTensor, MinimumOf, "tto", {"self", "max", "out"});
EMU_CLAMP(InplaceClampMaxTensor, MinimumOf, "rt", {"selfRef", "max"});
EMU_ROW(SWhere, {"ctto", {"condition", "self", "other", "out"}}, any<WhereOf>());

#define EMU_UNARY(Name, ...) EMU_PAIR(Name, kUnary, __VA_ARGS__)
EMU_ROW(Abs, kUnary, any<AbsOf>());
EMU_ROW(Sign, {"to", {"self", "result"}}, any<SignOf>());
EMU_UNARY(Neg, any<NegOf>(), Accept::Numeric);
EMU_UNARY(Floor, any<FloorOf>(), Accept::Numeric);
EMU_UNARY(Ceil, any<CeilOf>(), Accept::Numeric);
EMU_UNARY(Round, any<RoundOf>(), Accept::Numeric);
EMU_UNARY(Relu, any<ReluOf>(), Accept::Numeric);
EMU_ROW(Silu, kUnary, floating<SiluOf>(), Accept::Floating);
EMU_ROW(Gelu, kUnary, floating<GeluOf>(), Accept::Floating);
EMU_ROW(Sqrt, kUnary, floating<SqrtOf>(), Accept::All, Result::Float);
EMU_ROW(InplaceSqrt, {"r", {"self"}}, floating<SqrtOf>(), Accept::All, Result::Float);
EMU_ROW(Cos, {"to", {"input", "out"}}, floating<CosOf>(), Accept::All, Result::Float);
EMU_ROW(InplaceCos, {"r", {"inputRef"}}, floating<CosOf>(), Accept::All, Result::Float);

#define EMU_RSUB(Name, ...) EMU_ROW(Name, __VA_ARGS__, any<RsubOf>(), Accept::Numeric)
EMU_RSUB(Rsub, kTensorsAlpha);
EMU_RSUB(Rsubs, kScalarAlpha);
EMU_ROW(FloorDivide, kTensors, any<FloorDivideOf>(), Accept::Numeric);
EMU_ROW(FloorDivides, kScalar, any<FloorDivideOf>(), Accept::Numeric);
EMU_ROW(RemainderTensorTensor, kTensors, any<RemainderOf>(), Accept::Numeric);
EMU_ROW(RemainderTensorScalar, kScalar, any<RemainderOf>(), Accept::Numeric);
EMU_ROW(IsFinite, kUnary, any<IsFiniteOf>(), Accept::All, Result::Bool);
EMU_ROW(InplaceMaskedFillScalar, {"rca", {"selfRef", "mask", "value"}}, any<MaskedFillOf>());

#define EMU_BACKWARD(Name, forward)                                                        \
    EMU_ROW(Name, {"tto", {"gradOutput", forward, "gradInput"}}, floating<Name##Of>(), Accept::Floating)
EMU_BACKWARD(SiluBackward, "self");
EMU_BACKWARD(GeluBackward, "self");
EMU_BACKWARD(SigmoidBackward, "output");
EMU_BACKWARD(TanhBackward, "output");
EMU_ROW(ThresholdBackward, {"ttso", {"gradOutput", "self", "threshold", "out"}}, any<ThresholdBackwardOf>(),
        Accept::Numeric);

#define EMU_FLOAT(Name) EMU_UNARY(Name, floating<Name##Of>(), Accept::All, Result::Float)
EMU_FLOAT(Exp);
EMU_FLOAT(Log);
EMU_FLOAT(Log1p);
EMU_FLOAT(Rsqrt);
EMU_FLOAT(Reciprocal);
EMU_FLOAT(Sin);
EMU_FLOAT(Tanh);
EMU_FLOAT(Erf);
EMU_FLOAT(Sigmoid);

}  // namespace emu
