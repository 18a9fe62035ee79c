#include "descriptors.h"

#include <cstring>

namespace emu {

#define TABLE(function, type, counter)                                        \
    HandleTable<type> &function() {                                           \
        static auto *instance = new HandleTable<type>(counters().counter);    \
        return *instance;                                                     \
    }
TABLE(tensors, Tensor, tensors)
TABLE(scalars, Scalar, scalars)
TABLE(int_arrays, IntArray, arrays)
TABLE(float_arrays, FloatArray, arrays)
TABLE(bool_arrays, BoolArray, arrays)
TABLE(tensor_lists, TensorList, lists)
TABLE(scalar_lists, ScalarList, lists)
#undef TABLE

namespace {

// Status, and the tensor's fields filled; negative sizes and more dimensions than CANN holds are refused.
int fill(const char *api, Tensor &tensor, const int64_t *dims, uint64_t ndim, aclDataType dtype, const int64_t *strides,
         int64_t offset, aclFormat format, const int64_t *storage_dims, uint64_t storage_ndim, void *data) {
    if ((dims == nullptr && ndim > 0) || (storage_dims == nullptr && storage_ndim > 0)) {
        return fail(api, 161001, "%s is null", dims == nullptr && ndim > 0 ? "viewDims" : "storageDims");
    }
    if (ndim > kMaxDims || storage_ndim > kMaxDims) {
        violation(api, "%llu dimensions, at most %d fit", static_cast<unsigned long long>(ndim), kMaxDims);
        return fail(api, 161002, "%llu dimensions, at most %d fit", static_cast<unsigned long long>(ndim), kMaxDims);
    }
    tensor.view.ndim = static_cast<int>(ndim);
    if (ndim > 0) memcpy(tensor.view.dims, dims, ndim * sizeof *dims);
    tensor.storage.ndim = static_cast<int>(storage_ndim);
    if (storage_ndim > 0) memcpy(tensor.storage.dims, storage_dims, storage_ndim * sizeof *dims);
    if (strides != nullptr && ndim > 0) {
        memcpy(tensor.strides, strides, ndim * sizeof *strides);
    } else {
        uint64_t step = 1;  // unsigned: absurd sizes wrap instead of being undefined
        for (int i = tensor.view.ndim; i-- > 0;) {
            tensor.strides[i] = static_cast<int64_t>(step);
            step *= static_cast<uint64_t>(tensor.view.dims[i]);
        }
    }
    tensor.offset = offset;
    tensor.dtype = dtype;
    tensor.format = format;
    tensor.data.store(data);
    return 0;
}

template <class T>
bool known(const char *api, HandleTable<T> &table, const void *handle, T *&object) {
    object = table.get(handle);
    if (object != nullptr) return true;
    violation(api, "handle %p: %s", handle, table.describe(handle));
    fail(api, 161002, "handle %p: %s", handle, table.describe(handle));
    return false;
}

// NULL is fine; a handle destroyed before is a violation, which tolerant mode answers with success as CANN would.
template <class T>
aclnnStatus destroy(const char *api, HandleTable<T> &table, const void *handle) {
    int injected = enter(api);
    if (handle == nullptr) return injected;
    T *object = table.remove(handle);
    if (object == nullptr && violation(api, "handle %p: %s", handle, table.describe(handle))) return 161002;
    delete object;
    return injected;
}

template <class List, class T>
aclnnStatus destroy_list(const char *api, HandleTable<List> &lists, HandleTable<T> &elements, const void *handle) {
    int injected = enter(api);
    if (handle == nullptr) return injected;
    List *list = lists.remove(handle);
    if (list == nullptr) {
        return violation(api, "handle %p: %s", handle, lists.describe(handle)) ? 161002 : injected;
    }
    int code = injected;
    for (const Member &member : list->members) {
        if (member.handle == nullptr) continue;
        T *object = elements.get_same(member.handle, member.generation);
        if (object != nullptr) {
            delete elements.remove(member.handle);
        } else if (violation(api, "element %p is destroyed already: the list destroys its elements", member.handle)) {
            code = 161002;
        }
    }
    delete list;
    return code;
}

template <class T, class V>
void *create_array(const char *api, HandleTable<T> &table, const V *value, uint64_t size) {
    if (enter(api) != 0) return nullptr;
    if (value == nullptr && size > 0) {
        fail(api, 161001, "the values are null, the size is %llu", static_cast<unsigned long long>(size));
        return nullptr;
    }
    T *array = size == 0 ? new T() : new T(value, value + size);
    void *handle = table.add(array);
    if (handle == nullptr) delete array;
    return handle;
}

template <class List, class T, class H>
void *create_list(const char *api, HandleTable<List> &lists, HandleTable<T> &elements, const H *const *value,
                  uint64_t size) {
    if (enter(api) != 0) return nullptr;
    if (value == nullptr && size > 0) {
        fail(api, 161001, "the values are null, the size is %llu", static_cast<unsigned long long>(size));
        return nullptr;
    }
    auto *list = new List;
    for (uint64_t i = 0; i < size; ++i) {
        Member member;
        member.handle = value[i];
        T *object = nullptr;
        if (value[i] != nullptr && known(api, elements, value[i], object)) {
            elements.get(value[i], &member.generation);
        }
        list->members.push_back(member);
    }
    void *handle = lists.add(list);
    if (handle == nullptr) delete list;
    return handle;
}

template <class T>
aclnnStatus size_of(const char *api, HandleTable<T> &table, const void *handle, uint64_t *size) {
    if (int injected = enter(api)) return injected;
    if (handle == nullptr || size == nullptr) return fail(api, 161001, "an argument is null");
    T *object = nullptr;
    if (!known(api, table, handle, object)) return 161002;
    if constexpr (std::is_same_v<T, TensorList> || std::is_same_v<T, ScalarList>) {
        *size = object->members.size();
    } else {
        *size = object->size();
    }
    return 0;
}

// The getters' arrays belong to the caller.
aclnnStatus copy_out(const int64_t *values, int count, int64_t **out, uint64_t *out_count) {
    *out = new int64_t[static_cast<size_t>(count) + 1];
    if (count > 0) memcpy(*out, values, static_cast<size_t>(count) * sizeof *values);
    *out_count = static_cast<uint64_t>(count);
    return 0;
}

}  // namespace

}  // namespace emu

