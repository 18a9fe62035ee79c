// Argument checks of the core operators: null pointers first, then dtypes, then shapes.
#pragma once

#include <initializer_list>
#include <vector>

#include "checks.h"
#include "kernels_core_types.h"

namespace emu {

// The dtypes that an argument of a core operator may have, or the common dtype of its operands.
enum class Accept { All, Numeric, Floating, Integral, Matrix, Index, Condition, Int64 };

bool accepts(Accept accept, aclDataType dtype);
const char *accept_text(Accept accept);

struct CoreArg {
    int index;  // position in the call
    const char *name;
    Accept accept = Accept::All;
    bool scalar = false;
};

using Shape = std::vector<int64_t>;

Status check_core_present(const std::vector<Arg> &args, std::initializer_list<CoreArg> rules);
Status check_core_dtype(aclDataType dtype, const char *name, Accept accept);
Status check_rank(const View &view, const char *name);
// The three in their order; every argument is required.
Status check_core(const std::vector<Arg> &args, std::initializer_list<CoreArg> rules);

Status check_castable(aclDataType result, const View &out, const char *name);
Status check_same_dtype(const View &view, const char *name, aclDataType dtype, const char *as);
Status check_shape(const View &view, const char *name, const Shape &shape);
// Broadcasts `view` into `shape`.
Status check_broadcast(const View &view, const char *name, Shape &shape);
// Wraps a dim of a tensor of that rank; a tensor without dims counts as having one.
Status check_dim(int64_t dim, int ndim, const char *name, int &wrapped);
// A factor of a result of dtype `result`: not floating unless that is.
Status check_factor(const Arg &factor, const char *name, aclDataType result);

Shape shape_of(const View &view);

// An operator's table entry, under the name that the entry points expect.
#define EMU_OPERATOR(Name, check, run) \
    extern const Op k##Name;           \
    const Op k##Name = {"aclnn" #Name, Kind::Composite, check, run}

}  // namespace emu
