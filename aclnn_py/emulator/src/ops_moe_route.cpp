// The producers of routed tokens, both by a stable sort: aclnnMoeInitRoutingV2 and aclnnMoeTokenPermuteWithEp.
#include <algorithm>
#include <numeric>

#include "checks.h"
#include "kernels_common.h"
#include "moe.h"

namespace emu {

namespace {

constexpr int64_t kMaxTopK = 512;
constexpr int64_t kMaxEntries = 16777215;  // the device sorts float32 keys

// order[p] = the entry at place p of the stable ascending sort.
std::vector<int64_t> sorted_order(const std::vector<int64_t> &keys) {
    std::vector<int64_t> order(keys.size());
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return keys[a] < keys[b]; });
    return order;
}

// Row r of `out` = row source[r] of `from` bit by bit, zeros for -1.
template <class T>
void copy_rows(const Rows &from, const Rows &out, int64_t width, const std::vector<int64_t> &source) {
    const std::vector<T> zeros(width);
    int64_t grain = grain_of(width * static_cast<int64_t>(sizeof(T)));
    parallel(static_cast<int64_t>(source.size()), grain, [&](int64_t begin, int64_t end) {
        Scratch<T> scratch(1, width);
        for (int64_t r = begin; r < end; ++r) {
            out.copy(r, source[r] < 0 ? zeros.data() : from.read(source[r], scratch.row(0)));
        }
    });
}

// ---- aclnnMoeInitRoutingV2

enum InitArg { kX, kExpertIdx, kActiveNum, kCapacity, kExpertNum, kDropPadMode, kCountFlag, kBeforeFlag, kExpandedX,
               kRowIdx, kCountOut, kBeforeOut };

// int64 expertIdx is accepted by 950 only; the check says so.
constexpr TensorRule kInitRules[] = {
    {kX, "x", true, Dtypes::Token},
    {kExpertIdx, "expertIdx", true, Dtypes::Int32Or64},
    {kExpandedX, "expandedXOut", true, Dtypes::Token, kX},
    {kRowIdx, "expandedRowIdxOut", true, Dtypes::Int32},
    {kCountOut, "expertTokensCountOrCumsumOutOptional", false, Dtypes::Int32},
    {kBeforeOut, "expertTokensBeforeCapacityOutOptional", false, Dtypes::Int32},
};

// Which optional output the call writes: counts or their running sum without padding, counts before the capacity
// with it; the other flag is ignored.
int counted_output(const std::vector<Arg> &args) {
    if (args[kDropPadMode].i == 0) return args[kCountFlag].i != 0 ? kCountOut : -1;
    return args[kBeforeFlag].i != 0 ? kBeforeOut : -1;
}

int64_t init_rows(const std::vector<Arg> &args) {
    int64_t entries = args[kExpertIdx].tensor.numel(), active = args[kActiveNum].i;
    if (args[kDropPadMode].i == 1) return args[kExpertNum].i * args[kCapacity].i;
    // A negative activeNum counts from the end on 950; the others refuse it.
    return std::clamp<int64_t>(active > 0 ? active : active + entries, 0, entries);
}