using namespace emu;

aclTensor *aclCreateTensor(const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType, const int64_t *stride,
                           int64_t offset, aclFormat format, const int64_t *storageDims, uint64_t storageDimsNum,
                           void *tensorData) {
    EMU_ENTER(nullptr);
    auto *tensor = new Tensor;
    if (fill(__func__, *tensor, viewDims, viewDimsNum, dataType, stride, offset, format, storageDims, storageDimsNum,
             tensorData) != 0) {
        delete tensor;
        return nullptr;
    }
    void *handle = tensors().add(tensor);
    if (handle == nullptr) delete tensor;
    return static_cast<aclTensor *>(handle);
}

aclnnStatus aclInitTensor(aclTensor *tensor, const int64_t *viewDims, uint64_t viewDimsNum, aclDataType dataType,
                          const int64_t *stride, int64_t offset, aclFormat format, const int64_t *storageDims,
                          uint64_t storageDimsNum, void *tensorDataAddr) {
    EMU_ENTER_STATUS();
    if (tensor == nullptr) return fail(__func__, 161001, "tensor is null");
    Tensor *object = nullptr;
    if (!known(__func__, tensors(), tensor, object)) return 161002;
    return fill(__func__, *object, viewDims, viewDimsNum, dataType, stride, offset, format, storageDims,
                storageDimsNum, tensorDataAddr);
}

aclScalar *aclCreateScalar(void *value, aclDataType dataType) {
    EMU_ENTER(nullptr);
    bool refused = dataType == ACL_STRING || dataType == ACL_INT4 || dataType == ACL_UINT1 || dataType == ACL_COMPLEX32;
    size_t size = aclDataTypeSize(dataType);
    if (value == nullptr || refused || size == 0) {
        fail(__func__, 161002, value == nullptr ? "value is null" : "dtype %d cannot be a scalar", dataType);
        return nullptr;
    }
    auto *scalar = new Scalar;
    scalar->dtype = dataType;
    memcpy(scalar->bytes, value, size);
    void *handle = scalars().add(scalar);
    if (handle == nullptr) delete scalar;
    return static_cast<aclScalar *>(handle);
}

