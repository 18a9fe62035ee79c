// Token un-permutation under expert parallelism: aclnnMoeTokenUnpermuteWithEp, its gradient, and
// aclnnMoeTokenPermuteWithEpGrad, which sums rows as the un-permutation does.
#include <algorithm>
#include <limits>

#include "checks.h"
#include "kernels_common.h"
#include "moe.h"

namespace emu {

namespace {

constexpr int64_t kMaxTopK = 512;
// What tiling reads for a dim that the tensor does not have; it slips through the tests for zero.
constexpr int64_t kNoDim = std::numeric_limits<int64_t>::min();

int64_t dim(const View &view, int d) { return d < view.ndim ? view.dims[d] : kNoDim; }

bool on_product(const Config &config) {
    return config.product == Product::A2 || config.product == Product::A3 ||
           (config.product == Product::P950 && moe_release(config).ep_on_950);
}

std::string list_text(const std::vector<int64_t> &values) {
    std::string out = "{";
    for (size_t i = 0; i < values.size(); ++i) out += (i ? ", " : "") + std::to_string(values[i]);
    return out + "}";
}

// ---- aclnnMoeTokenUnpermuteWithEpGrad

enum GradArg { kTokensGrad, kIndices, kPermuted, kProbs, kPaddedMode, kRestoreShape, kRange, kTopkNum, kPermutedGrad,
               kProbsGrad };

constexpr TensorRule kGradRules[] = {
    {kTokensGrad, "unpermutedTokensGrad", true, Dtypes::Token},
    {kIndices, "sortedIndices", true, Dtypes::Int32},
    {kPermutedGrad, "permutedTokensGradOut", true, Dtypes::Token, kTokensGrad},
    {kProbsGrad, "probsGradOut", true, Dtypes::Token},
};
constexpr TensorRule kGradProbsRules[] = {{kProbs, "probsOptional", false, Dtypes::Token, kProbsGrad}};

struct GradSizes {
    int64_t tokens, hidden, top_k, entries;
    int64_t start = 0, end = 0, permuted = 0;  // entries count when start <= index < end and index < permuted
};

GradSizes grad_sizes(const std::vector<Arg> &args) {
    const View &grad = args[kTokensGrad].tensor;
    return {dim(grad, 0), dim(grad, 1), args[kProbs].present ? dim(args[kProbs].tensor, 1) : args[kTopkNum].i,
            dim(args[kIndices].tensor, 0)};
}

Status grad_range(const std::vector<Arg> &args, const MoeRelease &release, GradSizes &sizes) {
    int64_t n = sizes.entries;
    std::vector<int64_t> range = args[kRange].present ? args[kRange].ints : std::vector<int64_t>{-1, -1};
    if (range.size() != 2) {
        EMU_REQUIRE(!release.ep_grad_checks_range_length, kTilingRefused, "rangeOptional has ", range.size(),
                    " values; accepted: 2, or null");
        return {};
    }
    bool everything = range[0] == -1 && range[1] == -1 && release.ep_grad_null == NullRange::All;
    auto inside = [n](int64_t at) { return std::clamp<int64_t>(at < 0 ? at + n : at, 0, n); };
    sizes.start = everything ? 0 : inside(range[0]);
    sizes.end = everything ? n : inside(range[1]);
    EMU_REQUIRE(sizes.start <= sizes.end, kTilingRefused, "rangeOptional is ", list_text(range),
                "; accepted: start <= end, within the ", n, " entries of sortedIndices");
    // From start > 0 on, tiling forgets how many rows permutedTokens has.
    sizes.permuted = sizes.start != 0 ? sizes.end : args[kPermuted].present ? dim(args[kPermuted].tensor, 0) : n;
    return {};
}

Status check_grad_shapes(const std::vector<Arg> &args, const GradSizes &sizes) {
    const View &grad = args[kTokensGrad].tensor, &probs = args[kProbs].tensor, &permuted = args[kPermuted].tensor;
    int64_t part = sizes.end - sizes.start;
    EMU_REQUIRE(grad.ndim == 2, kTilingRefused, "unpermutedTokensGrad has shape ", shape_text(grad),
                "; accepted: (T, H)");
    EMU_REQUIRE(args[kPaddedMode].i == 0, kTilingRefused, "paddedMode is true; accepted: false");
    EMU_REQUIRE(!args[kProbs].present || (probs.ndim == 2 && probs.dims[0] == sizes.tokens), kTilingRefused,
                "probsOptional has shape ", shape_text(probs), "; accepted: (", sizes.tokens, ", topK)");
    EMU_REQUIRE(sizes.top_k >= 1, kTilingRefused, args[kProbs].present ? "probsOptional dim 1" : "topkNum", " is ",
                sizes.top_k, "; accepted: 1 to ", kMaxTopK);
    EMU_REQUIRE(sizes.entries == sizes.tokens * sizes.top_k, kTilingRefused, "sortedIndices has ", sizes.entries,
                " elements; accepted: T*topK = ", sizes.tokens * sizes.top_k);
    int64_t rows = args[kPermuted].present ? dim(permuted, 0) : sizes.entries;
    EMU_REQUIRE(!args[kPermuted].present || (shape_is(permuted, {rows, sizes.hidden}) &&
                                             (rows == sizes.entries || rows == part)),
                kTilingRefused, "permutedTokensOptional has shape ", shape_text(permuted), "; accepted: (",
                sizes.entries, ", ", sizes.hidden, ") or, for the range alone, (", part, ", ", sizes.hidden, ")");
    EMU_REQUIRE(shape_is(args[kPermutedGrad].tensor, {rows, sizes.hidden}), kTilingRefused,
                "permutedTokensGradOut has shape ", shape_text(args[kPermutedGrad].tensor), "; accepted: (", rows,
                ", ", sizes.hidden, ")");
    EMU_REQUIRE(!args[kProbs].present || shape_is(args[kProbsGrad].tensor, {sizes.tokens, sizes.top_k}),
                kTilingRefused, "probsGradOut has shape ", shape_text(args[kProbsGrad].tensor), "; accepted: ",
                shape_text(probs));
    return {};
}

Status check_grad(const std::vector<Arg> &args, const Config &config) {
    const MoeRelease &release = moe_release(config);
    EMU_PASS(check_generated(args, kGradRules, on_product(config), config));
    if (release.ep_checks_probs_dtype) {
        EMU_PASS(check_dtypes(args, kGradProbsRules, false, false, kParamInvalid));
    }
    if (all_empty(args, {kPermutedGrad, kProbsGrad})) {
        return nothing_to_launch(args[kTokensGrad], "unpermutedTokensGrad", 2, kTilingRefused, config);
    }

    const View &grad = args[kTokensGrad].tensor, &indices = args[kIndices].tensor;
    EMU_REQUIRE(!args[kPermuted].present || args[kPermuted].tensor.dtype == grad.dtype, kTilingRefused,
                "permutedTokensOptional is ", dtype_text(args[kPermuted].tensor.dtype), "; it must be ",
                dtype_text(grad.dtype), " as unpermutedTokensGrad");
    EMU_REQUIRE(args[kPermuted].present || !args[kProbs].present, kTilingRefused,
                "permutedTokensOptional is a null pointer; it is required with probsOptional");
    EMU_REQUIRE(indices.ndim == 1, kTilingRefused, "sortedIndices has shape ", shape_text(indices),
                "; accepted: (T*topK,)");
    GradSizes sizes = grad_sizes(args);
    EMU_REQUIRE(sizes.top_k <= kMaxTopK, kTilingRefused, args[kProbs].present ? "probsOptional dim 1" : "topkNum",
                " is ", sizes.top_k, "; accepted: 1 to ", kMaxTopK);
    EMU_REQUIRE(sizes.tokens != 0 && sizes.top_k != 0 && sizes.hidden != 0, kTilingRefused,
                "unpermutedTokensGrad has shape ", shape_text(grad), " and topK is ", sizes.top_k,
                "; none may be 0 unless all outputs are empty");
    EMU_PASS(grad_range(args, release, sizes));
    if (release.ep_grad_checks_shapes) {
        EMU_PASS(check_grad_shapes(args, sizes));
    } else {
        bool counted = !args[kRange].present || args[kRange].ints.size() == 2;
        EMU_REQUIRE(sizes.permuted != 0 || !counted, kTilingRefused,
                    "permutedTokensOptional has no rows; accepted: ", sizes.entries);
    }
    return ready(kGeneratedWorkspace, false);
}

// The probs as the kernel of this release sees them, one for each entry.
std::vector<float> read_probs(const View &probs, aclDataType as, int64_t entries) {
    std::vector<float> values =
        probs.dtype == as ? read_floats(probs) : reread_floats(probs, dtype_size(probs.dtype), as);
    values.resize(entries);
    return values;
}

template <class T>
void run_grad_rows(const std::vector<Arg> &args, const Config &config) {
    GradSizes sizes = grad_sizes(args);
    grad_range(args, moe_release(config), sizes);
    if (sizes.tokens <= 0 || sizes.top_k <= 0 || sizes.hidden <= 0) return;  // only unchecked shapes

    bool weighted = args[kProbs].present;
    int64_t hidden = sizes.hidden, start = sizes.start, top_k = sizes.top_k;
    Rows grads(args[kTokensGrad].tensor, hidden), out(args[kPermutedGrad].tensor, hidden), permuted;
    if (weighted) permuted = Rows(args[kPermuted].tensor, hidden);
    int64_t tokens = std::min(sizes.tokens, grads.count()), entries = tokens * top_k;
    std::vector<int64_t> index = read_ints(args[kIndices].tensor);
    index.resize(entries, -1);

    // Releases that check no shapes would go out of bounds here; such entries count as outside the range.
    int64_t limit = std::min(sizes.end, sizes.permuted), rows = out.count();
    if (weighted) rows = std::min(rows, permuted.count());
    std::vector<int64_t> writer(std::clamp<int64_t>(limit - start, 0, rows), -1);
    bool outside = false;
    for (int64_t i = 0; i < entries; ++i) {
        bool ok = index[i] >= start && index[i] < limit;
        outside = outside || (ok && index[i] - start >= rows);
        index[i] = ok && index[i] - start < rows ? index[i] - start : -1;  // from here on the row, or -1
        if (index[i] >= 0) writer[index[i]] = i;
    }
    if (outside) {
        report_violation(text("aclnnMoeTokenUnpermuteWithEpGrad: sortedIndices names rows of permutedTokensOptional ",
                              "or permutedTokensGradOut that do not exist (they have ", rows,
                              "). The device would go out of bounds; the entries are skipped"));
    }
    const int64_t row_bytes = hidden * static_cast<int64_t>(sizeof(T));
    if (!weighted) {
        parallel(static_cast<int64_t>(writer.size()), grain_of(row_bytes), [&](int64_t begin, int64_t end) {
            Scratch<T> scratch(1, hidden);
            for (int64_t r = begin; r < end; ++r) {
                if (writer[r] >= 0) out.copy(r, grads.read(writer[r] / top_k, scratch.row(0)));
            }
        });
        return;
    }
    const View &probs_out = args[kProbsGrad].tensor;
    std::vector<float> probs = read_probs(args[kProbs].tensor, probs_out.dtype, entries), dots(entries);
    const std::vector<T> zero_row(hidden);
    const T *const zeros = zero_row.data();
    bool stream = static_cast<int64_t>(writer.size()) * row_bytes > kStreamBytes;
    parallel(tokens, grain_of(top_k * row_bytes), [&](int64_t begin, int64_t end) {
        Scratch<T> scratch(3, hidden);
        T *const x_row = scratch.row(0), *const out_row = scratch.row(1);
        for (int64_t t = begin; t < end; ++t) {
            const T *g = grads.read(t, scratch.row(2));
            for (int64_t i = t * top_k; i < (t + 1) * top_k; ++i) {
                int64_t r = index[i];
                if (r < 0) {  // 0 * g is really evaluated: 0, or NaN when g has an infinity or a NaN
                    dots[i] = scale_and_dot<T>(zeros, nullptr, g, 0, out_row, hidden, zeros, false) + 0.0f;
                    continue;
                }
                bool writes = writer[r] == i;
                T *to = writes ? out.target(r, out_row) : out_row;
                const T *x = permuted.read(r, x_row), *next = permuted.hint(i + 1 < entries ? index[i + 1] : -1, x);
                dots[i] = scale_and_dot<T>(x, nullptr, g, probs[i], to, hidden, next, stream && writes);
                if (writes) out.finish(r, to);
            }
        }
        stream_fence();
    });
    if (probs_out.numel() != entries) {  // only unchecked shapes: what lies beyond the entries keeps its content
        std::vector<float> all = read_floats(probs_out);
        std::copy_n(dots.begin(), std::min(dots.size(), all.size()), all.begin());
        dots = all;
    }
    write_floats(probs_out, dots);
}

void run_grad(std::vector<Arg> &args, const Config &config) {
    with_float(args[kTokensGrad].tensor.dtype, [&](auto type) { run_grad_rows<decltype(type)>(args, config); });
}

// ---- aclnnMoeTokenUnpermuteWithEp and aclnnMoeTokenPermuteWithEpGrad: out[t] = sum over k of rows in the range

enum GatherArg { kRows, kGatherIndices, kWeights, kNumTopk, kGatherRange, kGatherPadded, kUnpermuteRestore,
                 kGatherOut = 6, kUnpermuteOut = 7, kWeightsOut = 7 };

constexpr TensorRule kUnpermuteRules[] = {
    {kRows, "permutedTokens", true, Dtypes::Token},
    {kGatherIndices, "sortedIndices", true, Dtypes::Int32},
    {kWeights, "probsOptional", false, Dtypes::Token},
    {kUnpermuteOut, "out", true, Dtypes::Token, kRows},
};
constexpr TensorRule kPermuteGradRules[] = {
    {kRows, "permutedTokensOutputGrad", true, Dtypes::Token},
    {kGatherIndices, "sortedIndices", true, Dtypes::Int32},
    {kWeights, "permutedProbsOutputGradOptional", false, Dtypes::Token, kRows},
    {kGatherOut, "tokenGradOut", true, Dtypes::Token, kRows},
    {kWeightsOut, "probsGradOut", true, Dtypes::Token, kRows},
};

struct GatherSizes {
    int64_t entries, top_k, tokens, hidden, start, end;
};

bool has_pair(const std::vector<Arg> &args) {
    return !args[kGatherRange].present || args[kGatherRange].ints.size() == 2;
}

// The range is used as it is, neither wrapped nor clamped.
GatherSizes gather_sizes(const std::vector<Arg> &args, const MoeRelease &release) {
    GatherSizes sizes = {};
    sizes.entries = dim(args[kGatherIndices].tensor, 0);
    sizes.top_k = args[kNumTopk].i;
    sizes.tokens = sizes.entries / sizes.top_k;
    sizes.hidden = dim(args[kRows].tensor, 1);
    if (args[kGatherRange].present) {
        sizes.start = args[kGatherRange].ints[0];
        sizes.end = args[kGatherRange].ints[1];
    } else {
        sizes.end = release.ep_gather_null == NullRange::All ? sizes.entries : 0;
    }
    return sizes;
}

// Rows of a permuted tensor that the range reads; fewer would be read out of bounds.
int64_t rows_needed(const GatherSizes &sizes) {
    bool reads = sizes.start < sizes.end && sizes.end > 0 && sizes.start < sizes.entries;
    return reads ? std::min(sizes.end, sizes.entries) - sizes.start : 0;
}

// What both operators refuse in every release, and in the documented behaviour.
Status check_gather(const std::vector<Arg> &args, TensorRules rules, int out, const MoeRelease &release) {
    const View &rows = args[kRows].tensor, &indices = args[kGatherIndices].tensor;
    const char *rows_name = rules.begin()->name;
    EMU_REQUIRE(args[kNumTopk].i >= 1, kTilingRefused, "numTopk is ", args[kNumTopk].i, "; accepted: at least 1");
    EMU_REQUIRE(rows.ndim == 2, kTilingRefused, rows_name, " has shape ", shape_text(rows), "; accepted: (rows, H)");
    if (!release.ep_gather_checks_all) return {};
    EMU_REQUIRE(indices.ndim == 1 && indices.dims[0] % args[kNumTopk].i == 0, kTilingRefused,
                "sortedIndices has shape ", shape_text(indices), "; accepted: (T*numTopk,) with numTopk = ",
                args[kNumTopk].i);
    EMU_REQUIRE(has_pair(args), kTilingRefused, "rangeOptional has ", args[kGatherRange].ints.size(),
                " values; accepted: 2, or null");
    GatherSizes sizes = gather_sizes(args, release);
    EMU_REQUIRE(rows.dims[0] >= rows_needed(sizes), kTilingRefused, rows_name, " has shape ", shape_text(rows),
                "; accepted: at least ", rows_needed(sizes), " rows for the range {", sizes.start, ", ",
                sizes.end, "}");
    EMU_REQUIRE(shape_is(args[out].tensor, {sizes.tokens, sizes.hidden}), kTilingRefused,
                out == kUnpermuteOut ? "out" : "tokenGradOut", " has shape ", shape_text(args[out].tensor),
                "; accepted: (", sizes.tokens, ", ", sizes.hidden, ")");
    return {};
}

Status check_unpermute(const std::vector<Arg> &args, const Config &config) {
    const MoeRelease &release = moe_release(config);
    EMU_PASS(check_generated(args, kUnpermuteRules, on_product(config), config));
    if (release.ep_checks_probs_dtype) EMU_PASS(check_dtypes(args, kUnpermuteRules, false, false, kParamInvalid));
    if (all_empty(args, {kUnpermuteOut})) {
        return nothing_to_launch(args[kRows], "permutedTokens", 2, kTilingRefused, config);
    }
    const View &probs = args[kWeights].tensor;
    int64_t top_k = args[kNumTopk].i, entries = dim(args[kGatherIndices].tensor, 0);
    EMU_REQUIRE(!args[kWeights].present || (probs.ndim == 2 && probs.dims[1] == top_k && probs.numel() == entries &&
                                            top_k <= kMaxTopK),
                kTilingRefused, "probsOptional has shape ", shape_text(probs), ", numTopk is ", top_k,
                " and sortedIndices has ", entries, " elements; accepted: (T, numTopk) with as many elements, ",
                "numTopk at most ", kMaxTopK);
    EMU_PASS(check_gather(args, kUnpermuteRules, kUnpermuteOut, release));
    return ready(kGeneratedWorkspace, false);
}

Status check_permute_grad(const std::vector<Arg> &args, const Config &config) {
    const MoeRelease &release = moe_release(config);
    EMU_PASS(check_generated(args, kPermuteGradRules, on_product(config), config));
    if (release.ep_checks_probs_dtype) EMU_PASS(check_dtypes(args, kPermuteGradRules, false, false, kParamInvalid));
    if (all_empty(args, {kGatherOut, kWeightsOut})) {
        return nothing_to_launch(args[kRows], "permutedTokensOutputGrad", 2, kTilingRefused, config);
    }
    EMU_PASS(check_gather(args, kPermuteGradRules, kGatherOut, release));
    const View &weights = args[kWeights].tensor, &weights_out = args[kWeightsOut].tensor;
    EMU_REQUIRE(!args[kWeights].present || weights.ndim == 1, kTilingRefused,
                "permutedProbsOutputGradOptional has shape ", shape_text(weights), "; accepted: (rows,)");
    if (release.ep_gather_checks_all && args[kWeights].present) {
        GatherSizes sizes = gather_sizes(args, release);
        EMU_REQUIRE(weights.dims[0] >= rows_needed(sizes), kTilingRefused, "permutedProbsOutputGradOptional has shape ",
                    shape_text(weights), "; accepted: at least ", rows_needed(sizes), " rows for the range {",
                    sizes.start, ", ", sizes.end, "}");
        // Probs of one entry per token may be 1-D in PermuteWithEp, and so may their gradient.
        EMU_REQUIRE(shape_is(weights_out, {sizes.tokens, sizes.top_k}) || shape_is(weights_out, {sizes.entries}),
                    kTilingRefused, "probsGradOut has shape ", shape_text(weights_out), "; accepted: (", sizes.tokens,
                    ", ", sizes.top_k, ")");
    }
    return ready(kGeneratedWorkspace, false);
}

// index[i] becomes the row that entry i reads, or -1. Rows that do not exist are reported and left out.
void keep_range(const char *api, const GatherSizes &sizes, int64_t rows, std::vector<int64_t> &index) {
    bool outside = false;
    for (int64_t &entry : index) {
        bool ok = entry >= sizes.start && entry < sizes.end;
        outside = outside || (ok && entry - sizes.start >= rows);
        entry = ok && entry - sizes.start < rows ? entry - sizes.start : -1;
    }
    if (outside) {
        report_violation(text(api, ": sortedIndices names rows beyond the ", rows, " that the permuted tensor has, ",
                              "with range {", sizes.start, ", ", sizes.end,
                              "}. The device would read out of bounds; the entries are skipped"));
    }
}

// fp32 sums in the order of k, one rounding; an entry of weight 0 is skipped, so 0 * inf contributes nothing.
template <class T>
void gather_rows(const Rows &rows, const View &out_view, const GatherSizes &sizes, const std::vector<int64_t> &index,
                 const std::vector<float> *weights) {
    int64_t hidden = sizes.hidden, top_k = sizes.top_k;
    Rows out(out_view, hidden);
    int64_t grain = grain_of((top_k + 1) * hidden * static_cast<int64_t>(sizeof(T)));
    parallel(std::min(sizes.tokens, out.count()), grain, [&](int64_t begin, int64_t end) {
        Scratch<T> scratch(1, hidden);
        T *const row = scratch.row(0);
        std::vector<float> sum(hidden);
        for (int64_t t = begin; t < end; ++t) {
            std::fill(sum.begin(), sum.end(), 0.0f);
            for (int64_t i = t * top_k; i < (t + 1) * top_k; ++i) {
                if (index[i] < 0) continue;
                if (!weights) {
                    add_row(sum.data(), rows.read(index[i], row), hidden);
                } else if ((*weights)[i] != 0) {
                    add_scaled_row<T>(sum.data(), rows.read(index[i], row), nullptr, (*weights)[i], hidden);
                }
            }
            T *to = out.target(t, row);
            round_row(to, sum.data(), hidden);
            out.finish(t, to);
        }
    });
}

void run_unpermute(std::vector<Arg> &args, const Config &config) {
    if (!has_pair(args)) return;  // such a list leaves the tiling blank: nothing runs
    GatherSizes sizes = gather_sizes(args, moe_release(config));
    if (sizes.hidden <= 0 || sizes.entries <= 0) return;
    Rows rows(args[kRows].tensor, sizes.hidden);
    std::vector<int64_t> index = read_ints(args[kGatherIndices].tensor);
    index.resize(sizes.entries, -1);
    keep_range(kMoeTokenUnpermuteWithEp.name, sizes, rows.count(), index);
    std::vector<float> probs;
    if (args[kWeights].present) probs = read_floats(args[kWeights].tensor);
    with_float(args[kRows].tensor.dtype, [&](auto type) {
        gather_rows<decltype(type)>(rows, args[kUnpermuteOut].tensor, sizes, index, probs.empty() ? nullptr : &probs);
    });
}

void run_permute_grad(std::vector<Arg> &args, const Config &config) {
    if (!has_pair(args)) return;
    GatherSizes sizes = gather_sizes(args, moe_release(config));
    if (sizes.entries <= 0) return;
    std::vector<int64_t> original = read_ints(args[kGatherIndices].tensor);
    original.resize(sizes.entries, -1);
    if (sizes.hidden > 0) {
        Rows rows(args[kRows].tensor, sizes.hidden);
        std::vector<int64_t> index = original;
        keep_range(kMoeTokenPermuteWithEpGrad.name, sizes, rows.count(), index);
        with_float(args[kRows].tensor.dtype, [&](auto type) {
            gather_rows<decltype(type)>(rows, args[kGatherOut].tensor, sizes, index, nullptr);
        });
    }
    if (!args[kWeights].present) return;
    const View &out = args[kWeightsOut].tensor;
    int64_t count = args[kWeights].tensor.numel();
    keep_range(kMoeTokenPermuteWithEpGrad.name, sizes, count, original);
    std::vector<float> weights = read_probs(args[kWeights].tensor, out.dtype, count);
    std::vector<float> grads = out.numel() == sizes.entries ? std::vector<float>(sizes.entries) : read_floats(out);
    for (size_t i = 0; i < std::min(original.size(), grads.size()); ++i) {
        grads[i] = original[i] < 0 ? 0.0f : weights[original[i]];
    }
    write_floats(out, grads);
}

}  // namespace

const Op kMoeTokenUnpermuteWithEpGrad = {"aclnnMoeTokenUnpermuteWithEpGrad", Kind::Individual, check_grad, run_grad};
const Op kMoeTokenUnpermuteWithEp = {"aclnnMoeTokenUnpermuteWithEp", Kind::Individual, check_unpermute, run_unpermute};
const Op kMoeTokenPermuteWithEpGrad = {"aclnnMoeTokenPermuteWithEpGrad", Kind::Individual, check_permute_grad,
                                       run_permute_grad};

}  // namespace emu