Status check_init_shapes(const std::vector<Arg> &args, const Config &config) {
    const aclnnStatus code = kInnerNullptr;
    const View &x = args[kX].tensor, &experts = args[kExpertIdx].tensor;
    int64_t mode = args[kDropPadMode].i, capacity = args[kCapacity].i, expert_num = args[kExpertNum].i;
    int64_t flag = args[kCountFlag].i;
    EMU_REQUIRE(x.ndim == 2, code, "x has shape ", shape_text(x), "; accepted: (R, H)");
    bool flat = config.product == Product::P950 && experts.ndim == 1;  // means K = 1
    EMU_REQUIRE((experts.ndim == 2 || flat) && experts.dims[0] == x.dims[0], code, "expertIdx has shape ",
                shape_text(experts), "; accepted: (", x.dims[0], ", K)",
                config.product == Product::P950 ? " or (R,)" : "");
    EMU_REQUIRE(args[kActiveNum].i >= 0 || config.product == Product::P950, code, "activeNumOptional is ",
                args[kActiveNum].i, "; accepted: 0 or greater");
    EMU_REQUIRE(capacity >= 0 && expert_num >= 0, code, "expertCapacityOptional is ", capacity,
                " and expertNumOptional is ", expert_num, "; accepted: 0 or greater");
    EMU_REQUIRE(mode == 0 || mode == 1, code, "dropPadModeOptional is ", mode, "; accepted: 0 or 1");
    EMU_REQUIRE(mode == 0 || (expert_num > 0 && capacity > 0 && capacity <= x.dims[0]), code, "expertNumOptional is ",
                expert_num, " and expertCapacityOptional is ", capacity,
                "; with dropPadModeOptional 1 accepted: both greater than 0, the capacity at most R = ", x.dims[0]);
    EMU_REQUIRE(flag >= 0 && flag <= 2, code, "expertTokensCountOrCumsumFlagOptional is ", flag,
                "; accepted: 0, 1 or 2");
    EMU_REQUIRE(flag == 0 || expert_num > 0, code,
                "expertNumOptional is 0; it must be greater than 0 with expertTokensCountOrCumsumFlagOptional ", flag);

    const View &out = args[kExpandedX].tensor, &row_idx = args[kRowIdx].tensor;
    int64_t rows = mode == 0 ? init_rows(args) : 0, hidden = x.dims[1];
    EMU_REQUIRE(mode == 0 ? shape_is(out, {rows, hidden}) : shape_is(out, {expert_num, capacity, hidden}), code,
                "expandedXOut has shape ", shape_text(out), "; accepted: ",
                mode == 0 ? text("(", rows, ", ", hidden, ")")
                          : text("(", expert_num, ", ", capacity, ", ", hidden, ")"));
    EMU_REQUIRE(shape_is(row_idx, {experts.numel()}), code, "expandedRowIdxOut has shape ", shape_text(row_idx),
                "; accepted: (", experts.numel(), ",)");
    int counted = counted_output(args);
    EMU_REQUIRE(counted < 0 || (args[counted].present && shape_is(args[counted].tensor, {expert_num}) &&
                                args[counted].tensor.dtype == ACL_INT32),
                code, counted == kCountOut ? "expertTokensCountOrCumsumOutOptional" :
                                             "expertTokensBeforeCapacityOutOptional",
                " is ", args[std::max(counted, 0)].present ? shape_text(args[std::max(counted, 0)].tensor)
                                                           : "a null pointer",
                "; its flag asks for int32 of shape (", expert_num, ",)");
    return {};
}

Status check_init(const std::vector<Arg> &args, const Config &config) {
    EMU_PASS(check_present(args, kInitRules));
    EMU_PASS(check_dtypes(args, kInitRules, true, true, kParamInvalid));
    EMU_PASS(check_dtypes(args, kInitRules, false, true, kParamInvalid));
    const View &experts = args[kExpertIdx].tensor;
    EMU_REQUIRE(config.product == Product::P950 || experts.numel() == 0 || experts.dtype == ACL_INT32, kParamInvalid,
                "expertIdx is ", dtype_text(experts.dtype), "; on ", product_text(config.product), " accepted: int32");
    if (all_empty(args, {kExpandedX, kRowIdx, kCountOut, kBeforeOut})) {
        return nothing_to_launch(args[kX], "x", 2, kInnerNullptr, config);
    }
    EMU_REQUIRE(config.product != Product::Other, kInnerNullptr,
                "aclnnMoeInitRoutingV2 has no kernel for this SoC; supported: A2, A3, 950");
    EMU_PASS(check_dtypes(args, kInitRules, true, false, kInnerNullptr));
    EMU_PASS(check_init_shapes(args, config));
    return ready(kCompositeWorkspace, false);
}