aclIntArray *aclCreateIntArray(const int64_t *value, uint64_t size) {
    return static_cast<aclIntArray *>(create_array(__func__, int_arrays(), value, size));
}
aclFloatArray *aclCreateFloatArray(const float *value, uint64_t size) {
    return static_cast<aclFloatArray *>(create_array(__func__, float_arrays(), value, size));
}
aclBoolArray *aclCreateBoolArray(const bool *value, uint64_t size) {
    return static_cast<aclBoolArray *>(create_array(__func__, bool_arrays(), value, size));
}
aclTensorList *aclCreateTensorList(const aclTensor *const *value, uint64_t size) {
    return static_cast<aclTensorList *>(create_list(__func__, tensor_lists(), tensors(), value, size));
}
aclScalarList *aclCreateScalarList(const aclScalar *const *value, uint64_t size) {
    return static_cast<aclScalarList *>(create_list(__func__, scalar_lists(), scalars(), value, size));
}

aclnnStatus aclDestroyTensor(const aclTensor *tensor) { return destroy(__func__, tensors(), tensor); }
aclnnStatus aclDestroyScalar(const aclScalar *scalar) { return destroy(__func__, scalars(), scalar); }
aclnnStatus aclDestroyIntArray(const aclIntArray *array) { return destroy(__func__, int_arrays(), array); }
aclnnStatus aclDestroyFloatArray(const aclFloatArray *array) { return destroy(__func__, float_arrays(), array); }
aclnnStatus aclDestroyBoolArray(const aclBoolArray *array) { return destroy(__func__, bool_arrays(), array); }
aclnnStatus aclDestroyTensorList(const aclTensorList *array) {
    return destroy_list(__func__, tensor_lists(), tensors(), array);
}
aclnnStatus aclDestroyScalarList(const aclScalarList *array) {
    return destroy_list(__func__, scalar_lists(), scalars(), array);
}

#define TENSOR_GETTER(first, second)                                                    \
    EMU_ENTER_STATUS();                                                                 \
    if (tensor == nullptr || (first) == nullptr || (second) == nullptr) {               \
        return fail(__func__, 161001, "an argument is null");                           \
    }                                                                                   \
    Tensor *object = nullptr;                                                           \
    if (!known(__func__, tensors(), tensor, object)) return 161002

aclnnStatus aclGetViewShape(const aclTensor *tensor, int64_t **viewDims, uint64_t *viewDimsNum) {
    TENSOR_GETTER(viewDims, viewDimsNum);
    return copy_out(object->view.dims, object->view.ndim, viewDims, viewDimsNum);
}
aclnnStatus aclGetStorageShape(const aclTensor *tensor, int64_t **storageDims, uint64_t *storageDimsNum) {
    TENSOR_GETTER(storageDims, storageDimsNum);
    return copy_out(object->storage.dims, object->storage.ndim, storageDims, storageDimsNum);
}
aclnnStatus aclGetViewStrides(const aclTensor *tensor, int64_t **stridesValue, uint64_t *stridesNum) {
    TENSOR_GETTER(stridesValue, stridesNum);
    return copy_out(object->strides, object->view.ndim, stridesValue, stridesNum);
}
aclnnStatus aclGetViewOffset(const aclTensor *tensor, int64_t *offset) {
    TENSOR_GETTER(offset, offset);
    *offset = object->offset;
    return 0;
}
aclnnStatus aclGetFormat(const aclTensor *tensor, aclFormat *format) {
    TENSOR_GETTER(format, format);
    *format = object->format;
    return 0;
}
aclnnStatus aclGetDataType(const aclTensor *tensor, aclDataType *dataType) {
    TENSOR_GETTER(dataType, dataType);
    *dataType = object->dtype;
    return 0;
}
aclnnStatus aclGetRawTensorAddr(const aclTensor *tensor, void **addr) {
    TENSOR_GETTER(addr, addr);
    *addr = object->data.load();
    return 0;
}
aclnnStatus aclSetRawTensorAddr(aclTensor *tensor, void *addr) {
    TENSOR_GETTER(addr, addr);
    object->data.store(addr);
    return 0;
}

aclnnStatus aclGetIntArraySize(const aclIntArray *array, uint64_t *size) {
    return size_of(__func__, int_arrays(), array, size);
}
aclnnStatus aclGetFloatArraySize(const aclFloatArray *array, uint64_t *size) {
    return size_of(__func__, float_arrays(), array, size);
}
aclnnStatus aclGetBoolArraySize(const aclBoolArray *array, uint64_t *size) {
    return size_of(__func__, bool_arrays(), array, size);
}
aclnnStatus aclGetTensorListSize(const aclTensorList *tensorList, uint64_t *size) {
    return size_of(__func__, tensor_lists(), tensorList, size);
}
aclnnStatus aclGetScalarListSize(const aclScalarList *scalarList, uint64_t *size) {
    return size_of(__func__, scalar_lists(), scalarList, size);
}
