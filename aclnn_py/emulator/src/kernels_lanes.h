// Arithmetic on contiguous rows, eight lanes at a time. Not a header of its own: kernels_rows.h includes it once for
// each instruction set, in a namespace, with EMU_TARGET as the function attribute that selects the set. Without AVX
// the compiler splits the eight lanes into two registers, so every set gives the same bits.

#define EMU_INLINE EMU_TARGET inline __attribute__((always_inline))

EMU_INLINE F8 as_floats(U8 bits) { return (F8)bits; }
EMU_INLINE U8 as_bits(F8 value) { return (U8)value; }
EMU_INLINE F8 count_to_float(U8 count) { return __builtin_convertvector((I8)count, F8); }

EMU_INLINE F8 widen(Bf16, H8 raw) { return as_floats(widen_bf16(__builtin_convertvector(raw, U8))); }
EMU_INLINE F8 widen(Half, H8 raw) {
    U8 half = __builtin_convertvector(raw, U8);
    F8 small = count_to_float(half & 0x3ffu) * 0x1p-24f;
    return as_floats(widen_half(half, as_bits(small)));
}
EMU_INLINE H8 narrow(Bf16, F8 value) { return __builtin_convertvector(round_bf16(as_bits(value)), H8); }
EMU_INLINE H8 narrow(Half, F8 value) {
    U8 bits = as_bits(value);
    U8 small = as_bits(as_floats(bits & 0x7fffffffu) + 0.5f);
    return __builtin_convertvector(round_half(bits, small), H8);
}
