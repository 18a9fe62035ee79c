// Prototypes of operators that exist nowhere: what --signature is given.
aclnnStatus aclnnExampleMixGetWorkspaceSize(
    const aclTensor *x, const aclFloatArray *scales, const aclBoolArray *mask, const aclScalarList *weights,
    const char *layout, const aclTensor *out, uint64_t *workspaceSize, aclOpExecutor **executor);
aclnnStatus aclnnExampleResizeGetWorkspaceSize(
    const aclTensor *image, const aclTensor *weight, const aclTensor *out, uint64_t *workspaceSize,
    aclOpExecutor **executor);
aclnnStatus aclnnAllGatherMatmulGetWorkspaceSize(
    const aclTensor *x1, const aclTensor *x2, const aclTensor *bias, const char *group, int64_t gatherIndex,
    int64_t commTurn, int64_t streamMode, const aclTensor *output, const aclTensor *gatherOut, uint64_t *workspaceSize,
    aclOpExecutor **executor);
