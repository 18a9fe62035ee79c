/* How many elements a matmul weight of a shape takes in the blocked NZ format: the last two sizes are rounded up to 16
 * and 16 (float16, bfloat16; without a dtype) or to 16 and 32. */
#ifndef ACLNN_PY_WEIGHT_SIZE_H
#define ACLNN_PY_WEIGHT_SIZE_H

#include "aclnn_base.h"

#ifdef __cplusplus
extern "C" {
#endif

aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray *tensorShape, uint64_t *weightTensorSize);
aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray *tensorShape, aclDataType dataType,
                                             uint64_t *weightTensorSize);

#ifdef __cplusplus
}
#endif

#endif
