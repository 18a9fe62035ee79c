// Sizes of weights in the blocked format, which programs ask for before they allocate.
#include "aclnn/weight_size.h"

#include "descriptors.h"

namespace {

aclnnStatus weight_size(const char *api, const aclIntArray *shape, int64_t columns, uint64_t *size) {
    using namespace emu;
    if (shape == nullptr || size == nullptr) {
        return fail(api, 161001, "%s is null", shape == nullptr ? "tensorShape" : "weightTensorSize");
    }
    const IntArray *sizes = int_arrays().get(shape);
    if (sizes == nullptr) {
        violation(api, "tensorShape: %s", int_arrays().describe(shape));
        return fail(api, 161002, "tensorShape: %s", int_arrays().describe(shape));
    }
    size_t count = sizes->size();
    if (count < 2 || count > 6) return fail(api, 161002, "tensorShape has %zu sizes, 2 to 6 are accepted", count);
    int64_t elements = 1;
    for (size_t i = 0; i < count; ++i) {
        int64_t unit = i + 2 < count ? 1 : i + 2 == count ? 16 : columns;
        elements *= ((*sizes)[i] + unit - 1) / unit * unit;
    }
    *size = static_cast<uint64_t>(elements);
    return 0;
}

}  // namespace

aclnnStatus aclnnCalculateMatmulWeightSize(const aclIntArray *tensorShape, uint64_t *weightTensorSize) {
    EMU_ENTER_STATUS();
    return weight_size(__func__, tensorShape, 16, weightTensorSize);
}

aclnnStatus aclnnCalculateMatmulWeightSizeV2(const aclIntArray *tensorShape, aclDataType dataType,
                                             uint64_t *weightTensorSize) {
    EMU_ENTER_STATUS();
    bool halves = dataType == ACL_FLOAT16 || dataType == ACL_BF16;
    return weight_size(__func__, tensorShape, halves ? 16 : 32, weightTensorSize);
}
