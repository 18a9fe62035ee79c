// Arithmetic on contiguous rows, eight lanes at a time. Not a header of its own: kernels_rows.h includes it once
// for each instruction set, in a namespace, with EMU_TARGET as the function attribute that selects the set. Without
// AVX the compiler splits the lanes over two registers, so every set gives the same bits.

#define EMU_INLINE EMU_TARGET inline __attribute__((always_inline))

// ---- 16-bit floats. U is uint32_t or eight lanes of it.

EMU_INLINE F8 as_floats(const U8 &bits) { return (F8)bits; }
EMU_INLINE U8 as_bits(const F8 &value) { return (U8)value; }
EMU_INLINE F8 from_count(const U8 &count) { return __builtin_convertvector((I8)count, F8); }

EMU_INLINE float as_floats(uint32_t bits) {
    float value;
    std::memcpy(&value, &bits, sizeof value);
    return value;
}
EMU_INLINE uint32_t as_bits(float value) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof bits);
    return bits;
}
EMU_INLINE float from_count(uint32_t count) { return static_cast<float>(static_cast<int32_t>(count)); }

// Exact widening.
template <class U>
EMU_INLINE U widen_bits(Bf16, const U &raw) { return raw << 16; }
template <class U>
EMU_INLINE U widen_bits(Half, const U &raw) {
    U magnitude = (raw & 0x7fffu) << 13;
    U normal = magnitude + (112u << 23);
    normal = magnitude >= (0x7c00u << 13) ? normal + (112u << 23) : normal;  // infinity and NaN
    U small = as_bits(from_count(raw & 0x3ffu) * 0x1p-24f);                  // zero and subnormals
    U value = magnitude < (1u << 23) ? small : normal;
    return value | ((raw & 0x8000u) << 16);
}

// Round to nearest, ties to even; overflow gives infinity, NaN stays NaN.
template <class U>
EMU_INLINE U narrow_bits(Bf16, const U &bits) {
    U rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
    U nan = (bits >> 16) | 0x40u;
    return (bits & 0x7fffffffu) > 0x7f800000u ? nan : rounded;
}
template <class U>
EMU_INLINE U narrow_bits(Half, const U &bits) {
    U magnitude = bits & 0x7fffffffu;
    U normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    // Below 2^-14, adding 0.5 makes the float adder round at 2^-24, the spacing of subnormal halves.
    U small = as_bits(as_floats(magnitude) + 0.5f) - 0x3f000000u;
    U infinity = (magnitude & 0u) | 0x7c00u;
    U nan = ((magnitude >> 13) & 0x3ffu) | 0x7e00u;
    U special = magnitude > 0x7f800000u ? nan : infinity;
    U half = magnitude < 0x38800000u ? small : normal;
    half = magnitude >= 0x47800000u ? special : half;
    return half | ((bits >> 16) & 0x8000u);
}

EMU_INLINE F8 load8(const float *from) {
    F8 value;
    std::memcpy(&value, from, sizeof value);
    return value;
}
template <class T>
EMU_INLINE F8 load8(const T *from) {
    H8 raw;
    std::memcpy(&raw, from, sizeof raw);
    return as_floats(widen_bits(T{}, __builtin_convertvector(raw, U8)));
}

// Streaming stores skip the read of a cache line that is wholly overwritten; they pay off for rows that no cache
// holds anyway, and need rows aligned to 32 bytes.
template <bool Stream = false>
EMU_INLINE void store8(float *to, const F8 &value) {
#if defined(__x86_64__)
    if (Stream) {
        F4 halves[2];
        std::memcpy(halves, &value, sizeof value);
        _mm_stream_ps(to, halves[0]);
        _mm_stream_ps(to + 4, halves[1]);
        return;
    }
#endif
    std::memcpy(to, &value, sizeof value);
}
template <bool Stream = false, class T>
EMU_INLINE void store8(T *to, const F8 &value) {
    H8 raw = __builtin_convertvector(narrow_bits(T{}, as_bits(value)), H8);
#if defined(__x86_64__)
    if (Stream) {
        _mm_stream_si128(reinterpret_cast<__m128i *>(to), (__m128i)raw);
        return;
    }
#endif
    std::memcpy(to, &raw, sizeof raw);
}

// The first `count` (< 8) elements; the other lanes are zero.
template <class T>
EMU_INLINE F8 load_part(const T *from, int64_t count) {
    T padded[8] = {};
    std::memcpy(padded, from, count * sizeof(T));
    return load8(padded);
}
template <class T>
EMU_INLINE void store_part(T *to, const F8 &value, int64_t count) {
    T padded[8];
    store8(padded, value);
    std::memcpy(to, padded, count * sizeof(T));
}

// A sum in fp32 whose error grows with log2(n): blocks of 128 elements, each summed in four chains of four, are
// added pairwise, as the carries of a binary counter.
class TreeSum {
public:
    EMU_INLINE void add(const F8 &first) {
        F8 block = first;
        int level = 0;
        for (uint64_t carry = blocks_++; carry & 1; carry >>= 1) block = levels_[level++] + block;
        levels_[level] = block;
    }
    EMU_INLINE float total() const {
        F8 sum = {};
        int level = 0;
        for (uint64_t left = blocks_; left; left >>= 1, ++level) {
            if (left & 1) sum = levels_[level] + sum;
        }
        return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
    }

private:
    F8 levels_[48];
    uint64_t blocks_ = 0;
};

