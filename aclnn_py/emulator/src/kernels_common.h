// What every kernel needs: dispatch on dtypes, strided loops over any number of views, threads.
#pragma once

#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

#include "kernels_rows.h"
#include "op.h"

namespace emu {

// Calls f(T{}) with the element type of a float dtype; false for any other dtype.
template <class F>
bool with_float(aclDataType dtype, F &&f) {
    switch (dtype) {
        case ACL_FLOAT: f(float{}); return true;
        case ACL_FLOAT16: f(Half{}); return true;
        case ACL_BF16: f(Bf16{}); return true;
        default: return false;
    }
}

// How many items of this size make a piece of work worth a thread's while.
inline int64_t grain_of(int64_t bytes_each) { return 1 + (int64_t{1} << 20) / (bytes_each + 1); }

template <class F>
void parallel(int64_t n, int64_t grain, const F &f) {
    parallel_for(n, grain, [](int64_t begin, int64_t end, void *context) {
        (*static_cast<const F *>(context))(begin, end);
    }, const_cast<F *>(&f));
}

// Row buffers of one thread, uninitialised: contiguous rows never touch them.
template <class T>
class Scratch {
public:
    Scratch(int rows, int64_t width) : width_(width), data_(new T[rows * width]) {}
    T *row(int i) const { return data_.get() + i * width_; }

private:
    int64_t width_;
    std::unique_ptr<T[]> data_;
};

// Walks N operands over one shape in row-major order, an innermost run at a time. Strides are in bytes; an operand
// of lower rank or with a dim of 1 is broadcast.
template <int N>
struct StridedLoop {
    int ndim = 1;
    int64_t dims[kMaxDims] = {1};
    char *base[N] = {};
    int64_t strides[N][kMaxDims] = {};

    explicit StridedLoop(const View &shape) : ndim(shape.ndim ? shape.ndim : 1) {
        for (int d = 0; d < shape.ndim; ++d) dims[d] = shape.dims[d];
    }

    void operand(int which, const View &view, int64_t item) {
        base[which] = static_cast<char *>(view.data);
        for (int d = 0; d < view.ndim; ++d) {
            strides[which][ndim - view.ndim + d] = view.dims[d] == 1 ? 0 : view.strides[d] * item;
        }
    }

    // A dense row-major buffer of the loop's own shape.
    void dense(int which, const void *data, int64_t item) {
        base[which] = static_cast<char *>(const_cast<void *>(data));
        for (int d = ndim - 1; d >= 0; --d) {
            strides[which][d] = item;
            item *= dims[d];
        }
    }

    // Merges neighbouring dims that every operand passes through in one stride.
    void coalesce() {
        int last = 0;
        for (int d = 1; d < ndim; ++d) {
            bool merge = true;
            for (int n = 0; n < N; ++n) merge = merge && strides[n][last] == strides[n][d] * dims[d];
            if (merge) {
                dims[last] *= dims[d];
            } else {
                dims[++last] = dims[d];
            }
            for (int n = 0; n < N; ++n) strides[n][last] = strides[n][d];
        }
        ndim = last + 1;
    }

    int64_t runs() const {
        int64_t n = dims[ndim - 1] > 0;
        for (int d = 0; d < ndim - 1; ++d) n *= dims[d];
        return n;
    }

