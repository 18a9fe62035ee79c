// The half-precision class of libnnopbase: the members that samples link, and the operators that need no symbol.
#ifndef ACLNN_PY_FP16_T_H
#define ACLNN_PY_FP16_T_H

#include <cstdint>
#include <iostream>
#include <type_traits>

namespace op {

class tagFp16 {
  public:
    uint16_t val = 0;  // IEEE half bits

    tagFp16() = default;
    tagFp16(const tagFp16 &) = default;
    constexpr tagFp16(const uint16_t &bits) : val(bits) {}  // of all types this one alone is bits, not a number
    template <class T, class = std::enable_if_t<std::is_arithmetic<T>::value>>
    tagFp16(const T &number) {
        *this = number;
    }

    tagFp16 &operator=(const tagFp16 &other);
    tagFp16 &operator=(const int &value);
    tagFp16 &operator=(const float &value);
    tagFp16 &operator=(const double &value);
    template <class T, class = std::enable_if_t<std::is_integral<T>::value>>
    tagFp16 &operator=(const T &value) {
        return *this = static_cast<double>(value);
    }

    operator float() const;
    operator int() const;
    operator double() const { return static_cast<float>(*this); }

    tagFp16 operator+(tagFp16 other);
    tagFp16 operator-(tagFp16 other) { return static_cast<float>(*this) - static_cast<float>(other); }
    tagFp16 operator*(tagFp16 other) { return static_cast<float>(*this) * static_cast<float>(other); }
    tagFp16 operator/(tagFp16 other) { return static_cast<float>(*this) / static_cast<float>(other); }
    tagFp16 operator+=(tagFp16 other) { return *this = *this + other; }
    bool operator==(const tagFp16 &other) const { return static_cast<float>(*this) == static_cast<float>(other); }
    bool operator!=(const tagFp16 &other) const { return !(*this == other); }
    bool operator<(const tagFp16 &other) const { return static_cast<float>(*this) < static_cast<float>(other); }
    bool operator>(const tagFp16 &other) const { return other < *this; }
    bool operator<=(const tagFp16 &other) const { return static_cast<float>(*this) <= static_cast<float>(other); }
    bool operator>=(const tagFp16 &other) const { return other <= *this; }

    float toFloat() const { return *this; }
    double toDouble() const { return *this; }
};

using fp16_t = tagFp16;

inline std::ostream &operator<<(std::ostream &out, const tagFp16 &number) { return out << static_cast<float>(number); }

}  // namespace op

#endif
