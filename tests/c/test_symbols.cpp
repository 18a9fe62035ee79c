// Every declared function is defined (symbols.inc lists those of cdefs/base.h), and the helpers of samples work.
#include "aclnn/acl_meta.h"
#include "aclnn/opdev/fp16_t.h"
#include "harness.h"
#include "securec.h"

struct Symbol {
    const char *name;
    void (*address)(void);
};
#define SYMBOL(name) {#name, reinterpret_cast<void (*)(void)>(&name)},
static const Symbol symbols[] = {
#include "symbols.inc"
};
#undef SYMBOL

static void halves() {
    static_assert(sizeof(op::fp16_t) == 2, "two bytes");
    op::fp16_t x, y;
    x = 1.5f;
    EXPECT(x.val == 0x3e00 && static_cast<float>(x) == 1.5f);
    x = 3;
    y = 0.25;
    EXPECT(static_cast<float>(x + y) == 3.25f && static_cast<int>(x) == 3);
    y = x;
    EXPECT(y.val == x.val);
    EXPECT(aclFloatToFloat16(65520.0f) == 0x7c00 && aclFloatToFloat16(65519.0f) == 0x7bff);
    EXPECT(aclFloatToFloat16(0x1p-25f) == 0 && aclFloatToFloat16(0x1.8p-25f) == 1);  // ties to even
    EXPECT(aclFloatToFloat16(1.0f + 0x1p-11f) == 0x3c00 && aclFloatToFloat16(1.0f + 0x1.8p-10f) == 0x3c02);
    EXPECT(aclFloatToFloat16(-0.0f) == 0x8000);
    for (unsigned bits = 0; bits < 0x10000; ++bits) {  // there and back, NaN apart
        float value = aclFloat16ToFloat(static_cast<aclFloat16>(bits));
        if (value == value) EXPECT(aclFloatToFloat16(value) == bits);
    }
}

static void strings() {
    char buffer[4] = "";
    EXPECT(memcpy_s(buffer, 4, "abc", 4) == 0 && strcmp(buffer, "abc") == 0);
    EXPECT(memcpy_s(buffer, 4, "abcde", 5) != 0);
    EXPECT(strcpy_s(buffer, 4, "xyz") == 0 && strcmp(buffer, "xyz") == 0);
    EXPECT(strcpy_s(buffer, 4, "long") != 0 && buffer[0] == '\0');
    EXPECT(memcpy_s(nullptr, 4, "abc", 4) != 0);
}

int main() {
    for (const Symbol &symbol : symbols) EXPECT(symbol.address != nullptr);
    EXPECT(sizeof symbols / sizeof *symbols >= 100);
    EXPECT(ACLNN_ERR_PARAM_NULLPTR == 161001 && ACL_ERROR_RT_CONTEXT_NULL == 107002);
    halves();
    strings();
    puts("ok");
}
