// Argument checks that the operators share: rules as data, and the texts of refusals.
#pragma once

#include <cstddef>
#include <initializer_list>
#include <sstream>
#include <string>
#include <vector>

#include "op.h"

namespace emu {

constexpr aclnnStatus kParamNullptr = 161001;
constexpr aclnnStatus kParamInvalid = 161002;
constexpr aclnnStatus kTilingRefused = 561002;
constexpr aclnnStatus kInnerNullptr = 561103;

constexpr uint64_t kCompositeWorkspace = 16777728;  // 16 MiB of the tiling, plus the executor's padding
constexpr uint64_t kGeneratedWorkspace = 16777216;  // generated executors report it unpadded

// The dtypes that a tensor may have.
enum class Dtypes { Token, Int32, Int32Or64 };

struct TensorRule {
    int index;         // position in the call
    const char *name;  // as in the C prototype
    bool required;
    Dtypes dtypes;
    int same_as = -1;  // index of the argument whose dtype it must have
};
class TensorRules {
public:
    template <size_t N>
    constexpr TensorRules(const TensorRule (&rules)[N]) : begin_(rules), end_(rules + N) {}
    const TensorRule *begin() const { return begin_; }
    const TensorRule *end() const { return end_; }

private:
    const TensorRule *begin_, *end_;
};

std::string dtype_text(aclDataType dtype);
std::string shape_text(const View &view);
std::string product_text(Product product);
int64_t dtype_size(aclDataType dtype);  // bytes; 0 for dtypes without whole bytes
bool accepts(Dtypes dtypes, aclDataType dtype);
bool shape_is(const View &view, std::initializer_list<int64_t> dims);

template <class... Parts>
std::string text(const Parts &...parts) {
    std::ostringstream out;
    (out << ... << parts);
    return out.str();
}

Status refuse(aclnnStatus code, std::string why);

// Leaves the calling check with a refusal. The text is built only when the condition fails.
#define EMU_REQUIRE(condition, code, ...) \
    do { \
        if (!(condition)) return ::emu::refuse(code, ::emu::text(__VA_ARGS__)); \
    } while (0)
#define EMU_PASS(status) \
    do { \
        ::emu::Status passed_ = (status); \
        if (passed_.code != 0) return passed_; \
    } while (0)

// 161001 for the first required tensor that is a null pointer.
Status check_present(const std::vector<Arg> &args, TensorRules rules);

// `code` for the first present tensor of the given kind whose dtype is refused; skip_empty leaves out tensors
// without elements, as hand-written operators do.
Status check_dtypes(const std::vector<Arg> &args, TensorRules rules, bool required, bool skip_empty, aclnnStatus code);

// 161001 for a null pointer, 161002 for the dtype of a required tensor: what generated code tests before the tiling.
Status check_generated(const std::vector<Arg> &args, TensorRules rules, bool on_product, const Config &config);

// Success with this workspace, or without a launch.
Status ready(uint64_t workspace, bool empty);

// All the given outputs that are present have no elements: the library launches nothing.
bool all_empty(const std::vector<Arg> &args, std::initializer_list<int> outputs);

}  // namespace emu