template <class T, bool Bias, bool Stream>
struct ScaleAndDot {
    static constexpr int64_t kLine = 64 / sizeof(T);  // elements of a cache line

    const T *x, *b, *g, *next;
    T *out;
    F8 scale;

    EMU_INLINE F8 step(int64_t j) const {
        F8 a = load8(x + j), grad = load8(g + j);
        if (Bias) a += load8(b + j);
        store8<Stream>(out + j, grad * scale);
        return a * grad;
    }
    // Brings 32 elements into the second-level cache.
    EMU_INLINE void fetch(const T *at) const {
        __builtin_prefetch(at, 0, 2);
        if (kLine < 32) __builtin_prefetch(at + kLine, 0, 2);
    }
    EMU_INLINE float run(int64_t n) const {
        // The hardware stops prefetching at each page, and cannot guess which row comes next.
        const int64_t ahead = n < 128 * kLine ? n : 128 * kLine;
        TreeSum sum;
        int64_t j = 0;
        for (; j + 128 <= n; j += 128) {
            const T *soon = j + ahead < n ? x + j + ahead : next + (j + ahead - n);
            fetch(soon);
            F8 c0 = step(j), c1 = step(j + 8), c2 = step(j + 16), c3 = step(j + 24);
#pragma GCC unroll 3
            for (int64_t i = 32; i < 128; i += 32) {
                fetch(soon + i);  // spread out: a burst of prefetches would stall the loads
                c0 += step(j + i);
                c1 += step(j + i + 8);
                c2 += step(j + i + 16);
                c3 += step(j + i + 24);
            }
            sum.add((c0 + c1) + (c2 + c3));
        }
        F8 rest = {};
        for (; j + 8 <= n; j += 8) rest += step(j);
        if (int64_t left = n - j) {
            F8 a = load_part(x + j, left), grad = load_part(g + j, left);
            if (Bias) a += load_part(b + j, left);
            store_part(out + j, grad * scale, left);
            rest += a * grad;
        }
        if (n % 128) sum.add(rest);
        return sum.total();
    }
};

// out[j] = round(g[j] * scale); returns the sum of (x[j] + b[j]) * g[j], or of x[j] * g[j] without a bias row.
// `next` is the row that will be x in the following call, or x itself.
template <class T>
EMU_TARGET float scale_and_dot(const T *x, const T *b, const T *g, float scale, T *out, int64_t n, const T *next,
                               bool stream) {
    F8 factor = scale - F8{};  // a broadcast: adding 0 instead would lose the sign of -0
    if (stream && reinterpret_cast<uintptr_t>(out) % 32 == 0) {
        return b ? ScaleAndDot<T, true, true>{x, b, g, next, out, factor}.run(n)
                 : ScaleAndDot<T, false, true>{x, b, g, next, out, factor}.run(n);
    }
    return b ? ScaleAndDot<T, true, false>{x, b, g, next, out, factor}.run(n)
             : ScaleAndDot<T, false, false>{x, b, g, next, out, factor}.run(n);
}

// acc[j] += (x[j] + b[j]) * scale, each operation rounded; b may be null.
template <class T>
EMU_TARGET void add_scaled_row(float *acc, const T *x, const T *b, float scale, int64_t n) {
    F8 factor = scale - F8{};  // a broadcast: adding 0 instead would lose the sign of -0
    int64_t j = 0;
    if (b) {
        for (; j + 8 <= n; j += 8) store8(acc + j, load8(acc + j) + (load8(x + j) + load8(b + j)) * factor);
    } else {
        for (; j + 8 <= n; j += 8) store8(acc + j, load8(acc + j) + load8(x + j) * factor);
    }
    if (int64_t left = n - j) {
        F8 value = load_part(x + j, left);
        if (b) value += load_part(b + j, left);
        store_part(acc + j, load_part(acc + j, left) + value * factor, left);
    }
}

// acc[j] = (add ? acc[j] : 0) + x[j]; without `add`, x[j] itself
template <class T>
EMU_TARGET void add_row(float *acc, const T *x, int64_t n, bool add) {
    int64_t j = 0;
    if (add) {
        for (; j + 8 <= n; j += 8) store8(acc + j, load8(acc + j) + load8(x + j));
    } else {
        for (; j + 8 <= n; j += 8) store8(acc + j, load8(x + j));
    }
    if (int64_t left = n - j) {
        F8 value = load_part(x + j, left);
        store_part(acc + j, add ? load_part(acc + j, left) + value : value, left);
    }
}

// out[j] = round(acc[j])
template <class T>
EMU_TARGET void round_row(T *out, const float *acc, int64_t n) {
    int64_t j = 0;
    for (; j + 8 <= n; j += 8) store8(out + j, load8(acc + j));
    if (int64_t left = n - j) store_part(out + j, load_part(acc + j, left), left);
}

#undef EMU_INLINE
