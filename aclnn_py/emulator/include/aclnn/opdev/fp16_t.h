// The half-precision class that libnnopbase exports: the members that samples link.
#ifndef ACLNN_PY_FP16_T_H
#define ACLNN_PY_FP16_T_H

#include <cstdint>

namespace op {

class tagFp16 {
  public:
    uint16_t val = 0;  // IEEE half bits

    tagFp16() = default;
    tagFp16(const tagFp16 &) = default;
    tagFp16(const uint16_t &bits) : val(bits) {}

    tagFp16 &operator=(const tagFp16 &other);
    tagFp16 &operator=(const int &value);
    tagFp16 &operator=(const float &value);
    tagFp16 &operator=(const double &value);
    tagFp16 operator+(tagFp16 other);
    operator float() const;
    operator int() const;
    operator double() const { return static_cast<float>(*this); }
};

using fp16_t = tagFp16;

}  // namespace op

#endif
