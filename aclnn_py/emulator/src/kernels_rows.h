// Arithmetic on contiguous rows, in fp32 inside, one rounding to the output type. Every function is one pass.
#pragma once

#include <cstdint>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "kernels_common.h"

namespace emu {

// How a freshly computed row is stored. Streaming stores skip the read of a cache line that is wholly overwritten;
// they pay off for outputs that no cache holds anyway.
enum class Store { Cached, Streaming };

#ifndef SB
#define SB (8 << 20)
#endif
constexpr int64_t kStreamBytes = SB;

inline bool streams(const void *row) { return reinterpret_cast<uintptr_t>(row) % 16 == 0; }

template <Store S>
inline void put4(float *to, F4 value) {
#if defined(__x86_64__)
    if (S == Store::Streaming) {
        _mm_stream_ps(to, value);
        return;
    }
#endif
    store4(to, value);
}
template <Store S, class T>
inline void put4(T *to, F4 value) {
#if defined(__x86_64__)
    if (S == Store::Streaming) {
        H4 raw = narrow(T{}, value);
        long long bits;
        std::memcpy(&bits, &raw, sizeof bits);
        _mm_stream_si64(reinterpret_cast<long long *>(to), bits);
        return;
    }
#endif
    store4(to, value);
}

// Makes streaming stores visible to other threads; call once after the rows of a block.
inline void stream_fence() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

// A sum in fp32 whose error stays near log2(n) roundings: blocks of 64 elements are summed in four chains of four
// vectors, and blocks are added pairwise, as the carries of a binary counter.
class TreeSum {
public:
    void add(F4 block) {
        int level = 0;
        for (uint64_t carry = blocks_++; carry & 1; carry >>= 1) block = levels_[level++] + block;
        levels_[level] = block;
    }
    float total() const {
        F4 sum = {};
        bool first = true;
        int level = 0;
        for (uint64_t left = blocks_; left; left >>= 1, ++level) {
            if (left & 1) {
                sum = first ? levels_[level] : levels_[level] + sum;
                first = false;
            }
        }
        return (sum[0] + sum[2]) + (sum[1] + sum[3]);
    }

private:
    F4 levels_[48];
    uint64_t blocks_ = 0;
};

// out[j] = round(g[j] * scale); returns sum of (x[j] + b[j]) * g[j], or of x[j] * g[j] without a bias row.
template <class T, bool Bias, Store S>
inline float scale_and_dot_row(const T *x, const T *b, const T *g, float scale, T *out, int64_t n) {
    TreeSum sum;
    F4 factor = F4{} + scale;
    auto step = [&](int64_t j) {
        F4 a = load4(x + j), grad = load4(g + j);
        if (Bias) a += load4(b + j);
        put4<S>(out + j, grad * factor);
        return a * grad;
    };
    int64_t j = 0;
    for (; j + 64 <= n; j += 64) {
        F4 c0 = step(j), c1 = step(j + 4), c2 = step(j + 8), c3 = step(j + 12);
#pragma GCC unroll 3
        for (int64_t i = j + 16; i < j + 64; i += 16) {
            c0 += step(i);
            c1 += step(i + 4);
            c2 += step(i + 8);
            c3 += step(i + 12);
        }
        sum.add((c0 + c1) + (c2 + c3));
    }
    F4 rest = {};
    for (; j + 4 <= n; j += 4) rest += step(j);
    if (int64_t left = n - j) {
        F4 a = load_part(x + j, left), grad = load_part(g + j, left);
        if (Bias) a += load_part(b + j, left);
        store_part(out + j, grad * factor, left);
        rest += a * grad;
    }
    if (n % 64) sum.add(rest);
    return sum.total();
}

template <class T>
inline float scale_and_dot(const T *x, const T *b, const T *g, float scale, T *out, int64_t n, bool stream) {
    if (stream && streams(out)) {
        return b ? scale_and_dot_row<T, true, Store::Streaming>(x, b, g, scale, out, n)
                 : scale_and_dot_row<T, false, Store::Streaming>(x, b, g, scale, out, n);
    }
    return b ? scale_and_dot_row<T, true, Store::Cached>(x, b, g, scale, out, n)
             : scale_and_dot_row<T, false, Store::Cached>(x, b, g, scale, out, n);
}

// acc[j] = x[j]
template <class T>
inline void widen_row(float *acc, const T *x, int64_t n) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) store4(acc + j, load4(x + j));
    for (; j < n; ++j) acc[j] = to_float(x[j]);
}

// acc[j] += x[j]
template <class T>
inline void add_row(float *acc, const T *x, int64_t n) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) store4(acc + j, load4(acc + j) + load4(x + j));
    for (; j < n; ++j) acc[j] += to_float(x[j]);
}

// acc[j] += (x[j] + b[j]) * scale, each operation rounded; b may be null.
template <class T>
inline void add_scaled_row(float *acc, const T *x, const T *b, float scale, int64_t n) {
    F4 factor = F4{} + scale;
    int64_t j = 0;
    if (b) {
        for (; j + 4 <= n; j += 4) store4(acc + j, load4(acc + j) + (load4(x + j) + load4(b + j)) * factor);
    } else {
        for (; j + 4 <= n; j += 4) store4(acc + j, load4(acc + j) + load4(x + j) * factor);
    }
    for (; j < n; ++j) acc[j] += (b ? to_float(x[j]) + to_float(b[j]) : to_float(x[j])) * scale;
}

// out[j] = round(acc[j])
template <class T>
inline void round_row(T *out, const float *acc, int64_t n) {
    int64_t j = 0;
    for (; j + 4 <= n; j += 4) store4(out + j, load4(acc + j));
    for (; j < n; ++j) from_float(out[j], acc[j]);
}

}  // namespace emu
