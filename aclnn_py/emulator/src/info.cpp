// Versions, capabilities, process parameters, and the two half-precision helpers.
#include <cstdio>
#include <cstring>
#include <mutex>
#include <string>

#include "core.h"
#include "device.h"

namespace emu {

namespace {

const char *version_text() { return current_config().release == Release::Cann8 ? "8.1.RC1" : "9.1.0"; }

// Values set for the process, and for a context; the latter are not kept apart, as nothing here depends on them.
struct Parameters {
    std::mutex mutex;
    bool set[2][4] = {};
    int64_t value[2][4] = {};
};

Parameters &parameters() {
    static Parameters *instance = new Parameters;
    return *instance;
}

aclError set_parameter(const char *api, int scope, aclSysParamOpt opt, int64_t value) {
    if (opt < 0 || opt > 3) return fail(api, 107000, "unknown option %d", opt);
    std::lock_guard<std::mutex> lock(parameters().mutex);
    parameters().set[scope][opt] = true;
    parameters().value[scope][opt] = value;
    return 0;
}

aclError get_parameter(const char *api, int scope, aclSysParamOpt opt, int64_t *value) {
    if (value == nullptr) return fail(api, 100000, "the pointer to fill is null");
    if (opt < 0 || opt > 3) return fail(api, 107000, "unknown option %d", opt);
    std::lock_guard<std::mutex> lock(parameters().mutex);
    // torch_npu reads the process's options before it sets any, and counts on an answer
    if (scope != 0 && !parameters().set[scope][opt]) return fail(api, 107021, "option %d was never set", opt);
    *value = parameters().value[scope][opt];
    return 0;
}

struct Cores {
    const char *soc;
    int cube, vector;
};
constexpr Cores kCores[] = {
    {"Ascend910B3", 20, 40},    {"Ascend910B4", 20, 40},    {"Ascend910B", 24, 48},  {"Ascend910_936", 20, 40},
    {"Ascend910_937", 20, 40},  {"Ascend910_93", 24, 48},   {"Ascend950", 32, 64},   {"Ascend910_95", 32, 64},
    {"Ascend910", 32, 32},      {"", 8, 8},
};

}  // namespace

int64_t deterministic_level() {
    std::lock_guard<std::mutex> lock(parameters().mutex);
    return parameters().value[0][0] * 16 + parameters().value[1][0];
}

size_t dtype_bits(aclDataType dtype) {
    switch (dtype) {
        case ACL_UINT1: return 1;
        case ACL_INT4:
        case ACL_FLOAT4_E2M1:
        case ACL_FLOAT4_E1M2: return 4;
        case ACL_FLOAT6_E3M2:
        case ACL_FLOAT6_E2M3: return 8;
        default: return 8 * aclDataTypeSize(dtype);
    }
}

const char *dtype_name(aclDataType dtype) {
    switch (dtype) {
        case ACL_FLOAT: return "float32";
        case ACL_FLOAT16: return "float16";
        case ACL_INT8: return "int8";
        case ACL_INT32: return "int32";
        case ACL_UINT8: return "uint8";
        case ACL_INT16: return "int16";
        case ACL_UINT16: return "uint16";
        case ACL_UINT32: return "uint32";
        case ACL_INT64: return "int64";
        case ACL_UINT64: return "uint64";
        case ACL_DOUBLE: return "float64";
        case ACL_BOOL: return "bool";
        case ACL_STRING: return "string";
        case ACL_COMPLEX64: return "complex64";
        case ACL_COMPLEX128: return "complex128";
        case ACL_BF16: return "bfloat16";
        case ACL_INT4: return "int4";
        case ACL_UINT1: return "uint1";
        case ACL_COMPLEX32: return "complex32";
        case ACL_HIFLOAT8: return "hifloat8";
        case ACL_FLOAT8_E5M2: return "float8_e5m2";
        case ACL_FLOAT8_E4M3FN: return "float8_e4m3fn";
        case ACL_FLOAT8_E8M0: return "float8_e8m0fnu";
        case ACL_FLOAT6_E3M2: return "float6_e3m2fn";
        case ACL_FLOAT6_E2M3: return "float6_e2m3fn";
        case ACL_FLOAT4_E2M1: return "float4_e2m1fn";
        case ACL_FLOAT4_E1M2: return "float4_e1m2fn";
        default: return "undefined";
    }
}

float half_to_float(uint16_t bits) {
    uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
    uint32_t exponent = (bits >> 10) & 0x1f, mantissa = bits & 0x3ff, out;
    if (exponent == 31) {
        out = sign | 0x7f800000 | (mantissa << 13);
    } else if (exponent != 0) {
        out = sign | ((exponent + 112) << 23) | (mantissa << 13);
    } else if (mantissa == 0) {
        out = sign;
    } else {
        int shift = 0;
        while ((mantissa & 0x400) == 0) {
            mantissa <<= 1;
            ++shift;
        }
        out = sign | static_cast<uint32_t>(113 - shift) << 23 | ((mantissa & 0x3ff) << 13);
    }
    float value;
    memcpy(&value, &out, sizeof value);
    return value;
}

uint16_t double_to_half(double value) {
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    auto sign = static_cast<uint16_t>((bits >> 48) & 0x8000);
    int exponent = static_cast<int>((bits >> 52) & 0x7ff) - 1023;
    uint64_t mantissa = bits & 0xfffffffffffff;
    if (exponent == 1024) return static_cast<uint16_t>(sign | 0x7c00 | (mantissa != 0 ? 0x200 | (mantissa >> 42) : 0));
    if (exponent < -25) return sign;
    if (exponent > 15) return static_cast<uint16_t>(sign | 0x7c00);
    mantissa |= uint64_t{1} << 52;
    // bits to drop: 42 for a normal half, more for a subnormal one; ties go to even
    int drop = exponent >= -14 ? 42 : 42 + (-14 - exponent);
    uint64_t kept = mantissa >> drop, rest = mantissa & ((uint64_t{1} << drop) - 1), tie = uint64_t{1} << (drop - 1);
    if (rest > tie || (rest == tie && (kept & 1) != 0)) ++kept;
    // a normal kept still has its leading one, which adds 1 to the exponent field
    uint64_t field = exponent >= -14 ? static_cast<uint64_t>(exponent + 14) << 10 : 0;
    return static_cast<uint16_t>(sign + field + kept);
}

uint16_t float_to_half(float value) { return double_to_half(static_cast<double>(value)); }

}  // namespace emu

