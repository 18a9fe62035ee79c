#include "checks.h"

#include <utility>

namespace emu {

namespace {

struct DtypeInfo {
    aclDataType dtype;
    const char *name;
    int64_t size;
};

constexpr DtypeInfo kDtypes[] = {
    {ACL_FLOAT, "float32", 4},      {ACL_FLOAT16, "float16", 2},      {ACL_BF16, "bfloat16", 2},
    {ACL_DOUBLE, "float64", 8},     {ACL_INT8, "int8", 1},            {ACL_INT16, "int16", 2},
    {ACL_INT32, "int32", 4},        {ACL_INT64, "int64", 8},          {ACL_UINT8, "uint8", 1},
    {ACL_UINT16, "uint16", 2},      {ACL_UINT32, "uint32", 4},        {ACL_UINT64, "uint64", 8},
    {ACL_BOOL, "bool", 1},          {ACL_COMPLEX32, "complex32", 4},  {ACL_COMPLEX64, "complex64", 8},
    {ACL_COMPLEX128, "complex128", 16},
};

const DtypeInfo *find(aclDataType dtype) {
    for (const DtypeInfo &info : kDtypes) {
        if (info.dtype == dtype) return &info;
    }
    return nullptr;
}

const char *dtypes_text(Dtypes dtypes) {
    switch (dtypes) {
        case Dtypes::Token: return "float32, float16 or bfloat16";
        case Dtypes::Int32: return "int32";
        case Dtypes::Int32Or64: return "int32 or int64";
    }
    return "";
}

const char *name_of(TensorRules rules, int index) {
    for (const TensorRule &rule : rules) {
        if (rule.index == index) return rule.name;
    }
    return "?";
}

}  // namespace

std::string dtype_text(aclDataType dtype) {
    const DtypeInfo *info = find(dtype);
    return info ? info->name : text("aclDataType ", static_cast<int>(dtype));
}

int64_t dtype_size(aclDataType dtype) {
    const DtypeInfo *info = find(dtype);
    return info ? info->size : 0;
}

std::string shape_text(const View &view) {
    std::string out = "(";
    for (int i = 0; i < view.ndim; ++i) out += (i ? ", " : "") + std::to_string(view.dims[i]);
    return out + (view.ndim == 1 ? ",)" : ")");
}

std::string product_text(Product product) {
    switch (product) {
        case Product::A2: return "A2";
        case Product::A3: return "A3";
        case Product::P950: return "950";
        case Product::Other: break;
    }
    return "this SoC";
}

bool accepts(Dtypes dtypes, aclDataType dtype) {
    switch (dtypes) {
        case Dtypes::Token: return dtype == ACL_FLOAT || dtype == ACL_FLOAT16 || dtype == ACL_BF16;
        case Dtypes::Int32: return dtype == ACL_INT32;
        case Dtypes::Int32Or64: return dtype == ACL_INT32 || dtype == ACL_INT64;
    }
    return false;
}

bool shape_is(const View &view, std::initializer_list<int64_t> dims) {
    if (view.ndim != static_cast<int>(dims.size())) return false;
    int i = 0;
    for (int64_t dim : dims) {
        if (view.dims[i++] != dim) return false;
    }
    return true;
}

Status refuse(aclnnStatus code, std::string why) {
    Status status;
    status.code = code;
    status.text = std::move(why);
    status.launch = false;
    return status;
}

Status check_present(const std::vector<Arg> &args, TensorRules rules) {
    for (const TensorRule &rule : rules) {
        EMU_REQUIRE(!rule.required || args[rule.index].present, kParamNullptr, rule.name,
                    " is a null pointer; the tensor is required");
    }
    return {};
}

Status check_dtypes(const std::vector<Arg> &args, TensorRules rules, bool required, bool skip_empty,
                    aclnnStatus code) {
    for (const TensorRule &rule : rules) {
        const Arg &arg = args[rule.index];
        if (rule.required != required || !arg.present || (skip_empty && arg.tensor.numel() == 0)) continue;
        aclDataType dtype = arg.tensor.dtype;
        EMU_REQUIRE(accepts(rule.dtypes, dtype), code, rule.name, " is ", dtype_text(dtype), "; accepted: ",
                    dtypes_text(rule.dtypes));
        if (rule.same_as < 0 || !args[rule.same_as].present) continue;
        aclDataType other = args[rule.same_as].tensor.dtype;
        EMU_REQUIRE(dtype == other, code, rule.name, " is ", dtype_text(dtype), "; it must be ", dtype_text(other),
                    " as ", name_of(rules, rule.same_as));
    }
    return {};
}

Status check_generated(const std::vector<Arg> &args, TensorRules rules, bool on_product, const Config &config) {
    EMU_PASS(check_present(args, rules));
    // A generated operator that the SoC lacks cannot make its executor, which reads as a null pointer.
    EMU_REQUIRE(on_product, kParamNullptr, "executor is a null pointer: the operator is not installed for ",
                product_text(config.product));
    return check_dtypes(args, rules, true, false, kParamInvalid);
}

Status ready(uint64_t workspace, bool empty) {
    Status status;
    status.workspace = empty ? 0 : workspace;
    status.launch = !empty;
    return status;
}

bool all_empty(const std::vector<Arg> &args, std::initializer_list<int> outputs) {
    for (int index : outputs) {
        if (args[index].present && args[index].tensor.numel() != 0) return false;
    }
    return true;
}

}  // namespace emu
