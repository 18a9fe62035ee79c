// aclnnMoeFinalizeRoutingV2Grad and its forward operator aclnnMoeFinalizeRoutingV2.
#include <algorithm>
#include <atomic>

#include "checks.h"
#include "kernels_common.h"
#include "moe.h"

namespace emu {

namespace {

// The bias row of an entry, where its expert exists; a device would read outside the bias.
class BiasRows {
public:
    BiasRows(const Arg &bias, const Arg &expert_idx, int64_t width, const char *api) : api_(api) {
        present_ = bias.present && expert_idx.present && width > 0;
        if (!present_) return;
        rows_ = Rows(bias.tensor, width);
        experts_ = read_ints(expert_idx.tensor);
    }

    template <class T>
    const T *row(int64_t i, T *scratch) const {
        if (!present_) return nullptr;
        if (experts_[i] >= 0 && experts_[i] < rows_.count()) return rows_.read(experts_[i], scratch);
        if (!reported_.exchange(true)) {  // one report per call is enough
            report_violation(text(api_, ": expertIdxOptional holds ", experts_[i], " at flat position ", i,
                                  "; accepted: 0 to ", rows_.count() - 1, " (the rows of biasOptional). The device ",
                                  "would read outside the bias; the entry gets no bias"));
        }
        return nullptr;
    }

private:
    const char *api_;
    bool present_ = false;
    Rows rows_;
    std::vector<int64_t> experts_;
    mutable std::atomic<bool> reported_{false};
};

// ---- aclnnMoeFinalizeRoutingV2Grad

enum GradArg { kGradY, kRowIdx, kExpandedX, kScales, kExpertIdx, kBias, kDropPadMode, kActiveNum, kExpertNum,
               kExpertCapacity, kGradExpandedX, kGradScales };

constexpr TensorRule kGradRules[] = {
    {kGradY, "gradY", true, Dtypes::Token},
    {kRowIdx, "expandedRowIdx", true, Dtypes::Int32},
    {kExpandedX, "expandedXOptional", false, Dtypes::Token, kGradY},
    {kScales, "scalesOptional", false, Dtypes::Token},
    {kExpertIdx, "expertIdxOptional", false, Dtypes::Int32},
    {kBias, "biasOptional", false, Dtypes::Token, kGradY},
    {kGradExpandedX, "gradExpandedXOut", true, Dtypes::Token, kGradY},
    {kGradScales, "gradScalesOut", true, Dtypes::Token},
};

// Rows of gradExpandedX. A count that no tensor can have is refused by the shape checks that follow.
int64_t expanded_rows(const std::vector<Arg> &args) {
    int64_t entries = args[kRowIdx].tensor.numel(), active = args[kActiveNum].i, rows = 0;
    if (args[kDropPadMode].i == 1) {
        return __builtin_mul_overflow(args[kExpertNum].i, args[kExpertCapacity].i, &rows) ? -1 : rows;
    }
    return active > 0 ? std::min(active, entries) : entries;
}

Status check_grad_shapes(const std::vector<Arg> &args, const Config &config, aclnnStatus code) {
    const View &grad_y = args[kGradY].tensor, &row_idx = args[kRowIdx].tensor, &x = args[kExpandedX].tensor;
    const View &scales = args[kScales].tensor, &experts = args[kExpertIdx].tensor, &bias = args[kBias].tensor;
    const View &out = args[kGradExpandedX].tensor, &scales_out = args[kGradScales].tensor;
    bool scaled = args[kScales].present, biased = scaled && args[kBias].present;
    int64_t mode = args[kDropPadMode].i;

    EMU_REQUIRE(!scaled || args[kExpandedX].present, code,
                "expandedXOptional is a null pointer; it is required with scalesOptional");
    EMU_REQUIRE(!biased || args[kExpertIdx].present, code,
                "expertIdxOptional is a null pointer; it is required with biasOptional");
    EMU_REQUIRE(mode == 0 || mode == 1, code, "dropPadMode is ", mode, "; accepted: 0 or 1");
    EMU_REQUIRE(mode == 0 || (args[kExpertNum].i > 0 && args[kExpertCapacity].i > 0), code, "expertNum is ",
                args[kExpertNum].i, " and expertCapacity is ", args[kExpertCapacity].i,
                "; with dropPadMode 1 both must be greater than 0");
    EMU_REQUIRE(grad_y.ndim == 2, code, "gradY has shape ", shape_text(grad_y), "; accepted: (R, H)");
    EMU_REQUIRE(row_idx.ndim <= 1, code, "expandedRowIdx has shape ", shape_text(row_idx), "; accepted: (R*K,)");

    int64_t tokens = grad_y.dims[0], hidden = grad_y.dims[1], entries = row_idx.numel(), rows = expanded_rows(args);
    auto rows_of = [&](const View &view) {  // what stands for M in a 2-D or 3-D tensor; -2 for another rank
        if (mode == 0) return view.ndim == 2 ? view.dims[0] : -2;
        return view.ndim == 3 ? view.dims[0] * view.dims[1] : -2;
    };
    std::string expanded = mode == 0 ? text("(", rows, ", ", hidden, ")")
                                     : text("(", args[kExpertNum].i, ", ", args[kExpertCapacity].i, ", ", hidden, ")");
    if (scaled) {
        EMU_REQUIRE(rows_of(x) == rows && x.dims[x.ndim - 1] == hidden, code, "expandedXOptional has shape ",
                    shape_text(x), "; accepted: ", expanded);
        EMU_REQUIRE(scales.ndim == 2 && scales.dims[0] == tokens && scales.numel() == entries, code,
                    "scalesOptional has shape ", shape_text(scales), "; accepted: (", tokens,
                    ", K) with R*K = ", entries, " elements");
        if (biased) {
            EMU_REQUIRE(experts.ndim == 2 && experts.dims[0] == tokens && experts.numel() == entries, code,
                        "expertIdxOptional has shape ", shape_text(experts), "; accepted: ", shape_text(scales));
            EMU_REQUIRE(bias.ndim == 2 && bias.dims[0] > 0 && bias.dims[1] == hidden &&
                            (mode == 0 || bias.dims[0] == args[kExpertNum].i),
                        code, "biasOptional has shape ", shape_text(bias), "; accepted: (E, ", hidden,
                        ") with E > 0", mode == 1 ? text(" and E = expertNum = ", args[kExpertNum].i) : "");
        }
        EMU_REQUIRE(config.product == Product::P950 || scales.dtype == grad_y.dtype, code, "scalesOptional is ",
                    dtype_text(scales.dtype), " and gradY is ", dtype_text(grad_y.dtype), "; on ",
                    product_text(config.product), " they must be equal");
        // Zero-element tensors pass the dtype tests before; their dtype counts here.
        EMU_REQUIRE(x.dtype == grad_y.dtype && (!biased || bias.dtype == grad_y.dtype), code,
                    "expandedXOptional and biasOptional must be ", dtype_text(grad_y.dtype), " as gradY");
        EMU_REQUIRE(!biased || experts.dtype == ACL_INT32, code, "expertIdxOptional is ", dtype_text(experts.dtype),
                    "; accepted: int32");
    } else {
        EMU_REQUIRE(tokens == entries, code, "expandedRowIdx has ", entries, " elements and gradY has ", tokens,
                    " rows; without scalesOptional they must be equal (K = 1)");
    }
    EMU_REQUIRE(rows_of(out) == rows && out.dims[out.ndim - 1] == hidden, code, "gradExpandedXOut has shape ",
                shape_text(out), "; accepted: ", expanded);
    if (scaled) {
        EMU_REQUIRE(scales_out.ndim == 2 && scales_out.dims[0] == tokens && scales_out.numel() == entries, code,
                    "gradScalesOut has shape ", shape_text(scales_out), "; accepted: ", shape_text(scales));
        EMU_REQUIRE(scales_out.dtype == scales.dtype, code, "gradScalesOut is ", dtype_text(scales_out.dtype),
                    "; it must be ", dtype_text(scales.dtype), " as scalesOptional");
    }
    return {};
}

Status check_grad(const std::vector<Arg> &args, const Config &config) {
    const MoeRelease &release = moe_release(config);
    EMU_PASS(check_present(args, kGradRules));
    EMU_PASS(check_dtypes(args, kGradRules, true, release.grad_empty_skips_dtype, kParamInvalid));
    EMU_PASS(check_dtypes(args, kGradRules, false, release.grad_empty_skips_dtype, release.grad_optional_dtype));
    if (all_empty(args, {kGradExpandedX, kGradScales})) {
        return nothing_to_launch(args[kGradY], "gradY", 2, release.grad_refused, config);
    }

    EMU_REQUIRE(config.product != Product::Other, kInnerNullptr,
                "aclnnMoeFinalizeRoutingV2Grad has no kernel for this SoC; supported: A2, A3, 950");
    // Kernels are keyed by the required tensors, whether they have elements or not.
    EMU_PASS(check_dtypes(args, kGradRules, true, false, release.grad_no_kernel));
    aclDataType tokens = args[kGradY].tensor.dtype, scales_out = args[kGradScales].tensor.dtype;
    EMU_REQUIRE(config.product == Product::P950 || scales_out == tokens, release.grad_no_kernel, "gradScalesOut is ",
                dtype_text(scales_out), "; on ", product_text(config.product), " it must be ", dtype_text(tokens),
                " as gradY");
    EMU_PASS(check_grad_shapes(args, config, release.grad_refused));
    return ready(kCompositeWorkspace, false);
}

template <class T>
void run_grad_rows(const std::vector<Arg> &args) {
    const View &grad_y = args[kGradY].tensor, &scales = args[kScales].tensor;
    bool scaled = args[kScales].present;
    int64_t tokens = grad_y.dims[0], hidden = grad_y.dims[1], top_k = scaled ? scales.dims[1] : 1;
    int64_t rows = hidden > 0 ? expanded_rows(args) : 0;
    Rows grads(grad_y, hidden), out(args[kGradExpandedX].tensor, hidden);
    std::vector<int64_t> index = read_ints(args[kRowIdx].tensor);
    int64_t entries = static_cast<int64_t>(index.size());

    // The last entry that names a row writes it, also when threads run in another order.
    std::vector<int64_t> writer(rows, -1);
    for (int64_t i = 0; i < entries; ++i) {
        if (index[i] >= 0 && index[i] < rows) writer[index[i]] = i;
    }
    const int64_t row_bytes = hidden * static_cast<int64_t>(sizeof(T));
    bool stream = rows * row_bytes > kStreamBytes;

    if (scaled) {
        Rows expanded(args[kExpandedX].tensor, hidden);
        BiasRows bias(args[kBias], args[kExpertIdx], hidden, kMoeFinalizeRoutingV2Grad.name);
        std::vector<float> factors = read_floats(scales), dots(factors.size());
        parallel(tokens, grain_of(top_k * row_bytes), [&](int64_t begin, int64_t end) {
            Scratch<T> scratch(4, hidden);
            T *const x_row = scratch.row(0), *const b_row = scratch.row(1), *const out_row = scratch.row(2);
            for (int64_t t = begin; t < end; ++t) {
                const T *g = grads.read(t, scratch.row(3));
                for (int64_t i = t * top_k; i < (t + 1) * top_k; ++i) {
                    int64_t r = index[i];
                    const T *b = bias.row(i, b_row);
                    if (r < 0 || r >= rows) {  // dropped: nothing but the bias has a part in the token
                        dots[i] = b ? scale_and_dot<T>(b, nullptr, g, 0, out_row, hidden, b, false) : 0;
                        continue;
                    }
                    bool writes = writer[r] == i;
                    T *to = writes ? out.target(r, out_row) : out_row;
                    const T *x = expanded.read(r, x_row), *next = expanded.hint(i + 1 < entries ? index[i + 1] : -1, x);
                    dots[i] = scale_and_dot(x, b, g, factors[i], to, hidden, next, stream && writes);
                    if (writes) out.finish(r, to);
                }
            }
            stream_fence();
        });
        write_floats(args[kGradScales].tensor, dots);
    } else {
        parallel(rows, grain_of(row_bytes), [&](int64_t begin, int64_t end) {
            Scratch<T> scratch(1, hidden);
            for (int64_t r = begin; r < end; ++r) {
                if (writer[r] >= 0) out.copy(r, grads.read(writer[r], scratch.row(0)));
            }
        });
    }
    if (args[kDropPadMode].i == 1) {
        std::vector<T> zeros(hidden);
        parallel(rows, grain_of(row_bytes), [&](int64_t begin, int64_t end) {
            for (int64_t r = begin; r < end; ++r) {
                if (writer[r] < 0) out.copy(r, zeros.data());
            }
        });
    }
}

void run_grad(std::vector<Arg> &args, const Config &) {
    with_float(args[kGradY].tensor.dtype, [&](auto type) { run_grad_rows<decltype(type)>(args); });
}

// ---- aclnnMoeFinalizeRoutingV2

enum ForwardArg { kFwdExpandedX, kFwdRowIdx, kFwdX1, kFwdX2, kFwdBias, kFwdScales, kFwdExpertIdx, kFwdDropPadMode,
                  kFwdOut };

constexpr TensorRule kForwardRules[] = {
    {kFwdExpandedX, "expandedX", true, Dtypes::Token},
    {kFwdRowIdx, "expandedRowIdx", true, Dtypes::Int32},
    {kFwdX1, "x1Optional", false, Dtypes::Token, kFwdExpandedX},
    {kFwdX2, "x2Optional", false, Dtypes::Token, kFwdExpandedX},
    {kFwdBias, "biasOptional", false, Dtypes::Token, kFwdExpandedX},
    {kFwdScales, "scalesOptional", false, Dtypes::Token},
    {kFwdExpertIdx, "expertIdxOptional", false, Dtypes::Int32},
    {kFwdOut, "out", true, Dtypes::Token, kFwdExpandedX},
};

Status check_forward_shapes(const std::vector<Arg> &args, const Config &config) {
    const aclnnStatus code = kInnerNullptr;
    const View &x = args[kFwdExpandedX].tensor, &row_idx = args[kFwdRowIdx].tensor, &bias = args[kFwdBias].tensor;
    const View &scales = args[kFwdScales].tensor;
    int64_t mode = args[kFwdDropPadMode].i;
    EMU_REQUIRE(mode >= 0 && mode <= 3, code, "dropPadMode is ", mode, "; accepted: 0, 1, 2 or 3");
    EMU_REQUIRE(row_idx.ndim == 1, code, "expandedRowIdx has shape ", shape_text(row_idx), "; accepted: (R*K,)");
    bool padded = mode == 1 || mode == 3;
    EMU_REQUIRE(x.ndim == (padded ? 3 : 2), code, "expandedX has shape ", shape_text(x), "; with dropPadMode ", mode,
                " accepted: ", padded ? "(E, C, H)" : "(rows, H)");
    EMU_REQUIRE(!args[kFwdScales].present || (scales.ndim == 2 && scales.dims[1] > 0), code,
                "scalesOptional has shape ", shape_text(scales), "; accepted: (R, K) with K > 0");
    int64_t top_k = args[kFwdScales].present ? scales.dims[1] : 1, entries = row_idx.dims[0];
    int64_t tokens = entries / top_k, hidden = x.dims[x.ndim - 1];
    EMU_REQUIRE(tokens * top_k == entries && (!args[kFwdScales].present || scales.dims[0] == tokens), code,
                "expandedRowIdx has ", entries, " elements and scalesOptional has shape ", shape_text(scales),
                "; accepted: R*K elements");
    bool counted = !padded && config.product != Product::P950 && moe_release(config).forward_checks_rows;
    EMU_REQUIRE(!counted || x.dims[0] == entries, code, "expandedX has shape ", shape_text(x), "; accepted: (", entries,
                ", H), a row for each element of expandedRowIdx");
    EMU_REQUIRE(!args[kFwdX2].present || args[kFwdX1].present, code,
                "x1Optional is a null pointer; it is required with x2Optional");
    EMU_REQUIRE(!args[kFwdBias].present || args[kFwdExpertIdx].present, code,
                "expertIdxOptional is a null pointer; it is required with biasOptional");
    for (const TensorRule &rule : kForwardRules) {
        if (rule.index != kFwdX1 && rule.index != kFwdX2 && rule.index != kFwdOut) continue;
        const Arg &arg = args[rule.index];
        EMU_REQUIRE(!arg.present || shape_is(arg.tensor, {tokens, hidden}), code, rule.name, " has shape ",
                    shape_text(arg.tensor), "; accepted: (", tokens, ", ", hidden, ")");
    }
    EMU_REQUIRE(!args[kFwdExpertIdx].present || shape_is(args[kFwdExpertIdx].tensor, {tokens, top_k}), code,
                "expertIdxOptional has shape ", shape_text(args[kFwdExpertIdx].tensor), "; accepted: (", tokens, ", ",
                top_k, ")");
    EMU_REQUIRE(!args[kFwdBias].present ||
                    (bias.ndim == 2 && bias.dims[1] == hidden && bias.dims[0] >= top_k &&
                     (!padded || bias.dims[0] == x.dims[0])),
                code, "biasOptional has shape ", shape_text(bias), "; accepted: (E, ", hidden, ") with E >= K = ",
                top_k,
                padded ? text(" and E = ", x.dims[0], " as expandedX") : "");
    return {};
}

Status check_forward(const std::vector<Arg> &args, const Config &config) {
    EMU_PASS(check_present(args, kForwardRules));
    bool on_950 = config.product == Product::P950;
    aclnnStatus dtype_code = on_950 ? kParamInvalid : moe_release(config).forward_dtype_a2;
    EMU_PASS(check_dtypes(args, kForwardRules, true, true, dtype_code));
    EMU_PASS(check_dtypes(args, kForwardRules, false, true, dtype_code));
    if (all_empty(args, {kFwdOut})) {
        return nothing_to_launch(args[kFwdExpandedX], "expandedX", 3, kInnerNullptr, config);
    }
    EMU_REQUIRE(config.product != Product::Other, kInnerNullptr,
                "aclnnMoeFinalizeRoutingV2 has no kernel for this SoC; supported: A2, A3, 950");
    EMU_PASS(check_dtypes(args, kForwardRules, true, false, kInnerNullptr));
    EMU_PASS(check_dtypes(args, kForwardRules, false, false, kInnerNullptr));
    EMU_PASS(check_forward_shapes(args, config));
    aclDataType tokens = args[kFwdExpandedX].tensor.dtype, scales = args[kFwdScales].tensor.dtype;
    EMU_REQUIRE(!args[kFwdScales].present || on_950 || scales == tokens || (tokens == ACL_BF16 && scales == ACL_FLOAT),
                kInnerNullptr, "scalesOptional is ", dtype_text(scales), " and expandedX is ", dtype_text(tokens),
                "; on ", product_text(config.product), " they must be equal, or float32 and bfloat16");
    return ready(kCompositeWorkspace, false);
}

// out = ((x1 + x2) + term 0) + term 1 ..., term k = (expandedX + bias) * scale, each operation rounded to fp32.
template <class T>
void run_forward_rows(const std::vector<Arg> &args) {
    const View &scales = args[kFwdScales].tensor, &out_view = args[kFwdOut].tensor;
    int64_t tokens = out_view.dims[0], hidden = out_view.dims[1];
    int64_t top_k = args[kFwdScales].present ? scales.dims[1] : 1, mode = args[kFwdDropPadMode].i;
    std::vector<int64_t> index = read_ints(args[kFwdRowIdx].tensor);
    std::vector<float> factors = args[kFwdScales].present ? read_floats(scales) : std::vector<float>(index.size(), 1);
    BiasRows bias(args[kFwdBias], args[kFwdExpertIdx], hidden, kMoeFinalizeRoutingV2.name);
    Rows expanded(args[kFwdExpandedX].tensor, hidden), out(out_view, hidden);
    Rows skips[2];
    for (int s = 0; s < 2; ++s) {
        if (args[kFwdX1 + s].present) skips[s] = Rows(args[kFwdX1 + s].tensor, hidden);
    }
    parallel(tokens, grain_of((top_k + 1) * hidden * static_cast<int64_t>(sizeof(T))), [&](int64_t begin, int64_t end) {
        Scratch<T> scratch(2, hidden);
        T *const row = scratch.row(0), *const b_row = scratch.row(1);
        std::vector<float> sum(hidden);
        for (int64_t t = begin; t < end; ++t) {
            if (skips[0].count()) {
                widen_row(sum.data(), skips[0].read(t, row), hidden);
            } else {
                std::fill(sum.begin(), sum.end(), 0.0f);
            }
            if (skips[1].count()) add_row(sum.data(), skips[1].read(t, row), hidden);
            for (int64_t k = 0; k < top_k; ++k) {
                int64_t i = t * top_k + k;  // scales, expertIdx and modes 2 and 3 are (R, K)
                int64_t r = index[mode < 2 ? k * tokens + t : i];
                if (r < 0 || r >= expanded.count()) continue;
                add_scaled_row(sum.data(), expanded.read(r, row), bias.row(i, b_row), factors[i], hidden);
            }
            T *to = out.target(t, row);
            round_row(to, sum.data(), hidden);
            out.finish(t, to);
        }
    });
}

void run_forward(std::vector<Arg> &args, const Config &) {
    with_float(args[kFwdExpandedX].tensor.dtype, [&](auto type) { run_forward_rows<decltype(type)>(args); });
}

}  // namespace

const Op kMoeFinalizeRoutingV2Grad = {"aclnnMoeFinalizeRoutingV2Grad", Kind::Composite, check_grad, run_grad};
const Op kMoeFinalizeRoutingV2 = {"aclnnMoeFinalizeRoutingV2", Kind::Composite, check_forward, run_forward};

}  // namespace emu
