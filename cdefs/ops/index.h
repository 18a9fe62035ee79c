/* Sorting, selecting and rearranging. Both stages each. */
#ifndef ACLNN_PY_OPS_INDEX_H
#define ACLNN_PY_OPS_INDEX_H

#include "../types.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnSortGetWorkspaceSize(
    const aclTensor *self, bool stable, int64_t dim, bool descending, aclTensor *valuesOut, aclTensor
    *indicesOut, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnSort(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnTopkGetWorkspaceSize(
    const aclTensor *self, int64_t k, int64_t dim, bool largest, bool sorted, aclTensor *valuesOut,
    aclTensor *indicesOut, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnTopk(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnGatherGetWorkspaceSize(
    const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out, uint64_t *workspaceSize,
    aclOpExecutor **executor);
aclnnStatus aclnnGather(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnIndexSelectGetWorkspaceSize(
    const aclTensor *self, int64_t dim, const aclTensor *index, aclTensor *out, uint64_t *workspaceSize,
    aclOpExecutor **executor);
aclnnStatus aclnnIndexSelect(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnScatterAddGetWorkspaceSize(
    const aclTensor *self, int64_t dim, const aclTensor *index, const aclTensor *src, aclTensor *out,
    uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnScatterAdd(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnIndexAddGetWorkspaceSize(
    const aclTensor *self, int64_t dim, const aclTensor *index, const aclTensor *source, const aclScalar
    *alpha, aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnIndexAdd(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnCatGetWorkspaceSize(
    const aclTensorList *tensors, int64_t dim, aclTensor *out, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnCat(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnPermuteGetWorkspaceSize(
    const aclTensor *self, const aclIntArray *dims, aclTensor *out, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnPermute(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnScatterGetWorkspaceSize(
    const aclTensor *self, int64_t dim, const aclTensor *index, const aclTensor *src, int64_t reduce,
    aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnScatter(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnInplaceScatterGetWorkspaceSize(
    aclTensor *selfRef, int64_t dim, const aclTensor *index, const aclTensor *src, int64_t reduce,
    uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnInplaceScatter(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnStackGetWorkspaceSize(
    const aclTensorList *tensors, int64_t dim, aclTensor *out, uint64_t *workspaceSize, aclOpExecutor
    **executor);
aclnnStatus aclnnStack(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

aclnnStatus aclnnEmbeddingGetWorkspaceSize(
    const aclTensor *weight, const aclTensor *indices, const aclTensor *out, uint64_t *workspaceSize,
    aclOpExecutor **executor);
aclnnStatus aclnnEmbedding(
    void *workspace, uint64_t workspaceSize, aclOpExecutor *executor, aclrtStream stream);

#ifdef __cplusplus
}
#endif

#endif
