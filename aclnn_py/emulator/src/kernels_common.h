// What every kernel needs: 16-bit floats, four-lane vectors, strided loops over any number of views.
#pragma once

#include <cstdint>
#include <cstring>
#include <vector>

#include "op.h"

namespace emu {

struct Half {
    uint16_t bits;
};
struct Bf16 {
    uint16_t bits;
};

// Four lanes are what every x86-64 and aarch64 has, so one binary is fast everywhere.
using F4 = float __attribute__((vector_size(16)));
using U4 = uint32_t __attribute__((vector_size(16)));
using I4 = int32_t __attribute__((vector_size(16)));
using H4 = uint16_t __attribute__((vector_size(8)));

// Casts between vector types keep the bits; comparisons give lanes of all ones or all zeros.
inline F4 as_floats(U4 bits) { return (F4)bits; }
inline U4 as_bits(F4 value) { return (U4)value; }
inline U4 mask_of(I4 compared) { return (U4)compared; }
inline U4 select(U4 mask, U4 yes, U4 no) { return (mask & yes) | (~mask & no); }

// Exact widening.
inline F4 widen(Bf16, H4 raw) { return as_floats(__builtin_convertvector(raw, U4) << 16); }
inline F4 widen(Half, H4 raw) {
    U4 half = __builtin_convertvector(raw, U4);
    U4 magnitude = (half & 0x7fffu) << 13;
    U4 rebias = U4{} + (112u << 23);
    U4 normal = magnitude + rebias + (mask_of(magnitude >= (0x7c00u << 13)) & rebias);
    // Zero and subnormals: a count of 2^-24. The count fits 10 bits, so the signed conversion is exact.
    U4 count = half & 0x3ffu;
    F4 small = __builtin_convertvector((I4)count, F4) * 0x1p-24f;
    U4 value = select(mask_of(magnitude < (1u << 23)), as_bits(small), normal);
    return as_floats(value | ((half & 0x8000u) << 16));
}

// Round to nearest, ties to even; overflow gives infinity, NaN stays NaN.
inline H4 narrow(Bf16, F4 value) {
    U4 bits = as_bits(value);
    U4 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    U4 nan = (bits >> 16) | 0x40u;
    return __builtin_convertvector(select(mask_of((bits & 0x7fffffffu) > 0x7f800000u), nan, rounded), H4);
}
inline H4 narrow(Half, F4 value) {
    U4 bits = as_bits(value);
    U4 magnitude = bits & 0x7fffffffu;
    U4 normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    // Below 2^-14, adding 0.5 makes the float adder round at 2^-24, the spacing of subnormal halves.
    U4 small = as_bits(as_floats(magnitude) + 0.5f) - 0x3f000000u;
    U4 special = select(mask_of(magnitude > 0x7f800000u), 0x7e00u | ((magnitude >> 13) & 0x3ffu), U4{} + 0x7c00u);
    U4 half = select(mask_of(magnitude < 0x38800000u), small, normal);
    half = select(mask_of(magnitude >= 0x47800000u), special, half);
    return __builtin_convertvector(half | ((bits >> 16) & 0x8000u), H4);
}

inline F4 load4(const float *from) {
    F4 value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class T>
inline F4 load4(const T *from) {
    H4 raw;
    std::memcpy(&raw, from, sizeof raw);
    return widen(T{}, raw);
}
inline void store4(float *to, F4 value) { std::memcpy(to, &value, sizeof value); }
template <class T>
inline void store4(T *to, F4 value) {
    H4 raw = narrow(T{}, value);
    std::memcpy(to, &raw, sizeof raw);
}
// The first `count` (< 4) elements; the other lanes are zero.
template <class T>
inline F4 load_part(const T *from, int64_t count) {
    T padded[4] = {};
    std::memcpy(padded, from, count * sizeof(T));
    return load4(padded);
}
template <class T>
inline void store_part(T *to, F4 value, int64_t count) {
    T padded[4];
    store4(padded, value);
    std::memcpy(to, padded, count * sizeof(T));
}

inline float to_float(float value) { return value; }
template <class T>
inline float to_float(T value) { return widen(T{}, H4{value.bits})[0]; }
inline void from_float(float &to, float value) { to = value; }
template <class T>
inline void from_float(T &to, float value) { to.bits = narrow(T{}, F4{value})[0]; }

// Calls f(T{}) with the element type of a float dtype; false for any other dtype.
template <class F>
bool with_float(aclDataType dtype, F &&f) {
    switch (dtype) {
        case ACL_FLOAT: f(float{}); return true;
        case ACL_FLOAT16: f(Half{}); return true;
        case ACL_BF16: f(Bf16{}); return true;
        default: return false;
    }
}

template <class F>
void parallel(int64_t n, int64_t grain, const F &f) {
    parallel_for(n, grain, [](int64_t begin, int64_t end, void *context) {
        (*static_cast<const F *>(context))(begin, end);
    }, const_cast<F *>(&f));
}

// Walks N operands over one shape in row-major order, an innermost run at a time. Strides are in bytes; an operand
// of lower rank or with a dim of 1 is broadcast.
template <int N>
struct StridedLoop {
    int ndim = 1;
    int64_t dims[kMaxDims] = {1};
    char *base[N] = {};
    int64_t strides[N][kMaxDims] = {};

    explicit StridedLoop(const View &shape) : ndim(shape.ndim ? shape.ndim : 1) {
        for (int d = 0; d < shape.ndim; ++d) dims[d] = shape.dims[d];
    }

    void operand(int which, const View &view, int64_t item) {
        base[which] = static_cast<char *>(view.data);
        for (int d = 0; d < view.ndim; ++d) {
            strides[which][ndim - view.ndim + d] = view.dims[d] == 1 ? 0 : view.strides[d] * item;
        }
    }

    // A dense row-major buffer of the loop's own shape.
    void dense(int which, const void *data, int64_t item) {
        base[which] = static_cast<char *>(const_cast<void *>(data));
        for (int d = ndim - 1; d >= 0; --d) {
            strides[which][d] = item;
            item *= dims[d];
        }
    }

    // Merges neighbouring dims that every operand passes through in one stride.
    void coalesce() {
        int last = 0;
        for (int d = 1; d < ndim; ++d) {
            bool merge = true;
            for (int n = 0; n < N; ++n) merge = merge && strides[n][last] == strides[n][d] * dims[d];
            if (merge) {
                dims[last] *= dims[d];
            } else {
                dims[++last] = dims[d];
            }
            for (int n = 0; n < N; ++n) strides[n][last] = strides[n][d];
        }
        ndim = last + 1;
    }

    int64_t runs() const {
        int64_t n = dims[ndim - 1] > 0;
        for (int d = 0; d < ndim - 1; ++d) n *= dims[d];
        return n;
    }

    // f(char *const at[N], const int64_t step[N], count) for each of the runs [begin, end).
    template <class F>
    void each(int64_t begin, int64_t end, F &&f) const {
        int64_t step[N];
        for (int n = 0; n < N; ++n) step[n] = strides[n][ndim - 1];
        for (int64_t run = begin; run < end; ++run) {
            char *at[N];
            for (int n = 0; n < N; ++n) at[n] = base[n];
            int64_t rest = run;
            for (int d = ndim - 2; d >= 0; --d) {
                int64_t index = rest % dims[d];
                rest /= dims[d];
                for (int n = 0; n < N; ++n) at[n] += index * strides[n][d];
            }
            f(at, step, dims[ndim - 1]);
        }
    }
};

// Converts between a view and a dense row-major buffer, element by element: f(buffer element, view element).
template <class Buffer, class T, class F>
void dense_pairs(const View &view, Buffer *buffer, const F &f) {
    StridedLoop<2> loop(view);
    loop.dense(0, buffer, sizeof(Buffer));
    loop.operand(1, view, sizeof(T));
    loop.coalesce();
    loop.each(0, loop.runs(), [&](char *const *at, const int64_t *step, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            f(*reinterpret_cast<Buffer *>(at[0] + i * step[0]), *reinterpret_cast<T *>(at[1] + i * step[1]));
        }
    });
}

std::vector<float> read_floats(const View &view);      // float dtypes, widened
std::vector<int64_t> read_ints(const View &view);      // int32 or int64
// The bytes of a dense copy, read in another dtype: what a kernel does that trusts the wrong dtype.
std::vector<float> reread_floats(const View &view, int64_t item, aclDataType as);
void write_floats(const View &view, const std::vector<float> &values);    // float dtypes, rounded once
void write_ints(const View &view, const std::vector<int64_t> &values);    // int32 or int64

// A tensor as rows of `width` elements in row-major order, whatever its rank and strides.
class Rows {
public:
    Rows() = default;
    Rows(const View &view, int64_t width);

