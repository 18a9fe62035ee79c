// 16-bit floats and row arithmetic, in the best instruction set of the machine: fp32 inside, one rounding to the
// output type, one pass over memory.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace emu {

struct Half {
    uint16_t bits;
};
struct Bf16 {
    uint16_t bits;
};

using F4 = float __attribute__((vector_size(16)));
using F8 = float __attribute__((vector_size(32)));
using U8 = uint32_t __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
using H8 = uint16_t __attribute__((vector_size(16)));

// Lanes are passed only between functions that are always inlined, so no calling convention is involved. GCC gives
// its notes at the end of the file, beyond any pop.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace base {
#define EMU_TARGET
#include "kernels_lanes.h"
#undef EMU_TARGET
}  // namespace base

#if defined(__x86_64__)
namespace avx2 {
#define EMU_TARGET __attribute__((target("avx2")))
#include "kernels_lanes.h"
#undef EMU_TARGET
}  // namespace avx2

inline const bool kAvx2 = __builtin_cpu_supports("avx2");
#define EMU_BEST(call) (kAvx2 ? avx2::call : base::call)
#else
#define EMU_BEST(call) base::call
#endif

inline float to_float(float value) { return value; }
template <class T>
inline float to_float(T value) { return base::as_floats(base::widen_bits(T{}, uint32_t{value.bits})); }
inline void from_float(float &to, float value) { to = value; }
template <class T>
inline void from_float(T &to, float value) {
    to.bits = static_cast<uint16_t>(base::narrow_bits(T{}, base::as_bits(value)));
}

constexpr int64_t kStreamBytes = 8 << 20;  // outputs beyond this are streamed past the caches

// Makes streaming stores visible to other threads; call once after the rows of a block.
inline void stream_fence() {
#if defined(__x86_64__)
    _mm_sfence();
#endif
}

template <class T>
inline float scale_and_dot(const T *x, const T *b, const T *g, float scale, T *out, int64_t n, const T *next,
                           bool stream) {
    return EMU_BEST(scale_and_dot(x, b, g, scale, out, n, next, stream));
}
template <class T>
inline void add_scaled_row(float *acc, const T *x, const T *b, float scale, int64_t n) {
    EMU_BEST(add_scaled_row(acc, x, b, scale, n));
}
template <class T>
inline void add_row(float *acc, const T *x, int64_t n) {
    EMU_BEST(add_row(acc, x, n, true));
}
template <class T>
inline void widen_row(float *acc, const T *x, int64_t n) {
    EMU_BEST(add_row(acc, x, n, false));
}
template <class T>
inline void round_row(T *out, const float *acc, int64_t n) {
    EMU_BEST(round_row(out, acc, n));
}

#undef EMU_BEST

}  // namespace emu
