// Element types of the core operators: promotion by PyTorch's rules, and conversion in blocks. Kernels compute in
// float (for float16 and bfloat16 too), double, or int64_t (bool and all integers).
#pragma once

#include <cstdint>
#include <type_traits>

#include "op.h"

namespace emu {

// 0 bool, 1 integer, 2 floating; -1: no dtype of the core operators.
int category(aclDataType dtype);
aclDataType promote(aclDataType one, aclDataType other);
// The width of a scalar does not count, only its category.
aclDataType promote_scalar(aclDataType tensor, aclDataType scalar);
// A result may be stored: floating not in an integer, nothing but bool in bool.
bool castable(aclDataType result, aclDataType out);

// Calls f(C{}) with the type to compute in.
template <class F>
void with_compute(aclDataType dtype, F &&f) {
    if (category(dtype) < 2) {
        f(int64_t{});
    } else if (dtype == ACL_DOUBLE) {
        f(double{});
    } else {
        f(float{});
    }
}

// The three are defined for C = float, double and int64_t. Steps are in bytes. Floats become integers toward zero, NaN
// becomes 0; what a type cannot hold wraps (integers) or becomes the nearest that it can (floats to integers).
template <class C>
void load(aclDataType dtype, const char *from, int64_t step, int64_t n, C *to);
template <class C>
void store(aclDataType dtype, char *to, int64_t step, int64_t n, const C *from);
// Rounds or wraps values to those that dtype holds.
template <class C>
void settle(aclDataType dtype, C *values, int64_t n);

template <class C>
C scalar_value(const Arg &scalar, aclDataType dtype) {
    C value = category(scalar.dtype) == 2 ? static_cast<C>(scalar.f) : static_cast<C>(scalar.i);
    settle(dtype, &value, 1);
    return value;
}

// Integers wrap, so they are added and multiplied without sign.
template <class C>
using Unsigned = std::conditional_t<std::is_integral_v<C>, uint64_t, C>;

template <class C>
C add(C x, C y) { return static_cast<C>(static_cast<Unsigned<C>>(x) + static_cast<Unsigned<C>>(y)); }
template <class C>
C subtract(C x, C y) { return static_cast<C>(static_cast<Unsigned<C>>(x) - static_cast<Unsigned<C>>(y)); }
template <class C>
C multiply(C x, C y) { return static_cast<C>(static_cast<Unsigned<C>>(x) * static_cast<Unsigned<C>>(y)); }

}  // namespace emu
