#include "checks_core.h"

#include <algorithm>

namespace emu {

namespace {

constexpr int kCoreDims = 8;

std::string shape_text(const Shape &shape) {
    View view;
    view.ndim = static_cast<int>(shape.size());
    std::copy(shape.begin(), shape.end(), view.dims);
    return emu::shape_text(view);
}

}  // namespace

bool accepts(Accept accept, aclDataType dtype) {
    int kind = category(dtype);
    switch (accept) {
        case Accept::All: return kind >= 0;
        case Accept::Numeric: return kind >= 1;
        case Accept::Floating: return kind == 2;
        case Accept::Integral: return kind == 0 || kind == 1;
        case Accept::Matrix: return kind == 2 && dtype != ACL_DOUBLE;
        case Accept::Index: return dtype == ACL_INT32 || dtype == ACL_INT64;
        case Accept::Condition: return dtype == ACL_BOOL || dtype == ACL_UINT8;
        case Accept::Int64: return dtype == ACL_INT64;
    }
    return false;
}

const char *accept_text(Accept accept) {
    switch (accept) {
        case Accept::All: return "float32, float16, bfloat16, float64, int8, int16, int32, int64, uint8 or bool";
        case Accept::Numeric: return "float32, float16, bfloat16, float64, int8, int16, int32, int64 or uint8";
        case Accept::Floating: return "float32, float16, bfloat16 or float64";
        case Accept::Integral: return "int8, int16, int32, int64, uint8 or bool";
        case Accept::Matrix: return "float32, float16 or bfloat16";
        case Accept::Index: return "int32 or int64";
        case Accept::Condition: return "bool or uint8";
        case Accept::Int64: return "int64";
    }
    return "";
}

Status check_core_present(const std::vector<Arg> &args, std::initializer_list<CoreArg> rules) {
    for (const CoreArg &rule : rules) {
        EMU_REQUIRE(args[rule.index].present, kParamNullptr, rule.name, " is a null pointer; it is required");
    }
    return {};
}

Status check_core_dtype(aclDataType dtype, const char *name, Accept accept) {
    EMU_REQUIRE(accepts(accept, dtype), kParamInvalid, name, " is ", dtype_text(dtype), "; accepted: ",
                accept_text(accept));
    return {};
}

Status check_rank(const View &view, const char *name) {
    EMU_REQUIRE(view.ndim <= kCoreDims, kParamInvalid, name, " has ", view.ndim, " dims; accepted: at most ",
                kCoreDims);
    return {};
}

Status check_core(const std::vector<Arg> &args, std::initializer_list<CoreArg> rules) {
    EMU_PASS(check_core_present(args, rules));
    for (const CoreArg &rule : rules) {
        const Arg &arg = args[rule.index];
        EMU_PASS(check_core_dtype(rule.scalar ? arg.dtype : arg.tensor.dtype, rule.name, rule.accept));
    }
    for (const CoreArg &rule : rules) {
        if (!rule.scalar) EMU_PASS(check_rank(args[rule.index].tensor, rule.name));
    }
    return {};
}

Status check_castable(aclDataType result, const View &out, const char *name) {
    EMU_REQUIRE(castable(result, out.dtype), kParamInvalid, name, " is ", dtype_text(out.dtype),
                "; accepted: a dtype that the result, ", dtype_text(result), ", can be cast to");
    return {};
}

Status check_same_dtype(const View &view, const char *name, aclDataType dtype, const char *as) {
    EMU_REQUIRE(view.dtype == dtype, kParamInvalid, name, " is ", dtype_text(view.dtype), "; accepted: ",
                dtype_text(dtype), ", as ", as);
    return {};
}

Status check_shape(const View &view, const char *name, const Shape &shape) {
    EMU_REQUIRE(shape_of(view) == shape, kParamInvalid, name, " has shape ", shape_text(view), "; accepted: ",
                shape_text(shape));
    return {};
}

Status check_broadcast(const View &view, const char *name, Shape &shape) {
    Shape before = shape;
    if (static_cast<int>(shape.size()) < view.ndim) shape.insert(shape.begin(), view.ndim - shape.size(), 1);
    size_t lead = shape.size() - view.ndim;
    for (int d = 0; d < view.ndim; ++d) {
        int64_t &to = shape[lead + d];
        EMU_REQUIRE(view.dims[d] == to || view.dims[d] == 1 || to == 1, kParamInvalid, name, " has shape ",
                    shape_text(view), "; accepted: one that broadcasts with ", shape_text(before));
        if (to == 1) to = view.dims[d];
    }
    return {};
}

Status check_dim(int64_t dim, int ndim, const char *name, int &wrapped) {
    int64_t rank = std::max(ndim, 1);
    EMU_REQUIRE(dim >= -rank && dim < rank, kParamInvalid, name, " is ", dim, "; accepted: ", -rank, " to ",
                rank - 1);
    wrapped = static_cast<int>(dim < 0 ? dim + rank : dim);
    return {};
}

Status check_factor(const Arg &factor, const char *name, aclDataType result) {
    EMU_REQUIRE(category(factor.dtype) < 2 || category(result) == 2, kParamInvalid, name, " is ",
                dtype_text(factor.dtype), "; accepted: an integer, for a result of ", dtype_text(result));
    return {};
}

Shape shape_of(const View &view) { return Shape(view.dims, view.dims + view.ndim); }

}  // namespace emu
