// Reading the C arguments of stage one into the operator's typed arguments.
#include <cstring>

#include "executor.h"

namespace emu {

View &view_of(std::vector<Arg> &args, const Operand &operand) {
    Arg &arg = args[static_cast<size_t>(operand.argument)];
    return operand.item < 0 ? arg.tensor : arg.tensors[static_cast<size_t>(operand.item)];
}

void place(std::vector<Arg> &args, Operand &operand, void *base) {
    operand.base = base;
    view_of(args, operand).data = base == nullptr ? nullptr : static_cast<char *>(base) + operand.shift;
}

const char *Call::parameter() {
    static thread_local char name[64];
    const char *at = executor->parameters;
    for (size_t skip = executor->args.size() - 1; skip > 0 && at != nullptr; --skip) {
        at = strchr(at, ',');
        if (at != nullptr) ++at;
    }
    size_t length = at == nullptr ? 0 : strcspn(at, ",");
    length = std::min(length, sizeof name - 1);
    if (length > 0) memcpy(name, at, length);
    name[length] = '\0';
    return name;
}

template <class T>
const T *Call::lookup(HandleTable<T> &table, const void *handle, uint32_t *generation) {
    const T *object = table.get(handle, generation);
    if (object != nullptr) return object;
    violation(api, "%s %p: %s", parameter(), handle, table.describe(handle));
    int code = fail(api, 161002, "%s %p: %s", parameter(), handle, table.describe(handle));
    if (bad_ == 0) bad_ = code;
    return nullptr;
}

// For the record of calls.
static void describe(const Tensor &tensor, bool empty, Operand &operand) {
    operand.described = describe_tensor(tensor, operand.base);
    int64_t stored = 1, stride = 1;
    for (int i = 0; i < tensor.storage.ndim; ++i) stored *= tensor.storage.dims[i];
    bool plain = tensor.offset == 0;
    for (int i = tensor.view.ndim; i-- > 0; stride *= tensor.view.dims[i]) plain = plain && tensor.strides[i] == stride;
    operand.indirect = !empty && !(plain && stored == stride);
    auto bytes = static_cast<int64_t>(stored * static_cast<int64_t>(dtype_bits(tensor.dtype)) / 8);
    operand.storage_bytes = static_cast<size_t>(std::max<int64_t>(bytes, operand.end));
}

void Call::read_tensor(const Tensor &tensor, const void *handle, uint32_t generation, int item, View &view) {
    view.dtype = tensor.dtype;
    view.ndim = tensor.view.ndim;
    size_t bytes = static_cast<size_t>(view.ndim) * sizeof(int64_t);
    memcpy(view.dims, tensor.view.dims, bytes);
    memcpy(view.strides, tensor.strides, bytes);
    // wide, because a caller may hand in any numbers
    constexpr __int128 kFar = static_cast<__int128>(1) << 56;
    auto bits = static_cast<__int128>(dtype_bits(tensor.dtype));
    __int128 low = tensor.offset, high = tensor.offset;
    bool empty = false, far = low < -kFar || high > kFar;
    for (int i = 0; i < view.ndim; ++i) empty = empty || view.dims[i] <= 0;
    for (int i = 0; i < view.ndim && !empty && !far; ++i) {
        __int128 reach = static_cast<__int128>(view.dims[i] - 1) * view.strides[i];
        (reach < 0 ? low : high) += reach;
        far = low < -kFar || high > kFar;
    }
    if (far) {
        bad_ = fail(api, 161002, "%s spans more than the address space", parameter());
        return;
    }
    Operand operand;
    operand.handle = handle;
    operand.generation = generation;
    operand.argument = static_cast<int>(executor->args.size()) - 1;
    operand.item = item;
    operand.base = tensor.data.load();
    operand.shift = static_cast<int64_t>(tensor.offset * bits / 8);
    if (!empty) {
        operand.lowest = static_cast<int64_t>(low * bits / 8);
        operand.end = static_cast<int64_t>(((high + 1) * bits + 7) / 8);
    }
    view.data = operand.base == nullptr ? nullptr : static_cast<char *>(operand.base) + operand.shift;
    if (recording()) describe(tensor, empty, operand);
    if (op.kind == Kind::Composite) {
        int alias = -1;
        for (size_t i = 0; i < executor->operands.size() && alias < 0; ++i) {
            if (executor->operands[i].base == operand.base) alias = static_cast<int>(i);
        }
        key(view.ndim);
        key(view.dims, bytes);
        key(view.strides, bytes);
        key(tensor.storage.ndim);
        key(tensor.storage.dims, static_cast<size_t>(tensor.storage.ndim) * sizeof(int64_t));
        key(tensor.dtype);
        key(tensor.offset);
        key(tensor.format);
        key(alias);
    }
    executor->operands.push_back(std::move(operand));
}

// Every add() opens a new argument; its letter tells the kinds apart, also in the cache's key.
#define NEW_ARGUMENT(letter, is_present)      \
    executor->args.emplace_back();            \
    executor->kinds.push_back(letter);        \
    Arg &arg = executor->args.back();         \
    arg.present = (is_present);               \
    if (op.kind == Kind::Composite) key(static_cast<char>(arg.present ? letter : '-'))

void Call::add(const aclTensor *tensor) {
    NEW_ARGUMENT('t', tensor != nullptr);
    if (tensor == nullptr) return;
    uint32_t generation = 0;
    const Tensor *object = lookup(tensors(), tensor, &generation);
    if (object != nullptr) read_tensor(*object, tensor, generation, -1, arg.tensor);
}

void Call::add(const aclTensorList *list) {
    NEW_ARGUMENT('l', list != nullptr);
    if (list == nullptr) return;
    const TensorList *object = lookup(tensor_lists(), list);
    if (object == nullptr) return;
    key(object->members.size());
    arg.tensors.resize(object->members.size());
    for (size_t i = 0; i < object->members.size(); ++i) {
        const Member &member = object->members[i];
        key(member.handle != nullptr);
        if (member.handle == nullptr) continue;
        const Tensor *tensor = tensors().get_same(member.handle, member.generation);
        if (tensor == nullptr) {
            violation(api, "%s: element %zu is destroyed already", parameter(), i);
            bad_ = fail(api, 161002, "%s: element %zu is destroyed already", parameter(), i);
            return;
        }
        read_tensor(*tensor, member.handle, member.generation, static_cast<int>(i), arg.tensors[i]);
    }
}

void Call::read_scalar(const Scalar &scalar, Arg &arg) {
    auto load = [&](auto sample) {
        memcpy(&sample, scalar.bytes, sizeof sample);
        return sample;
    };
    arg.dtype = scalar.dtype;
    bool integral = true;
    switch (scalar.dtype) {
        case ACL_BOOL: arg.i = scalar.bytes[0] != 0; break;
        case ACL_INT8: arg.i = load(int8_t{}); break;
        case ACL_UINT8: arg.i = load(uint8_t{}); break;
        case ACL_INT16: arg.i = load(int16_t{}); break;
        case ACL_UINT16: arg.i = load(uint16_t{}); break;
        case ACL_INT32: arg.i = load(int32_t{}); break;
        case ACL_UINT32: arg.i = load(uint32_t{}); break;
        case ACL_INT64: arg.i = load(int64_t{}); break;
        case ACL_UINT64: arg.i = static_cast<int64_t>(load(uint64_t{})); break;
        default: integral = false; break;
    }
    if (integral) {
        arg.f = scalar.dtype == ACL_UINT64 ? static_cast<double>(static_cast<uint64_t>(arg.i))
                                           : static_cast<double>(arg.i);
        return;
    }
    switch (scalar.dtype) {
        case ACL_FLOAT: arg.f = load(float{}); break;
        case ACL_DOUBLE: arg.f = load(double{}); break;
        case ACL_FLOAT16: arg.f = half_to_float(load(uint16_t{})); break;
        case ACL_BF16: {
            uint32_t bits = static_cast<uint32_t>(load(uint16_t{})) << 16;
            float value;
            memcpy(&value, &bits, sizeof value);
            arg.f = value;
            break;
        }
        case ACL_COMPLEX64: {
            float parts[2];
            memcpy(parts, scalar.bytes, sizeof parts);
            arg.f = parts[0];
            arg.imag = parts[1];
            break;
        }
        case ACL_COMPLEX128: {
            double parts[2];
            memcpy(parts, scalar.bytes, sizeof parts);
            arg.f = parts[0];
            arg.imag = parts[1];
            break;
        }
        default: break;
    }
    if (arg.f >= -9.2e18 && arg.f <= 9.2e18) arg.i = static_cast<int64_t>(arg.f);
}

void Call::add(const aclScalar *scalar) {
    NEW_ARGUMENT('s', scalar != nullptr);
    if (scalar == nullptr) return;
    const Scalar *object = lookup(scalars(), scalar);
    if (object == nullptr) return;
    read_scalar(*object, arg);
    key(object->dtype);
    key(object->bytes, sizeof object->bytes);
}

void Call::add(const aclScalarList *list) {
    NEW_ARGUMENT('S', list != nullptr);
    if (list == nullptr) return;
    const ScalarList *object = lookup(scalar_lists(), list);
    if (object == nullptr) return;
    for (const Member &member : object->members) {
        Arg one;
        const Scalar *scalar = scalars().get_same(member.handle, member.generation);
        if (scalar == nullptr) {
            violation(api, "%s: an element is destroyed already", parameter());
            bad_ = fail(api, 161002, "%s: an element is destroyed already", parameter());
            return;
        }
        read_scalar(*scalar, one);
        arg.dtype = one.dtype;
        arg.ints.push_back(one.i);
        arg.floats.push_back(one.f);
        key(scalar->dtype);
        key(scalar->bytes, sizeof scalar->bytes);
    }
}

void Call::add(const aclIntArray *array) {
    NEW_ARGUMENT('I', array != nullptr);
    if (array == nullptr) return;
    const IntArray *object = lookup(int_arrays(), array);
    if (object == nullptr) return;
    arg.ints = *object;
    key(object->size());
    key(object->data(), object->size() * sizeof(int64_t));
}

void Call::add(const aclFloatArray *array) {
    NEW_ARGUMENT('F', array != nullptr);
    if (array == nullptr) return;
    const FloatArray *object = lookup(float_arrays(), array);
    if (object == nullptr) return;
    arg.floats.assign(object->begin(), object->end());
    key(object->size());
    key(object->data(), object->size() * sizeof(float));
}

void Call::add(const aclBoolArray *array) {
    NEW_ARGUMENT('B', array != nullptr);
    if (array == nullptr) return;
    const BoolArray *object = lookup(bool_arrays(), array);
    if (object == nullptr) return;
    arg.ints.assign(object->begin(), object->end());
    key(object->size());
    key(object->data(), object->size());
}

void Call::add(const char *text) {
    NEW_ARGUMENT('c', text != nullptr);
    if (text == nullptr) return;
    arg.s = text;
    key(arg.s.c_str(), arg.s.size() + 1);
}

void Call::add(double value) {
    NEW_ARGUMENT('d', true);
    arg.f = value;
    key(value);
}

void Call::add(int64_t value) {
    NEW_ARGUMENT('i', true);
    arg.i = value;
    key(value);
}

}  // namespace emu
