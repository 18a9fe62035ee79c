#include "kernels_common.h"

namespace emu {

std::vector<float> read_floats(const View &view) {
    std::vector<float> values(view.numel());
    with_float(view.dtype, [&](auto type) {
        using T = decltype(type);
        dense_pairs<float, T>(view, values.data(), [](float &to, T from) { to = to_float(from); });
    });
    return values;
}

void write_floats(const View &view, const std::vector<float> &values) {
    with_float(view.dtype, [&](auto type) {
        using T = decltype(type);
        dense_pairs<const float, T>(view, values.data(), [](float from, T &to) { from_float(to, from); });
    });
}

std::vector<int64_t> read_ints(const View &view) {
    std::vector<int64_t> values(view.numel());
    if (view.dtype == ACL_INT64) {
        dense_pairs<int64_t, int64_t>(view, values.data(), [](int64_t &to, int64_t from) { to = from; });
    } else if (view.dtype == ACL_INT32) {
        dense_pairs<int64_t, int32_t>(view, values.data(), [](int64_t &to, int32_t from) { to = from; });
    }
    return values;
}

void write_ints(const View &view, const std::vector<int64_t> &values) {
    if (view.dtype == ACL_INT64) {
        dense_pairs<const int64_t, int64_t>(view, values.data(), [](int64_t from, int64_t &to) { to = from; });
    } else if (view.dtype == ACL_INT32) {
        dense_pairs<const int64_t, int32_t>(view, values.data(),
                                            [](int64_t from, int32_t &to) { to = static_cast<int32_t>(from); });
    }
}

std::vector<float> reread_floats(const View &view, int64_t item, aclDataType as) {
    std::vector<char> bytes(view.numel() * item);
    StridedLoop<2> loop(view);
    loop.dense(0, bytes.data(), item);
    loop.operand(1, view, item);
    loop.each(0, loop.runs(), [&](char *const *at, const int64_t *step, int64_t count) {
        for (int64_t i = 0; i < count; ++i) std::memcpy(at[0] + i * step[0], at[1] + i * step[1], item);
    });
    View dense;
    dense.data = bytes.data();
    dense.dtype = as;
    dense.ndim = 1;
    dense.strides[0] = 1;
    with_float(as, [&](auto type) { dense.dims[0] = static_cast<int64_t>(bytes.size() / sizeof(type)); });
    return read_floats(dense);
}

Rows::Rows(const View &view, int64_t width) : view_(view), width_(width) {
    count_ = width > 0 ? view.numel() / width : 0;
    if (view.ndim == 0) {  // one element: a row of one
        view_.ndim = 1;
        view_.dims[0] = view_.strides[0] = 1;
    }
    aligned_ = view_.dims[view_.ndim - 1] == width;
    direct_ = aligned_ && (width == 1 || view_.strides[view_.ndim - 1] == 1);
}

}  // namespace emu
