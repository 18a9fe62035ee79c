// Symbols that public samples link besides the C API: op::fp16_t and the bounds-checked string functions.
#include "aclnn/opdev/fp16_t.h"

#include <cerrno>
#include <cstring>

#include "core.h"
#include "securec.h"

namespace op {

tagFp16 &tagFp16::operator=(const int &value) {
    val = emu::double_to_half(value);
    return *this;
}
tagFp16 &tagFp16::operator=(const float &value) {
    val = emu::float_to_half(value);
    return *this;
}
tagFp16 &tagFp16::operator=(const double &value) {
    val = emu::double_to_half(value);
    return *this;
}
tagFp16 &tagFp16::operator=(const tagFp16 &other) {
    val = other.val;
    return *this;
}
tagFp16::operator float() const { return emu::half_to_float(val); }
tagFp16::operator int() const {
    float value = emu::half_to_float(val);
    if (value != value) return 0;
    if (value > 65504.0f) return 0x7fffffff;
    if (value < -65504.0f) return -0x7fffffff - 1;
    return static_cast<int>(value);
}
tagFp16 tagFp16::operator+(tagFp16 other) {
    tagFp16 sum;
    sum.val = emu::float_to_half(emu::half_to_float(val) + emu::half_to_float(other.val));
    return sum;
}

}  // namespace op

errno_t memcpy_s(void *dest, size_t destMax, const void *src, size_t count) {
    if (destMax == 0) return ERANGE;
    if (dest == nullptr || src == nullptr) return EINVAL;
    if (count > destMax) return ERANGE;
    memmove(dest, src, count);
    return EOK;
}

errno_t memset_s(void *dest, size_t destMax, int c, size_t count) {
    if (destMax == 0) return ERANGE;
    if (dest == nullptr) return EINVAL;
    memset(dest, c, count < destMax ? count : destMax);
    return count <= destMax ? EOK : ERANGE;
}

errno_t strcpy_s(char *strDest, size_t destMax, const char *strSrc) {
    if (destMax == 0) return ERANGE;
    if (strDest == nullptr || strSrc == nullptr) return EINVAL;
    size_t length = strnlen(strSrc, destMax);
    if (length == destMax) {
        *strDest = '\0';
        return ERANGE;
    }
    memmove(strDest, strSrc, length + 1);
    return EOK;
}
