#include "kernels_core_types.h"

#include <limits>
#include <type_traits>

#include "checks.h"
#include "kernels_rows.h"

namespace emu {

namespace {

// An element of a bool tensor: a byte that is zero or not.
struct Flag {
    uint8_t bits;
};

template <class T>
constexpr bool kSixteen = std::is_same_v<T, Half> || std::is_same_v<T, Bf16>;

template <class F>
void with_type(aclDataType dtype, F &&f) {
    switch (dtype) {
        case ACL_FLOAT: f(float{}); break;
        case ACL_FLOAT16: f(Half{}); break;
        case ACL_BF16: f(Bf16{}); break;
        case ACL_DOUBLE: f(double{}); break;
        case ACL_INT8: f(int8_t{}); break;
        case ACL_INT16: f(int16_t{}); break;
        case ACL_INT32: f(int32_t{}); break;
        case ACL_INT64: f(int64_t{}); break;
        case ACL_UINT8: f(uint8_t{}); break;
        case ACL_BOOL: f(Flag{}); break;
        default: break;
    }
}

template <class To, class From>
To convert(From value) {
    if constexpr (std::is_same_v<To, From>) {
        return value;
    } else if constexpr (kSixteen<From>) {
        return convert<To>(to_float(value));
    } else if constexpr (std::is_same_v<From, Flag>) {
        return convert<To>(static_cast<int64_t>(value.bits != 0));
    } else if constexpr (std::is_same_v<To, Flag>) {
        return Flag{static_cast<uint8_t>(value != 0)};
    } else if constexpr (kSixteen<To>) {
        To to;
        from_float(to, static_cast<float>(value));
        return to;
    } else if constexpr (std::is_integral_v<To> && std::is_floating_point_v<From>) {
        // CANN leaves open what becomes of NaN and of what does not fit, C++ leaves it undefined: 0 and the nearest end
        using Limits = std::numeric_limits<To>;
        constexpr From low = From(Limits::min()), end = From(uint64_t{1} << Limits::digits);  // both exact
        if (value >= end) return Limits::max();
        if (value < low) return Limits::min();
        return value == value ? static_cast<To>(value) : To{0};
    } else {
        return static_cast<To>(value);
    }
}

}  // namespace

int category(aclDataType dtype) {
    switch (dtype) {
        case ACL_BOOL: return 0;
        case ACL_INT8:
        case ACL_INT16:
        case ACL_INT32:
        case ACL_INT64:
        case ACL_UINT8: return 1;
        case ACL_FLOAT:
        case ACL_FLOAT16:
        case ACL_BF16:
        case ACL_DOUBLE: return 2;
        default: return -1;
    }
}

aclDataType promote(aclDataType one, aclDataType other) {
    if (one == other) return one;
    if (category(one) != category(other)) return category(one) > category(other) ? one : other;
    if (category(one) == 2) return one == ACL_DOUBLE || other == ACL_DOUBLE ? ACL_DOUBLE : ACL_FLOAT;
    if (dtype_size(one) == dtype_size(other)) return ACL_INT16;  // int8 and uint8
    return dtype_size(one) > dtype_size(other) ? one : other;
}

aclDataType promote_scalar(aclDataType tensor, aclDataType scalar) {
    if (category(scalar) <= category(tensor)) return tensor;
    return category(scalar) == 1 ? ACL_INT64 : ACL_FLOAT;
}

bool castable(aclDataType result, aclDataType out) { return category(result) <= category(out); }

template <class C>
void load(aclDataType dtype, const char *from, int64_t step, int64_t n, C *to) {
    with_type(dtype, [&](auto type) {
        using T = decltype(type);
        const T *dense = reinterpret_cast<const T *>(from);
        if (step != sizeof(T)) {
            for (int64_t i = 0; i < n; ++i) to[i] = convert<C>(*reinterpret_cast<const T *>(from + i * step));
        } else if constexpr (std::is_same_v<C, float> && kSixteen<T>) {
            widen_row(to, dense, n);
        } else {
            for (int64_t i = 0; i < n; ++i) to[i] = convert<C>(dense[i]);
        }
    });
}

template <class C>
void store(aclDataType dtype, char *to, int64_t step, int64_t n, const C *from) {
    with_type(dtype, [&](auto type) {
        using T = decltype(type);
        T *dense = reinterpret_cast<T *>(to);
        if (step != sizeof(T)) {
            for (int64_t i = 0; i < n; ++i) *reinterpret_cast<T *>(to + i * step) = convert<T>(from[i]);
        } else if constexpr (std::is_same_v<C, float> && kSixteen<T>) {
            round_row(dense, from, n);
        } else {
            for (int64_t i = 0; i < n; ++i) dense[i] = convert<T>(from[i]);
        }
    });
}

template <class C>
void settle(aclDataType dtype, C *values, int64_t n) {
    with_type(dtype, [&](auto type) {
        using T = decltype(type);
        if constexpr (!std::is_same_v<C, T>) {
            for (int64_t i = 0; i < n; ++i) values[i] = convert<C>(convert<T>(values[i]));
        }
    });
}

#define EMU_INSTANTIATE(C)                                              \
    template void load<C>(aclDataType, const char *, int64_t, int64_t, C *); \
    template void store<C>(aclDataType, char *, int64_t, int64_t, const C *); \
    template void settle<C>(aclDataType, C *, int64_t)

EMU_INSTANTIATE(float);
EMU_INSTANTIATE(double);
EMU_INSTANTIATE(int64_t);

}  // namespace emu