using namespace emu;

aclError aclrtGetVersion(int32_t *majorVersion, int32_t *minorVersion, int32_t *patchVersion) {
    EMU_ENTER_STATUS();
    if (majorVersion == nullptr || minorVersion == nullptr || patchVersion == nullptr) {
        return fail(__func__, 100000, "a pointer to fill is null");
    }
    *majorVersion = 1;
    *minorVersion = current_config().release == Release::Cann8 ? 13 : 17;
    *patchVersion = 0;
    return 0;
}

aclError aclsysGetCANNVersion(aclCANNPackageName name, aclCANNPackageVersion *version) {
    EMU_ENTER_STATUS();
    if (version == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    if (name < ACL_PKG_NAME_CANN || name > ACL_PKG_NAME_DRIVER) return fail(__func__, 100000, "unknown package %d", name);
    memset(version, 0, sizeof *version);
    bool old = current_config().release == Release::Cann8;
    snprintf(version->version, sizeof version->version, "%s", version_text());
    snprintf(version->majorVersion, sizeof version->majorVersion, "%s", old ? "8" : "9");
    snprintf(version->minorVersion, sizeof version->minorVersion, "1");
    snprintf(version->releaseVersion, sizeof version->releaseVersion, "%s", old ? "RC1" : "0");
    return 0;
}

aclError aclsysGetVersionStr(char *pkgName, char *versionStr) {
    EMU_ENTER_STATUS();
    if (pkgName == nullptr || versionStr == nullptr) return fail(__func__, 100000, "a pointer is null");
    strcpy(versionStr, version_text());
    return 0;
}

aclError aclsysGetVersionNum(char *pkgName, int32_t *versionNum) {
    EMU_ENTER_STATUS();
    if (pkgName == nullptr || versionNum == nullptr) return fail(__func__, 100000, "a pointer is null");
    *versionNum = current_config().release == Release::Cann8 ? 80100000 : 90100000;
    return 0;
}

aclError aclrtSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    EMU_ENTER_STATUS();
    return set_parameter(__func__, 0, opt, value);
}

aclError aclrtGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    EMU_ENTER_STATUS();
    return get_parameter(__func__, 0, opt, value);
}

aclError aclrtCtxSetSysParamOpt(aclSysParamOpt opt, int64_t value) {
    EMU_ENTER_STATUS();
    if (current_context(__func__) == nullptr) return 107002;
    return set_parameter(__func__, 1, opt, value);
}

aclError aclrtCtxGetSysParamOpt(aclSysParamOpt opt, int64_t *value) {
    EMU_ENTER_STATUS();
    if (current_context(__func__) == nullptr) return 107002;
    return get_parameter(__func__, 1, opt, value);
}

