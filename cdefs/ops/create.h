/* Filling, copying and converting tensors. Both stages each. */
#ifndef ACLNN_PY_OPS_CREATE_H
#define ACLNN_PY_OPS_CREATE_H

#include "../types.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnInplaceOneGetWorkspaceSize(
    const aclTensor *selfRef, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnInplaceOne(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnInplaceZeroGetWorkspaceSize(
    aclTensor *selfRef, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnInplaceZero(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnInplaceFillScalarGetWorkspaceSize(
    aclTensor *selfRef, const aclScalar *value, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnInplaceFillScalar(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnInplaceCopyGetWorkspaceSize(
    aclTensor *selfRef, const aclTensor *src, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnInplaceCopy(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnCastGetWorkspaceSize(
    const aclTensor *self, aclDataType dtype, aclTensor *out, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnCast(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnArangeGetWorkspaceSize(
    const aclScalar *start, const aclScalar *end, const aclScalar *step, aclTensor *out, uint64_t
    *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnArange(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
