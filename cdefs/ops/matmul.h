/* Matrix products. Both stages each. */
#ifndef ACLNN_PY_OPS_MATMUL_H
#define ACLNN_PY_OPS_MATMUL_H

#include "../types.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnMatmulGetWorkspaceSize(
    const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cubeMathType, uint64_t
    *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnMatmul(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnMmGetWorkspaceSize(
    const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cubeMathType, uint64_t
    *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnMm(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnBatchMatMulGetWorkspaceSize(
    const aclTensor *self, const aclTensor *mat2, aclTensor *out, int8_t cubeMathType, uint64_t
    *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnBatchMatMul(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnAddmmGetWorkspaceSize(
    const aclTensor *self, const aclTensor *mat1, const aclTensor *mat2, const aclScalar *beta, const
    aclScalar *alpha, aclTensor *out, int8_t cubeMathType, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnAddmm(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnInplaceAddmmGetWorkspaceSize(
    const aclTensor *selfRef, const aclTensor *mat1, const aclTensor *mat2, const aclScalar *beta, const
    aclScalar *alpha, int8_t cubeMathType, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnInplaceAddmm(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
