/* The MoE operators, both stages each: parameter order and names as in CANN (unchanged from 8.1 to 9.1). */
#ifndef ACLNN_PY_OPS_MOE_H
#define ACLNN_PY_OPS_MOE_H

#include "../types.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnMoeFinalizeRoutingV2GradGetWorkspaceSize(
    const aclTensor *gradY, const aclTensor *expandedRowIdx, const aclTensor *expandedXOptional, const
    aclTensor *scalesOptional, const aclTensor *expertIdxOptional, const aclTensor *biasOptional, int64_t
    dropPadMode, int64_t activeNum, int64_t expertNum, int64_t expertCapacity, const aclTensor
    *gradExpandedXOut, const aclTensor *gradScalesOut, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnMoeFinalizeRoutingV2Grad(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeTokenUnpermuteWithEpGradGetWorkspaceSize(
    const aclTensor *unpermutedTokensGrad, const aclTensor *sortedIndices, const aclTensor
    *permutedTokensOptional, const aclTensor *probsOptional, bool paddedMode, const aclIntArray
    *restoreShapeOptional, const aclIntArray *rangeOptional, int64_t topkNum, const aclTensor
    *permutedTokensGradOut, const aclTensor *probsGradOut, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnMoeTokenUnpermuteWithEpGrad(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeFinalizeRoutingV2GetWorkspaceSize(
    const aclTensor *expandedX, const aclTensor *expandedRowIdx, const aclTensor *x1Optional, const
    aclTensor *x2Optional, const aclTensor *biasOptional, const aclTensor *scalesOptional, const aclTensor
    *expertIdxOptional, int64_t dropPadMode, const aclTensor *out, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnMoeFinalizeRoutingV2(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeTokenUnpermuteWithEpGetWorkspaceSize(
    const aclTensor *permutedTokens, const aclTensor *sortedIndices, const aclTensor *probsOptional,
    int64_t numTopk, const aclIntArray *rangeOptional, bool paddedMode, const aclIntArray
    *restoreShapeOptional, const aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnMoeTokenUnpermuteWithEp(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeTokenPermuteWithEpGetWorkspaceSize(
    const aclTensor *tokens, const aclTensor *indices, const aclTensor *probsOptional, const aclIntArray
    *rangeOptional, int64_t numOutTokens, bool paddedMode, const aclTensor *permuteTokensOut, const
    aclTensor *sortedIndicesOut, const aclTensor *permuteProbsOut, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnMoeTokenPermuteWithEp(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeTokenPermuteWithEpGradGetWorkspaceSize(
    const aclTensor *permutedTokensOutputGrad, const aclTensor *sortedIndices, const aclTensor
    *permutedProbsOutputGradOptional, int64_t numTopk, const aclIntArray *rangeOptional, bool paddedMode,
    const aclTensor *tokenGradOut, const aclTensor *probsGradOut, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnMoeTokenPermuteWithEpGrad(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeInitRoutingV2GetWorkspaceSize(
    const aclTensor *x, const aclTensor *expertIdx, int64_t activeNumOptional, int64_t
    expertCapacityOptional, int64_t expertNumOptional, int64_t dropPadModeOptional, int64_t
    expertTokensCountOrCumsumFlagOptional, bool expertTokensBeforeCapacityFlagOptional, const aclTensor
    *expandedXOut, const aclTensor *expandedRowIdxOut, const aclTensor
    *expertTokensCountOrCumsumOutOptional, const aclTensor *expertTokensBeforeCapacityOutOptional,
    uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnMoeInitRoutingV2(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeFinalizeRoutingV3GetWorkspaceSize(
    const aclTensor *expandedX, const aclTensor *expandedRowIdx, const aclTensor *x1Optional, const
    aclTensor *x2Optional, const aclTensor *biasOptional, const aclTensor *scalesOptional, const aclTensor
    *expertIdxOptional, const aclTensor *xOptional, const aclTensor *a1Optional, const aclTensor
    *a2Optional, const aclTensor *vOptional, int64_t dropPadMode, const aclIntArray *zeroExpertRange,
    const aclIntArray *copyExpertRange, const aclIntArray *constantExpertRange, const aclTensor *out,
    uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnMoeFinalizeRoutingV3(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMoeFinalizeRoutingV4GetWorkspaceSize(
    const aclTensor *expandedX, const aclTensor *expandedRowIdx, const aclTensor *x1Optional, const
    aclTensor *x2Optional, const aclTensor *biasOptional, const aclTensor *scalesOptional, const aclTensor
    *expertIdxOptional, const aclTensor *xOptional, const aclTensor *a1Optional, const aclTensor
    *a2Optional, const aclTensor *vOptional, int64_t dropPadMode, const aclIntArray *zeroExpertRange,
    const aclIntArray *copyExpertRange, const aclIntArray *constantExpertRange, int64_t k, const aclTensor
    *out, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnMoeFinalizeRoutingV4(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
