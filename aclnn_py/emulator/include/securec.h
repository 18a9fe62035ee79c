/* The bounds-checked functions that samples take from libc_sec. 0 on success. */
#ifndef ACLNN_PY_SECUREC_H
#define ACLNN_PY_SECUREC_H

#include <stddef.h>

#ifndef EOK
#define EOK 0
#endif
typedef int errno_t;

#ifdef __cplusplus
extern "C" {
#endif

errno_t memcpy_s(void *dest, size_t destMax, const void *src, size_t count);
errno_t memset_s(void *dest, size_t destMax, int c, size_t count);
errno_t strcpy_s(char *strDest, size_t destMax, const char *strSrc);

#ifdef __cplusplus
}
#endif

#endif
