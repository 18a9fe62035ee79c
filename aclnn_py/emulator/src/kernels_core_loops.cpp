#include "kernels_core_loops.h"

namespace emu {

namespace {

char *moved(const View &view, int64_t elements) {
    return static_cast<char *>(view.data) + elements * dtype_size(view.dtype);
}

// The bytes that a view reaches, as [begin, end).
void reach(const View &view, const char *&begin, const char *&end) {
    int64_t low = 0, high = 1;
    for (int d = 0; d < view.ndim; ++d) {
        int64_t far = (view.dims[d] - 1) * view.strides[d];
        (far < 0 ? low : high) += far;
    }
    begin = moved(view, low);
    end = moved(view, high);
}

template <class C>
void convert_run(const View &from, const View &to, char *const *at, const int64_t *step, int64_t n) {
    C buffer[kBlock];
    for (int64_t i = 0; i < n; i += kBlock) {
        int64_t count = std::min(kBlock, n - i);
        load(from.dtype, at[1] + i * step[1], step[1], count, buffer);
        store(to.dtype, at[0] + i * step[0], step[0], count, buffer);
    }
}

template <class T>
void move_run(char *const *at, const int64_t *step, int64_t n) {
    for (int64_t i = 0; i < n; ++i) std::memcpy(at[0] + i * step[0], at[1] + i * step[1], sizeof(T));
}

}  // namespace

View at_least_1d(const View &view) {
    View out = view;
    if (out.ndim == 0) {
        out.ndim = 1;
        out.dims[0] = out.strides[0] = 1;
    }
    return out;
}

int wrap_dim(int64_t dim, const View &view) {
    return static_cast<int>(dim < 0 ? dim + std::max(view.ndim, 1) : dim);
}

View slice(const View &view, int d, int64_t begin, int64_t count) {
    View out = view;
    out.data = moved(view, begin * view.strides[d]);
    out.dims[d] = count;
    return out;
}

View pick(const View &view, int d, int64_t index) {
    return subset(slice(view, d, index, 1), ~(1u << d));
}

View permuted(const View &view, const std::vector<int> &dims) {
    View out = view;
    for (int d = 0; d < view.ndim; ++d) {
        out.dims[d] = view.dims[dims[d]];
        out.strides[d] = view.strides[dims[d]];
    }
    return out;
}

View subset(const View &view, uint32_t mask) {
    View out = view;
    out.ndim = 0;
    for (int d = 0; d < view.ndim; ++d) {
        if (!(mask >> d & 1)) continue;
        out.dims[out.ndim] = view.dims[d];
        out.strides[out.ndim++] = view.strides[d];
    }
    return out;
}

bool overlap(const View &one, const View &other) {
    if (one.numel() == 0 || other.numel() == 0) return false;
    const char *begin[2], *end[2];
    reach(one, begin[0], end[0]);
    reach(other, begin[1], end[1]);
    return begin[0] < end[1] && begin[1] < end[0];
}

Dense::Dense(const View &from, aclDataType as) : view(from) {
    view.dtype = as;
    int64_t stride = 1;
    for (int d = from.ndim - 1; d >= 0; --d) {
        view.strides[d] = stride;
        stride *= from.dims[d];
    }
    bytes.resize(stride * dtype_size(as));
    view.data = bytes.data();
    copy(from, view);
}

void copy(const View &from, const View &to) {
    if (overlap(from, to)) {
        copy(Dense(from, from.dtype).view, to);
        return;
    }
    StridedLoop<2> loop(to);
    loop.operand(0, to, dtype_size(to.dtype));
    loop.operand(1, from, dtype_size(from.dtype));
    each_run(loop, [&](char *const *at, const int64_t *step, int64_t n) {
        int64_t item = dtype_size(to.dtype);
        if (from.dtype != to.dtype) {
            with_compute(from.dtype, [&](auto type) { convert_run<decltype(type)>(from, to, at, step, n); });
        } else if (step[0] == item && step[1] == item) {
            std::memcpy(at[0], at[1], n * item);
        } else {
            switch (item) {
                case 1: move_run<uint8_t>(at, step, n); break;
                case 2: move_run<uint16_t>(at, step, n); break;
                case 4: move_run<uint32_t>(at, step, n); break;
                case 8: move_run<uint64_t>(at, step, n); break;
            }
        }
    });
}

}  // namespace emu
