// Objects behind aclTensor, aclScalar, the arrays and the lists.
#pragma once

#include <string>
#include <vector>

#include "core.h"
#include "handles.h"

namespace emu {

struct Shape {
    int ndim = 0;
    int64_t dims[kMaxDims];
};

struct Tensor {
    Shape view, storage;
    int64_t strides[kMaxDims];
    int64_t offset = 0;
    aclDataType dtype = ACL_DT_UNDEFINED;
    aclFormat format = ACL_FORMAT_ND;
    std::atomic<void *> data{nullptr};
};

struct Scalar {
    aclDataType dtype = ACL_DT_UNDEFINED;
    unsigned char bytes[16] = {};
};

// An element of a list: the handle and which of its lives is meant.
struct Member {
    const void *handle = nullptr;
    uint32_t generation = 0;
};

using IntArray = std::vector<int64_t>;
using FloatArray = std::vector<float>;
using BoolArray = std::vector<unsigned char>;
struct TensorList {
    std::vector<Member> members;
};
struct ScalarList {
    std::vector<Member> members;
};

HandleTable<Tensor> &tensors();
HandleTable<Scalar> &scalars();
HandleTable<IntArray> &int_arrays();
HandleTable<FloatArray> &float_arrays();
HandleTable<BoolArray> &bool_arrays();
HandleTable<TensorList> &tensor_lists();
HandleTable<ScalarList> &scalar_lists();

}  // namespace emu
