// What an operator is to the emulator: a table entry with a check and a kernel over typed arguments.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "types.h"

namespace emu {

constexpr int kMaxDims = 25;

// A strided view as the kernels see it; strides are in elements, data already includes the view offset.
struct View {
    void *data = nullptr;
    aclDataType dtype = ACL_DT_UNDEFINED;
    int ndim = 0;
    int64_t dims[kMaxDims] = {};
    int64_t strides[kMaxDims] = {};

    int64_t numel() const {
        int64_t n = 1;
        for (int i = 0; i < ndim; ++i) n *= dims[i];
        return n;
    }
};

// One argument of a call, in C order without the two tail pointers. A null pointer argument has present == false.
struct Arg {
    bool present = false;
    View tensor;                  // aclTensor
    std::vector<View> tensors;    // aclTensorList
    std::vector<int64_t> ints;    // aclIntArray; a bool array as 0/1
    std::vector<double> floats;   // aclFloatArray
    int64_t i = 0;                // integers, bool, enums; an integral aclScalar
    double f = 0;                 // float, double; a floating aclScalar
    aclDataType dtype = ACL_DT_UNDEFINED;  // dtype of an aclScalar
    std::string s;                // char *
    double imag = 0;              // imaginary part of a complex aclScalar
};

enum class Product { A2, A3, P950, Other };
enum class Release { Host, Cann91, Cann8 };  // whose statuses and range handling to give

struct Config {
    Product product = Product::A2;
    Release release = Release::Host;
};

struct Status {
    aclnnStatus code = 0;
    std::string text;  // becomes aclGetRecentErrMsg; names the argument, what came, what is accepted
    uint64_t workspace = 0;
    bool launch = true;  // false: nothing to run (all outputs empty); stage two is then a no-op
};

// How the library makes the operator's executor: hand-written API (composite) or generated API (individual).
enum class Kind { Composite, Individual };

struct Op {
    const char *name;  // "aclnnMoeFinalizeRoutingV2Grad"
    Kind kind;
    Status (*check)(const std::vector<Arg> &args, const Config &config);
    void (*run)(std::vector<Arg> &args, const Config &config);
};

// Runs fn(begin, end) over [0, n) on the emulator's worker threads (ACLNN_EMULATOR_THREADS, default: all cores).
void parallel_for(int64_t n, int64_t grain, void (*fn)(int64_t, int64_t, void *), void *context);

// For kernels, from any of their threads: the data break a rule (an index that the device would use out of bounds).
// Recorded and reported once; in strict mode the stream's next synchronise fails with 507035.
void report_violation(const std::string &text);

}  // namespace emu
