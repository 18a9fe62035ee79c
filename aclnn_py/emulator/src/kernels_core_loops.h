// Parts of views, and the loops that core operators share.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "checks.h"
#include "kernels_common.h"
#include "kernels_core_types.h"

namespace emu {

constexpr int64_t kBlock = 512;          // elements that a kernel has in its buffers at a time
constexpr int64_t kThreadWork = 32768;   // elements that are worth a thread

// One element counts as a line of one.
View at_least_1d(const View &view);
// Counts a negative dim from the end.
int wrap_dim(int64_t dim, const View &view);
// A part of dim d, or without d at one index of it.
View slice(const View &view, int d, int64_t begin, int64_t count);
View pick(const View &view, int d, int64_t index);
View permuted(const View &view, const std::vector<int> &dims);
// Only the dims whose bit is set in `mask`.
View subset(const View &view, uint32_t mask);

bool overlap(const View &one, const View &other);

// A row-major copy of a view, converted to a dtype.
struct Dense {
    std::vector<char> bytes;
    View view;

    Dense(const View &from, aclDataType as);
};

// Converts `from`, broadcast to the shape of `to`; the two may overlap.
void copy(const View &from, const View &to);

// f(char *const at[N], const int64_t step[N], count) on the loop's runs, long ones in pieces, on several threads.
template <int N, class F>
void each_run(StridedLoop<N> &loop, const F &f) {
    loop.coalesce();
    constexpr int64_t piece = 32 * kBlock;
    int64_t length = loop.dims[loop.ndim - 1], pieces = (length + piece - 1) / piece;
    if (pieces <= 1) {
        parallel(loop.runs(), kThreadWork / std::max<int64_t>(length, 1) + 1,
                 [&](int64_t begin, int64_t end) { loop.each(begin, end, f); });
        return;
    }
    parallel(loop.runs() * pieces, kThreadWork / piece, [&](int64_t begin, int64_t end) {
        for (int64_t item = begin; item < end; ++item) {
            int64_t run = item / pieces, first = item % pieces * piece;
            loop.each(run, run + 1, [&](char *const *at, const int64_t *step, int64_t count) {
                char *moved[N];
                for (int n = 0; n < N; ++n) moved[n] = at[n] + first * step[n];
                f(moved, step, std::min(piece, count - first));
            });
        }
    });
}

// f(char *const at[N]) for every index of the views, which have one shape; `work` elements are touched for each.
template <int N, class F>
void each_index(const View (&views)[N], int64_t work, const F &f) {
    View shape = views[0];
    shape.dims[shape.ndim++] = 1;  // every run is one index
    StridedLoop<N> loop(shape);
    for (int n = 0; n < N; ++n) {
        View view = views[n];
        view.dims[view.ndim] = 1;
        view.strides[view.ndim++] = 0;
        loop.operand(n, view, dtype_size(view.dtype));
    }
    parallel(loop.runs(), kThreadWork / std::max<int64_t>(work, 1) + 1, [&](int64_t begin, int64_t end) {
        loop.each(begin, end, [&](char *const *at, const int64_t *, int64_t) { f(at); });
    });
}

// The same for the lines along dim d: `at` is where each line begins.
template <int N, class F>
void each_line(const View (&views)[N], int d, const F &f) {
    View outer[N];
    for (int n = 0; n < N; ++n) outer[n] = subset(views[n], ~(1u << d));
    each_index(outer, views[0].dims[d], f);
}

// Bytes from one element of a line along d to the next.
inline int64_t step_along(const View &view, int d) { return view.strides[d] * dtype_size(view.dtype); }

}  // namespace emu
