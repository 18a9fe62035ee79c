// The MoE operators: their table entries, and how their statuses and ranges differ between releases.
#pragma once

#include "checks.h"
#include "op.h"

namespace emu {

extern const Op kMoeFinalizeRoutingV2Grad;
extern const Op kMoeFinalizeRoutingV2;
extern const Op kMoeInitRoutingV2;
extern const Op kMoeTokenUnpermuteWithEpGrad;
extern const Op kMoeTokenUnpermuteWithEp;
extern const Op kMoeTokenPermuteWithEp;
extern const Op kMoeTokenPermuteWithEpGrad;

// What a range argument that is a null pointer means to a WithEp operator.
enum class NullRange { All, LastEmpty, Empty };

// One row per release. "Refused" is a shape, a value or a combination of arguments.
struct MoeRelease {
    // V2Grad became a hand-written operator in 9.1; before, a shell over a generated one showed its codes.
    aclnnStatus grad_refused;
    aclnnStatus grad_optional_dtype;  // dtype of expandedX, scales, expertIdx, bias
    aclnnStatus grad_no_kernel;       // dtypes each accepted, but no kernel for the combination
    bool empty_checks_rank;           // the rank of the tokens is looked at although nothing will be launched
    bool grad_empty_skips_dtype;      // tensors without elements keep their dtype unchecked
    // The forward V2 compiles its dtype checks in for 950 only; on A2 and A3 the kernel look-up finds the fault.
    aclnnStatus forward_dtype_a2;
    bool forward_checks_rows;  // A2 and A3, modes 0 and 2: expandedX has R*K rows
    bool ep_on_950;
    bool ep_checks_probs_dtype;        // else the kernel reads the bytes of probs in the dtype of the output
    bool ep_grad_checks_shapes;        // else only the rank of sortedIndices, topK > 512 and zeros are refused
    bool ep_grad_checks_range_length;  // else a list that is not a pair is an empty range
    NullRange ep_grad_null;            // the literal {-1, -1} too: the library cannot tell it from null
    NullRange ep_gather_null;          // of UnpermuteWithEp and PermuteWithEpGrad, which share their tiling
    bool ep_gather_checks_all;         // their range length, rank and size of sortedIndices, and output shapes
    bool ep_permute_range_ordered;     // start > end is refused, start == end is the whole
};

inline const MoeRelease &moe_release(const Config &config) {
    static const MoeRelease rows[] = {
        // Host: the documented behaviour, as the reference backend gives it
        {561103, 161002, 561103, true, true, 161002, true, true, true, true, true, NullRange::All, NullRange::All,
         true, true},
        // Cann91
        {561103, 161002, 561103, false, true, 561103, false, false, false, false, false, NullRange::LastEmpty,
         NullRange::Empty, false, false},
        // Cann8
        {561002, 561002, 161002, false, false, 561103, false, false, false, false, true, NullRange::LastEmpty,
         NullRange::Empty, false, false},
    };
    return rows[static_cast<int>(config.release)];
}

// The answer when no output has elements.
inline Status nothing_to_launch(const Arg &tokens, const char *name, int highest_rank, aclnnStatus code,
                                const Config &config) {
    int rank = tokens.tensor.ndim;
    EMU_REQUIRE(!moe_release(config).empty_checks_rank || (rank >= 2 && rank <= highest_rank), code, name,
                " has shape ", shape_text(tokens.tensor), "; accepted: 2 dimensions", highest_rank > 2 ? " or 3" : "");
    return ready(0, true);
}

}  // namespace emu