    int64_t count() const { return count_; }

    // Where row r lies, or its copy in `scratch` when it is not contiguous.
    template <class T>
    const T *read(int64_t r, T *scratch) const {
        if (direct_) return base<T>() + offset(r);
        each<T>(r, [&](int64_t j, T &element) { scratch[j] = element; });
        return scratch;
    }

    // Where to compute row r: the row itself, or `scratch`, which finish() then spreads.
    template <class T>
    T *target(int64_t r, T *scratch) const {
        return direct_ ? base<T>() + offset(r) : scratch;
    }
    template <class T>
    void finish(int64_t r, const T *computed) const {
        if (direct_) return;
        each<T>(r, [&](int64_t j, T &element) { element = computed[j]; });
    }

    // Writes a finished row.
    template <class T>
    void copy(int64_t r, const T *row) const {
        if (direct_) std::memcpy(base<T>() + offset(r), row, width_ * sizeof(T));
        finish(r, row);
    }

private:
    template <class T>
    T *base() const { return static_cast<T *>(view_.data); }

    int64_t offset(int64_t r) const {
        int64_t at = 0;
        for (int d = view_.ndim - 2; d > 0; --d) {
            at += r % view_.dims[d] * view_.strides[d];
            r /= view_.dims[d];
        }
        return view_.ndim > 1 ? at + r * view_.strides[0] : at;
    }

    template <class T, class F>
    void each(int64_t r, F &&f) const {
        if (aligned_) {
            T *row = base<T>() + offset(r);
            int64_t stride = view_.strides[view_.ndim - 1];
            for (int64_t j = 0; j < width_; ++j) f(j, row[j * stride]);
            return;
        }
        for (int64_t j = 0; j < width_; ++j) {  // rows that straddle the last dim: only unchecked shapes come here
            int64_t rest = r * width_ + j, at = 0;
            for (int d = view_.ndim - 1; d >= 0; --d) {
                at += rest % view_.dims[d] * view_.strides[d];
                rest /= view_.dims[d];
            }
            f(j, base<T>()[at]);
        }
    }

    View view_;
    int64_t width_ = 0;
    int64_t count_ = 0;
    bool aligned_ = false;  // the last dim is one row
    bool direct_ = false;   // and contiguous
};

}  // namespace emu
