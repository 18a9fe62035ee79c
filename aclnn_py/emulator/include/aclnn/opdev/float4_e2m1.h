// The 4-bit float with 2 exponent bits and 1 of mantissa, one to a byte: 0, 0.5, 1, 1.5, 2, 3, 4, 6 and their negatives.
#ifndef ACLNN_PY_FLOAT4_E2M1_H
#define ACLNN_PY_FLOAT4_E2M1_H

#include <cmath>
#include <cstdint>

namespace op {

struct Float4E2M1 {
    uint8_t value = 0;  // the sign in bit 3

    Float4E2M1() = default;
    // To the nearest value, ties to the even code; what is too large, and a NaN, becomes 6.
    Float4E2M1(float number) {
        float size = std::fabs(number);
        uint8_t code = 7;
        for (uint8_t i = 0; i < 7; ++i) {
            float middle = (magnitude(i) + magnitude(i + 1)) / 2;
            if (size < middle || (size == middle && i % 2 == 0)) {
                code = i;
                break;
            }
        }
        value = static_cast<uint8_t>(code | (std::signbit(number) && !std::isnan(number) ? 8 : 0));
    }
    operator float() const { return (value & 8 ? -1.0f : 1.0f) * magnitude(value & 7); }
    operator double() const { return static_cast<float>(*this); }

  private:
    static float magnitude(int code) {
        const float sizes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
        return sizes[code];
    }
};

}  // namespace op

#endif