void run_init(std::vector<Arg> &args, const Config &) {
    const View &x = args[kX].tensor;
    bool padded = args[kDropPadMode].i == 1;
    int64_t hidden = x.dims[1], experts = args[kExpertNum].i, capacity = args[kCapacity].i, rows = init_rows(args);
    std::vector<int64_t> keys = read_ints(args[kExpertIdx].tensor), order = sorted_order(keys);
    int64_t entries = static_cast<int64_t>(keys.size()), top_k = x.dims[0] ? entries / x.dims[0] : 1;

    // Experts outside [0, expertNum) have no slot and are not counted.
    int counted = counted_output(args);
    if (!padded && counted < 0) experts = 0;
    std::vector<int64_t> counts(experts), row_idx(entries), source(hidden > 0 ? rows : 0, -1);
    for (int64_t p = 0; p < entries; ++p) {
        int64_t entry = order[p], expert = keys[entry], slot = p;
        bool known = expert >= 0 && expert < experts;
        int64_t rank = known ? counts[expert]++ : capacity;
        if (padded) slot = rank < capacity ? expert * capacity + rank : -1;
        row_idx[entry] = slot;
        if (slot >= 0 && slot < static_cast<int64_t>(source.size())) source[slot] = entry / top_k;
    }
    write_ints(args[kRowIdx].tensor, row_idx);
    if (hidden > 0) {
        Rows from(x, hidden), out(args[kExpandedX].tensor, hidden);
        with_float(x.dtype, [&](auto type) { copy_rows<decltype(type)>(from, out, hidden, source); });
    }
    if (counted < 0) return;
    if (counted == kCountOut && args[kCountFlag].i == 1) std::partial_sum(counts.begin(), counts.end(), counts.begin());
    write_ints(args[counted].tensor, counts);
}

// ---- aclnnMoeTokenPermuteWithEp

enum PermuteArg { kTokens, kIndices, kProbs, kRange, kNumOutTokens, kPaddedMode, kTokensOut, kSortedOut, kProbsOut };

constexpr TensorRule kPermuteRules[] = {
    {kTokens, "tokens", true, Dtypes::Token},
    {kIndices, "indices", true, Dtypes::Int32Or64},
    {kProbs, "probsOptional", false, Dtypes::Token, kTokens},
    {kTokensOut, "permuteTokensOut", true, Dtypes::Token, kTokens},
    {kSortedOut, "sortedIndicesOut", true, Dtypes::Int32},
    {kProbsOut, "permuteProbsOut", true, Dtypes::Token, kTokens},
};

// The range as first row and number of rows; null is {0, 0}.
struct Part {
    int64_t start = 0, rows = 0;
};

Status permute_part(const std::vector<Arg> &args, const MoeRelease &release, Part &part) {
    int64_t n = args[kIndices].tensor.numel();
    std::vector<int64_t> range = args[kRange].present ? args[kRange].ints : std::vector<int64_t>{0, 0};
    EMU_REQUIRE(range.size() == 2, kTilingRefused, "rangeOptional has ", range.size(), " values; accepted: 2, or null");
    int64_t start = range[0], end = range[1];
    EMU_REQUIRE(start >= 0 && end >= 0 && start <= n && end <= n &&
                    (start <= end || !release.ep_permute_range_ordered),
                kTilingRefused, "rangeOptional is {", start, ", ", end, "}; accepted: 0 <= start <= end <= ", n);
    // The tiling adds N to a length that is not positive: {0, 0} is the whole, which hosts extend to any empty range.
    if (start == end && release.ep_permute_range_ordered) start = end = 0;
    part = {start, end > start ? end - start : end - start + n};
    return {};
}

