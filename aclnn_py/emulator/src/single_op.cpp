// The interface of CANN's graph engine for single operators, older than aclnn. torch_npu links it, and calls it for an
// operator that has no aclnn form: its descriptions are kept, and each execution fails, naming the operator.
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core.h"

struct aclTensorDesc {
    aclDataType dtype;
    aclFormat format;
    std::vector<int64_t> dims;
    std::string name;
};

struct aclDataBuffer {
    void *data;
    size_t size;
};

struct aclopAttr {};  // an attribute is of no use without an operator

struct aclGraphDumpOption {};

namespace emu {

namespace {

// aclSetCompileopt's values, by option.
struct CompileOptions {
    std::mutex mutex;
    std::map<int, std::string> values;
};

CompileOptions &compile_options() {
    static CompileOptions *instance = new CompileOptions;
    return *instance;
}

int no_operator(const char *api, const char *type) {
    if (int injected = enter(api)) return injected;
    return fail(api, 100024,
                "the emulator has no operator %s of the graph engine, only aclnn operators; a caller comes here when "
                "the operator's aclnn form is not among those either",
                type != nullptr ? type : "(null)");
}

}  // namespace

}  // namespace emu

using namespace emu;

extern "C" {

aclTensorDesc *aclCreateTensorDesc(aclDataType dataType, int numDims, const int64_t *dims, aclFormat format) {
    EMU_ENTER(nullptr);
    if (numDims < 0 || (numDims > 0 && dims == nullptr)) {
        fail(__func__, 100000, "numDims is %d, dims %p", numDims, static_cast<const void *>(dims));
        return nullptr;
    }
    return new aclTensorDesc{dataType, format, std::vector<int64_t>(dims, dims + numDims), ""};
}

void aclDestroyTensorDesc(const aclTensorDesc *desc) { delete desc; }

size_t aclGetTensorDescNumDims(const aclTensorDesc *desc) { return desc != nullptr ? desc->dims.size() : 0; }

aclDataType aclGetTensorDescType(const aclTensorDesc *desc) { return desc != nullptr ? desc->dtype : ACL_DT_UNDEFINED; }

aclFormat aclGetTensorDescFormat(const aclTensorDesc *desc) {
    return desc != nullptr ? desc->format : ACL_FORMAT_UNDEFINED;
}

aclError aclGetTensorDescDimV2(const aclTensorDesc *desc, size_t index, int64_t *dimSize) {
    EMU_ENTER_STATUS();
    if (desc == nullptr || dimSize == nullptr) return fail(__func__, 100000, "a pointer is null");
    if (index >= desc->dims.size()) return fail(__func__, 100000, "index %zu of %zu dims", index, desc->dims.size());
    *dimSize = desc->dims[index];
    return 0;
}

void aclSetTensorDescName(aclTensorDesc *desc, const char *name) {
    if (desc != nullptr) desc->name = name != nullptr ? name : "";
}

aclError aclSetTensorFormat(aclTensorDesc *desc, aclFormat) {
    EMU_ENTER_STATUS();
    return desc != nullptr ? 0 : fail(__func__, 100000, "desc is null");
}

aclError aclSetTensorShape(aclTensorDesc *desc, int, const int64_t *) {
    EMU_ENTER_STATUS();
    return desc != nullptr ? 0 : fail(__func__, 100000, "desc is null");
}

aclError aclSetTensorPlaceMent(aclTensorDesc *desc, int) {
    EMU_ENTER_STATUS();
    return desc != nullptr ? 0 : fail(__func__, 100000, "desc is null");
}

aclDataBuffer *aclCreateDataBuffer(void *data, size_t size) {
    EMU_ENTER(nullptr);
    return new aclDataBuffer{data, size};
}

aclError aclDestroyDataBuffer(const aclDataBuffer *dataBuffer) {
    EMU_ENTER_STATUS();
    if (dataBuffer == nullptr) return fail(__func__, 100000, "dataBuffer is null");
    delete dataBuffer;
    return 0;
}

aclopAttr *aclopCreateAttr(void) {
    EMU_ENTER(nullptr);
    return new aclopAttr;
}

void aclopDestroyAttr(const aclopAttr *attr) { delete attr; }

#define EMU_SET_ATTRIBUTE(kind, ...)                                               \
    aclError aclopSetAttr##kind(aclopAttr *attr, const char *, __VA_ARGS__) {      \
        EMU_ENTER_STATUS();                                                        \
        return attr != nullptr ? 0 : fail(__func__, 100000, "attr is null");       \
    }
