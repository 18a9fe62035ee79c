// What samples use besides operators: header names, half precision, bounded copies, sizes of blocked weights.
#include "harness.h"

#include "aclnn/opdev/float4_e2m1.h"
#include "aclnn/opdev/fp16_t.h"
#include "aclnn_pow.h"
#include "aclnnop/aclnn_add.h"
#include "aclnnop/aclnn_argmax.h"
#include "aclnnop/aclnn_clamp.h"
#include "aclnnop/aclnn_logsoftmax.h"
#include "aclnnop/aclnn_trans_matmul_weight.h"
#include "securec.h"

static uint64_t size_of(std::vector<int64_t> shape, int dtype) {
    aclIntArray *array = aclCreateIntArray(shape.data(), shape.size());
    uint64_t size = 0;
    if (dtype < 0) {
        OK(aclnnCalculateMatmulWeightSize(array, &size));
    } else {
        OK(aclnnCalculateMatmulWeightSizeV2(array, static_cast<aclDataType>(dtype), &size));
    }
    OK(aclDestroyIntArray(array));
    return size;
}

static void weights() {
    EXPECT(size_of({510, 510}, -1) == 262144);
    EXPECT(size_of({3, 17, 16}, -1) == 3 * 32 * 16);
    EXPECT(size_of({17, 33}, ACL_BF16) == 32 * 48);
    EXPECT(size_of({17, 33}, ACL_INT8) == 32 * 64);
    uint64_t size = 0;
    EXPECT_CODE(aclnnCalculateMatmulWeightSize(nullptr, &size), 161001);
    int64_t one = 4;
    aclIntArray *array = aclCreateIntArray(&one, 1);
    EXPECT_CODE(aclnnCalculateMatmulWeightSize(array, &size), 161002);
    EXPECT_CODE(aclnnCalculateMatmulWeightSizeV2(array, ACL_INT8, nullptr), 161001);
    OK(aclDestroyIntArray(array));
}

static void halves() {
    op::fp16_t a;
    a = 1.5f;
    op::fp16_t b;
    b = 2;
    EXPECT(a.val == 0x3e00 && b.val == 0x4000);
    EXPECT(static_cast<float>(a + b) == 3.5f && static_cast<int>(a + b) == 3);
    b = 0.1;
    EXPECT(b.val == 0x2e66);
    std::vector<op::fp16_t> filled(2, a);
    EXPECT(filled[1].val == 0x3e00 && sizeof filled[0] == 2);
    op::fp16_t number = 1.5f, whole = 2, bits = uint16_t{0x3e00};  // 16 unsigned bits are bits, all else are numbers
    EXPECT(number.val == 0x3e00 && whole.val == 0x4000 && static_cast<double>(bits) == 1.5);
    EXPECT(std::vector<op::fp16_t>(2, 1)[1].val == 0x3c00 && std::vector<op::fp16_t>(2, 1.0)[1].val == 0x3c00);
    EXPECT(op::fp16_t(int64_t{-3}).val == 0xc200 && (whole * number).toFloat() == 3.0f && number < whole);
    EXPECT(aclFloatToFloat16(1.5f) == 0x3e00 && aclFloat16ToFloat(0x2e66) == 0.0999755859375f);
}

static void quarters() {
    const float given[] = {0.0f, 0.25f, 0.26f, 0.75f, 1.25f, 1.75f, 2.5f, 3.5f, 5.0f, 5.1f, 1e9f};
    const int code[] = {0, 0, 1, 2, 2, 4, 4, 6, 6, 7, 7};
    for (int i = 0; i < 11; ++i) {
        EXPECT_CODE(op::Float4E2M1(given[i]).value, code[i]);
        EXPECT_CODE(op::Float4E2M1(-given[i]).value, code[i] | 8);
    }
    EXPECT(op::Float4E2M1(NAN).value == 7 && static_cast<float>(op::Float4E2M1(-3.2f)) == -3.0f);
}

// CANN's headers hold the variants of an operator together.
static void headers() {
    uint64_t size = 0;
    EXPECT_CODE(aclnnInplaceAddsGetWorkspaceSize(nullptr, nullptr, nullptr, &size, nullptr), 161001);
    EXPECT_CODE(aclnnInplacePowTensorScalarGetWorkspaceSize(nullptr, nullptr, &size, nullptr), 161001);
    EXPECT_CODE(aclnnClampMinTensorGetWorkspaceSize(nullptr, nullptr, nullptr, &size, nullptr), 161001);
    EXPECT_CODE(aclnnArgMaxGetWorkspaceSize(nullptr, 0, false, nullptr, &size, nullptr), 161001);
    EXPECT_CODE(aclnnLogSoftmaxGetWorkspaceSize(nullptr, 0, nullptr, &size, nullptr), 161001);
}

static void strings() {
    char to[4] = "";
    EXPECT(strcpy_s(to, sizeof to, "abc") == EOK && strcmp(to, "abc") == 0);
    EXPECT(strcpy_s(to, sizeof to, "abcd") != EOK);
    EXPECT(memcpy_s(to, sizeof to, "xyz", 4) == EOK && strcmp(to, "xyz") == 0);
    EXPECT(memcpy_s(to, 2, "xyz", 4) != EOK);
}

int main() {
    Session session;
    headers();
    weights();
    halves();
    quarters();
    strings();
    puts("ok");
}