Status check_permute(const std::vector<Arg> &args, const Config &config) {
    const MoeRelease &release = moe_release(config);
    bool installed = config.product == Product::A2 || config.product == Product::A3 ||
                     (config.product == Product::P950 && release.ep_on_950);
    EMU_PASS(check_generated(args, kPermuteRules, installed, config));
    if (release.ep_checks_probs_dtype) EMU_PASS(check_dtypes(args, kPermuteRules, false, false, kParamInvalid));
    if (all_empty(args, {kTokensOut, kSortedOut, kProbsOut})) {
        return nothing_to_launch(args[kTokens], "tokens", 2, kTilingRefused, config);
    }

    const View &tokens = args[kTokens].tensor, &indices = args[kIndices].tensor, &probs = args[kProbs].tensor;
    const aclnnStatus code = kTilingRefused;
    EMU_REQUIRE(args[kPaddedMode].i == 0, code, "paddedMode is true; accepted: false");
    EMU_REQUIRE(tokens.ndim == 2, code, "tokens has shape ", shape_text(tokens), "; accepted: (T, H)");
    EMU_REQUIRE((indices.ndim == 1 || indices.ndim == 2) && indices.dims[0] == tokens.dims[0], code,
                "indices has shape ", shape_text(indices), "; accepted: (", tokens.dims[0], ", topK) or (",
                tokens.dims[0], ",)");
    bool like = probs.ndim == indices.ndim && std::equal(probs.dims, probs.dims + probs.ndim, indices.dims);
    EMU_REQUIRE(!args[kProbs].present || like, code, "probsOptional has shape ", shape_text(probs), "; accepted: ",
                shape_text(indices), " as indices");
    int64_t top_k = indices.ndim == 1 ? 1 : indices.dims[1];
    EMU_REQUIRE(top_k >= 1 && top_k <= kMaxTopK, code, "indices dim 1 is ", top_k, "; accepted: 1 to ", kMaxTopK);
    EMU_REQUIRE(indices.numel() < kMaxEntries, code, "indices has ", indices.numel(), " elements; accepted: fewer ",
                "than ", kMaxEntries);
    Part part;
    EMU_PASS(permute_part(args, release, part));
    EMU_REQUIRE(shape_is(args[kSortedOut].tensor, {indices.numel()}), code, "sortedIndicesOut has shape ",
                shape_text(args[kSortedOut].tensor), "; accepted: (", indices.numel(), ",)");
    EMU_REQUIRE(shape_is(args[kTokensOut].tensor, {part.rows, tokens.dims[1]}), code, "permuteTokensOut has shape ",
                shape_text(args[kTokensOut].tensor), "; accepted: (", part.rows, ", ", tokens.dims[1], ")");
    EMU_REQUIRE(!args[kProbs].present || shape_is(args[kProbsOut].tensor, {part.rows}), code,
                "permuteProbsOut has shape ", shape_text(args[kProbsOut].tensor), "; accepted: (", part.rows, ",)");
    return ready(kGeneratedWorkspace, false);
}

void run_permute(std::vector<Arg> &args, const Config &config) {
    const View &tokens = args[kTokens].tensor;
    int64_t hidden = tokens.dims[1];
    Part part;
    permute_part(args, moe_release(config), part);
    std::vector<int64_t> order = sorted_order(read_ints(args[kIndices].tensor)), sorted(order.size());
    int64_t entries = static_cast<int64_t>(order.size()), top_k = tokens.dims[0] ? entries / tokens.dims[0] : 1;
    for (int64_t p = 0; p < entries; ++p) sorted[order[p]] = p;
    write_ints(args[kSortedOut].tensor, sorted);

    int64_t rows = std::min(part.rows, entries - part.start);  // rows past the last entry keep their content
    if (hidden > 0) {
        std::vector<int64_t> source(rows);
        for (int64_t r = 0; r < rows; ++r) source[r] = order[part.start + r] / top_k;
        Rows from(tokens, hidden), out(args[kTokensOut].tensor, hidden);
        with_float(tokens.dtype, [&](auto type) { copy_rows<decltype(type)>(from, out, hidden, source); });
    }
    if (!args[kProbs].present) return;
    const View &probs = args[kProbs].tensor, &probs_out = args[kProbsOut].tensor;
    std::vector<float> values =
        probs.dtype == probs_out.dtype ? read_floats(probs)
                                       : reread_floats(probs, dtype_size(probs.dtype), probs_out.dtype);
    values.resize(entries);
    std::vector<float> permuted = read_floats(probs_out);
    for (int64_t r = 0; r < rows; ++r) permuted[r] = values[order[part.start + r]];
    write_floats(probs_out, permuted);
}

}  // namespace

const Op kMoeInitRoutingV2 = {"aclnnMoeInitRoutingV2", Kind::Composite, check_init, run_init};
const Op kMoeTokenPermuteWithEp = {"aclnnMoeTokenPermuteWithEp", Kind::Individual, check_permute, run_permute};

}  // namespace emu