aclError aclrtSetOpExecuteTimeOut(uint32_t) {
    EMU_ENTER_STATUS();
    return 0;
}

aclError aclrtSetOpWaitTimeout(uint32_t) {
    EMU_ENTER_STATUS();
    return 0;
}

// Kernels here give infinities and NaN, as these products do unless told to saturate.
aclError aclrtSetDeviceSatMode(aclrtFloatOverflowMode mode) {
    EMU_ENTER_STATUS();
    if (mode == ACL_RT_OVERFLOW_MODE_INFNAN || current_config().product == Product::Other) return 0;
    return fail(__func__, 207000, "mode is %d; the emulator has ACL_RT_OVERFLOW_MODE_INFNAN (1) alone", mode);
}

aclError aclrtGetDeviceInfo(uint32_t deviceId, aclrtDevAttr attr, int64_t *value) {
    switch (attr) {
        case ACL_DEV_ATTR_AICORE_CORE_NUM:
        case ACL_DEV_ATTR_CUBE_CORE_NUM: return aclGetDeviceCapability(deviceId, ACL_DEVICE_INFO_AI_CORE_NUM, value);
        case ACL_DEV_ATTR_VECTOR_CORE_NUM: return aclGetDeviceCapability(deviceId, ACL_DEVICE_INFO_VECTOR_CORE_NUM, value);
        case ACL_DEV_ATTR_L2_CACHE_SIZE: return aclGetDeviceCapability(deviceId, ACL_DEVICE_INFO_L2_SIZE, value);
        default: break;
    }
    EMU_ENTER_STATUS();
    if (value == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    if (deviceId >= static_cast<uint32_t>(settings().devices)) return fail(__func__, 107001, "device %u does not exist", deviceId);
    if (attr != ACL_DEV_ATTR_TOTAL_GLOBAL_MEM_SIZE) return fail(__func__, 207000, "the emulator has no attribute %d", attr);
    *value = static_cast<int64_t>(settings().memory);
    return 0;
}

aclError aclGetDeviceCapability(uint32_t deviceId, aclDeviceInfo deviceInfo, int64_t *value) {
    EMU_ENTER_STATUS();
    if (value == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    if (deviceId >= static_cast<uint32_t>(settings().devices)) return fail(__func__, 107001, "device %u does not exist", deviceId);
    std::string soc = soc_name();
    const Cores *cores = kCores;
    while (soc.rfind(cores->soc, 0) != 0) ++cores;
    switch (deviceInfo) {
        case ACL_DEVICE_INFO_AI_CORE_NUM: *value = cores->cube; return 0;
        case ACL_DEVICE_INFO_VECTOR_CORE_NUM: *value = cores->vector; return 0;
        case ACL_DEVICE_INFO_L2_SIZE: *value = int64_t{192} << 20; return 0;
        default: return fail(__func__, 100000, "unknown figure %d", deviceInfo);
    }
}

aclError aclGetCannAttribute(aclCannAttr cannAttr, int32_t *value) {
    EMU_ENTER_STATUS();
    if (value == nullptr) return fail(__func__, 100000, "the pointer to fill is null");
    bool known = current_config().product != Product::Other;
    switch (cannAttr) {
        case ACL_CANN_ATTR_INF_NAN:
        case ACL_CANN_ATTR_BF16: *value = known ? 1 : 0; return 0;
        case ACL_CANN_ATTR_JIT_COMPILE: *value = 0; return 0;
        default: return fail(__func__, 100000, "unknown attribute %d", cannAttr);
    }
}

size_t aclDataTypeSize(aclDataType dataType) {
    switch (static_cast<int>(dataType)) {
        case ACL_DT_UNDEFINED:
        case ACL_STRING: return 0;
        case ACL_BOOL: case ACL_INT8: case ACL_UINT8: case ACL_INT4: case ACL_UINT1:
        case ACL_HIFLOAT8: case ACL_FLOAT8_E5M2: case ACL_FLOAT8_E4M3FN: case ACL_FLOAT8_E8M0: return 1;
        case ACL_FLOAT16: case ACL_BF16: case ACL_INT16: case ACL_UINT16: return 2;
        case ACL_FLOAT: case ACL_INT32: case ACL_UINT32: case ACL_COMPLEX32: return 4;
        case ACL_COMPLEX128: return 16;
        default: return 8;  // also, as in CANN, the 6 and 4 bit floats
    }
}

float aclFloat16ToFloat(aclFloat16 value) { return half_to_float(value); }

aclFloat16 aclFloatToFloat16(float value) { return float_to_half(value); }