    // f(char *const at[N], const int64_t step[N], count) for each of the runs [begin, end).
    template <class F>
    void each(int64_t begin, int64_t end, F &&f) const {
        int64_t step[N];
        for (int n = 0; n < N; ++n) step[n] = strides[n][ndim - 1];
        for (int64_t run = begin; run < end; ++run) {
            char *at[N];
            for (int n = 0; n < N; ++n) at[n] = base[n];
            int64_t rest = run;
            for (int d = ndim - 2; d >= 0; --d) {
                int64_t index = rest % dims[d];
                rest /= dims[d];
                for (int n = 0; n < N; ++n) at[n] += index * strides[n][d];
            }
            f(at, step, dims[ndim - 1]);
        }
    }
};

// Converts between a view and a dense row-major buffer, element by element: f(buffer element, view element).
template <class Buffer, class T, class F>
void dense_pairs(const View &view, Buffer *buffer, const F &f) {
    StridedLoop<2> loop(view);
    loop.dense(0, buffer, sizeof(Buffer));
    loop.operand(1, view, sizeof(T));
    loop.coalesce();
    loop.each(0, loop.runs(), [&](char *const *at, const int64_t *step, int64_t count) {
        for (int64_t i = 0; i < count; ++i) {
            f(*reinterpret_cast<Buffer *>(at[0] + i * step[0]), *reinterpret_cast<T *>(at[1] + i * step[1]));
        }
    });
}

std::vector<float> read_floats(const View &view);      // float dtypes, widened
std::vector<int64_t> read_ints(const View &view);      // int32 or int64
// The bytes of a dense copy, read in another dtype: what a kernel does that trusts the wrong dtype.
std::vector<float> reread_floats(const View &view, int64_t item, aclDataType as);
void write_floats(const View &view, const std::vector<float> &values);    // float dtypes, rounded once
void write_ints(const View &view, const std::vector<int64_t> &values);    // int32 or int64

// A tensor as rows of `width` elements in row-major order, whatever its rank and strides.
class Rows {
public:
    Rows() = default;
    Rows(const View &view, int64_t width);

    int64_t count() const { return count_; }

    // Where row r lies, or its copy in `scratch` when it is not contiguous.
    template <class T>
    const T *read(int64_t r, T *scratch) const {
        if (direct_) return base<T>() + offset(r);
        each<T>(r, [&](int64_t j, T &element) { scratch[j] = element; });
        return scratch;
    }

    // Row r as something to prefetch, or `otherwise`.
    template <class T>
    const T *hint(int64_t r, const T *otherwise) const {
        return direct_ && r >= 0 && r < count_ ? base<T>() + offset(r) : otherwise;
    }

    // Where to compute row r: the row itself, or `scratch`, which finish() then spreads.
    template <class T>
    T *target(int64_t r, T *scratch) const {
        return direct_ ? base<T>() + offset(r) : scratch;
    }
    template <class T>
    void finish(int64_t r, const T *computed) const {
        if (direct_) return;
        each<T>(r, [&](int64_t j, T &element) { element = computed[j]; });
    }

    // Writes a finished row.
    template <class T>
    void copy(int64_t r, const T *row) const {
        if (direct_) std::memcpy(base<T>() + offset(r), row, width_ * sizeof(T));
        finish(r, row);
    }

private:
    template <class T>
    T *base() const { return static_cast<T *>(view_.data); }

    int64_t offset(int64_t r) const {
        int64_t at = 0;
        for (int d = view_.ndim - 2; d > 0; --d) {
            at += r % view_.dims[d] * view_.strides[d];
            r /= view_.dims[d];
        }
        return view_.ndim > 1 ? at + r * view_.strides[0] : at;
    }

    template <class T, class F>
    void each(int64_t r, F &&f) const {
        if (aligned_) {
            T *row = base<T>() + offset(r);
            int64_t stride = view_.strides[view_.ndim - 1];
            for (int64_t j = 0; j < width_; ++j) f(j, row[j * stride]);
            return;
        }
        for (int64_t j = 0; j < width_; ++j) {  // rows that straddle the last dim: only unchecked shapes come here
            int64_t rest = r * width_ + j, at = 0;
            for (int d = view_.ndim - 1; d >= 0; --d) {
                at += rest % view_.dims[d] * view_.strides[d];
                rest /= view_.dims[d];
            }
            f(j, base<T>()[at]);
        }
    }

    View view_;
    int64_t width_ = 0;
    int64_t count_ = 0;
    bool aligned_ = false;  // the last dim is one row
    bool direct_ = false;   // and contiguous
};

}  // namespace emu