EMU_SET_ATTRIBUTE(Bool, uint8_t)
EMU_SET_ATTRIBUTE(Int, int64_t)
EMU_SET_ATTRIBUTE(Float, float)
EMU_SET_ATTRIBUTE(String, const char *)
EMU_SET_ATTRIBUTE(DataType, aclDataType)
EMU_SET_ATTRIBUTE(ListBool, int, const uint8_t *)
EMU_SET_ATTRIBUTE(ListInt, int, const int64_t *)
EMU_SET_ATTRIBUTE(ListFloat, int, const float *)
EMU_SET_ATTRIBUTE(ListListInt, int, const int *, const int64_t *const *)
#undef EMU_SET_ATTRIBUTE

aclError aclopCompileAndExecute(const char *opType, int, const aclTensorDesc *const *, const aclDataBuffer *const *, int,
                                const aclTensorDesc *const *, aclDataBuffer *const *, const aclopAttr *, int, int,
                                const char *, aclrtStream) {
    return no_operator(__func__, opType);
}

aclError aclopCompileAndExecuteV2(const char *opType, int, aclTensorDesc **, aclDataBuffer **, int, aclTensorDesc **,
                                  aclDataBuffer **, aclopAttr *, int, int, const char *, aclrtStream) {
    return no_operator(__func__, opType);
}

aclError aclSetCompileopt(int opt, const char *value) {
    EMU_ENTER_STATUS();
    if (value == nullptr) return fail(__func__, 100000, "value is null");
    std::lock_guard<std::mutex> lock(compile_options().mutex);
    compile_options().values[opt] = value;
    return 0;
}

size_t aclGetCompileoptSize(int opt) {
    std::lock_guard<std::mutex> lock(compile_options().mutex);
    return compile_options().values[opt].size() + 1;
}

aclError aclGetCompileopt(int opt, char *value, size_t length) {
    EMU_ENTER_STATUS();
    std::lock_guard<std::mutex> lock(compile_options().mutex);
    const std::string &found = compile_options().values[opt];
    if (value == nullptr || length <= found.size()) {
        return fail(__func__, 100000, "value is %p, length %zu, needed are %zu", static_cast<void *>(value), length,
                    found.size() + 1);
    }
    snprintf(value, length, "%s", found.c_str());
    return 0;
}

aclGraphDumpOption *aclCreateGraphDumpOpt(void) { return new aclGraphDumpOption; }

aclError aclDestroyGraphDumpOpt(const aclGraphDumpOption *option) {
    delete option;
    return 0;
}

// CANN writes its log to files; here it goes to stdout, when that is asked of CANN.
void aclAppLog(int logLevel, const char *func, const char *file, uint32_t line, const char *fmt, ...) {
    static const int lowest = [] {
        const char *print = getenv("ASCEND_SLOG_PRINT_TO_STDOUT"), *level = getenv("ASCEND_GLOBAL_LOG_LEVEL");
        if (print == nullptr || atoi(print) != 1) return 4;
        return level != nullptr ? atoi(level) : 3;
    }();
    if (logLevel < lowest || fmt == nullptr) return;
    constexpr const char *names[] = {"DEBUG", "INFO", "WARNING", "ERROR"};
    char text[2048];
    va_list values;
    va_start(values, fmt);
    vsnprintf(text, sizeof text, fmt, values);
    va_end(values);
    printf("[%s] %s:%u %s: %s\n", logLevel >= 0 && logLevel < 4 ? names[logLevel] : "?", file != nullptr ? file : "",
           line, func != nullptr ? func : "", text);
}

}  // extern "C"
