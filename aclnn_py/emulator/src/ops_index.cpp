// Operators that sort, select and rearrange. A tensor without dims counts as one of a single element.
#include <numeric>

#include "checks_core.h"
#include "kernels_core_loops.h"

namespace emu {

namespace {

Shape with_length(const View &view, int d, int64_t length) {
    Shape shape = shape_of(view);
    if (!shape.empty()) shape[d] = length;
    return shape;
}

// An entry that the device would use out of bounds is reported, and left out.
bool in_bounds(const char *op, int64_t index, int64_t length) {
    if (index >= 0 && index < length) return true;
    report_violation(text(op, ": index has the entry ", index, "; accepted: 0 to ", length - 1));
    return false;
}

std::vector<int64_t> read_index(const View &view) { return read_ints(at_least_1d(view)); }

// ---- aclnnSort (self, stable, dim, descending, ...), aclnnTopk (self, k, dim, largest, sorted, ...)

Status check_order(const std::vector<Arg> &args, bool top) {
    int values = top ? 5 : 4;
    EMU_PASS(check_core(args, {{0, "self"}, {values, "valuesOut"}, {values + 1, "indicesOut", Accept::Int64}}));
    const View &self = args[0].tensor;
    EMU_PASS(check_same_dtype(args[values].tensor, "valuesOut", self.dtype, "self"));
    int d;
    EMU_PASS(check_dim(args[2].i, self.ndim, "dim", d));
    int64_t length = at_least_1d(self).dims[d];
    if (top) {
        int64_t least = self.ndim == 0;  // one element has no dim to leave empty
        EMU_REQUIRE(args[1].i >= least && args[1].i <= length, kParamInvalid, "k is ", args[1].i, "; accepted: ",
                    least, " to ", length);
        length = args[1].i;
    }
    EMU_PASS(check_shape(args[values].tensor, "valuesOut", with_length(self, d, length)));
    EMU_PASS(check_shape(args[values + 1].tensor, "indicesOut", with_length(self, d, length)));
    return ready(0, args[values].tensor.numel() == 0);
}

Status check_sort(const std::vector<Arg> &args, const Config &) { return check_order(args, false); }
Status check_topk(const std::vector<Arg> &args, const Config &) { return check_order(args, true); }

// Ties keep the lower index first; a NaN is larger than any number.
template <class C>
void order_line(const C *values, bool descending, std::vector<int64_t> &order) {
    auto less = [&](C a, C b) { return a < b || (b != b && a == a); };
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        return descending ? less(values[b], values[a]) : less(values[a], values[b]);
    });
}

// The first of each sorted line, as many as the outputs take.
void run_order(std::vector<Arg> &args, const Config &) {
    int first = args.size() == 7 ? 5 : 4;
    const View views[] = {at_least_1d(args[0].tensor), at_least_1d(args[first].tensor),
                          at_least_1d(args[first + 1].tensor)};
    const View &self = views[0], &values = views[1], &indices = views[2];
    bool descending = args[3].i != 0;
    int d = wrap_dim(args[2].i, self);
    int64_t n = self.dims[d], kept = first == 5 ? args[1].i : n;
    with_compute(self.dtype, [&](auto type) {
        using C = decltype(type);
        each_line(views, d, [&](char *const *at) {
            std::vector<C> line(n), sorted(kept);
            std::vector<int64_t> order(n);
            load(self.dtype, at[0], step_along(self, d), n, line.data());
            order_line(line.data(), descending, order);
            for (int64_t i = 0; i < kept; ++i) sorted[i] = line[order[i]];
            store(values.dtype, at[1], step_along(values, d), kept, sorted.data());
            store(indices.dtype, at[2], step_along(indices, d), kept, order.data());
        });
    });
}

// ---- aclnnGather (self, dim, index, out), aclnnScatterAdd (self, dim, index, src, out)

// Index has the rank of `view` and is nowhere longer, but for dim `free`.
Status check_index_fits(const View &index, const View &view, const char *name, int free) {
    View one = at_least_1d(index), other = at_least_1d(view);
    bool fits = one.ndim == other.ndim;
    for (int d = 0; fits && d < one.ndim; ++d) fits = d == free || one.dims[d] <= other.dims[d];
    EMU_REQUIRE(fits, kParamInvalid, "index has shape ", shape_text(index), "; accepted: as many dims as ", name, " ",
                shape_text(view), ", none longer", free >= 0 ? " but dim" : "");
    return {};
}

// The part of a tensor that an index tensor reaches.
View reached(const View &tensor, const View &index, int free) {
    View view = at_least_1d(tensor);
    for (int d = 0; d < view.ndim; ++d) {
        if (d != free) view.dims[d] = index.dims[d];
    }
    return view;
}

Status check_gather(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {2, "index", Accept::Index}, {3, "out"}}));
    const View &self = args[0].tensor, &index = args[2].tensor, &out = args[3].tensor;
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    EMU_PASS(check_shape(out, "out", shape_of(index)));
    if (index.numel() > 0) EMU_PASS(check_index_fits(index, self, "self", d));
    return ready(0, out.numel() == 0);
}

void run_gather(std::vector<Arg> &args, const Config &) {
    View index = at_least_1d(args[2].tensor), out = at_least_1d(args[3].tensor);
    int d = wrap_dim(args[1].i, args[0].tensor);
    const View views[] = {out, index, reached(args[0].tensor, index, d)};
    const View &self = views[2];
    int64_t n = index.dims[d], item = dtype_size(self.dtype), from = step_along(self, d), to = step_along(out, d);
    each_line(views, d, [&](char *const *at) {
        std::vector<int64_t> line(n);
        load(index.dtype, at[1], step_along(index, d), n, line.data());
        for (int64_t i = 0; i < n; ++i) {
            if (!in_bounds("aclnnGather", line[i], self.dims[d])) continue;
            std::memcpy(at[0] + i * to, at[2] + line[i] * from, item);
        }
    });
}

Status check_scatter_add(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {2, "index", Accept::Index}, {3, "src"}, {4, "out"}}));
    const View &self = args[0].tensor, &index = args[2].tensor, &src = args[3].tensor, &out = args[4].tensor;
    EMU_PASS(check_same_dtype(src, "src", self.dtype, "self"));
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    EMU_PASS(check_shape(out, "out", shape_of(self)));
    if (index.numel() > 0) {
        EMU_PASS(check_index_fits(index, self, "self", d));
        EMU_PASS(check_index_fits(index, src, "src", -1));
    }
    return ready(0, out.numel() == 0);
}

void run_scatter_add(std::vector<Arg> &args, const Config &) {
    copy(args[0].tensor, args[4].tensor);
    View index = at_least_1d(args[2].tensor);
    if (index.numel() == 0) return;
    int d = wrap_dim(args[1].i, args[0].tensor);
    const View views[] = {reached(args[4].tensor, index, d), index, reached(args[3].tensor, index, d)};
    const View &out = views[0], &src = views[2];
    int64_t n = index.dims[d], length = out.dims[d];
    with_compute(out.dtype, [&](auto type) {
        using C = decltype(type);
        each_line(views, d, [&](char *const *at) {
            std::vector<int64_t> places(n);
            std::vector<C> totals(length), values(n);
            load(out.dtype, at[0], step_along(out, d), length, totals.data());
            load(index.dtype, at[1], step_along(index, d), n, places.data());
            load(src.dtype, at[2], step_along(src, d), n, values.data());
            for (int64_t i = 0; i < n; ++i) {
                int64_t to = places[i];
                if (in_bounds("aclnnScatterAdd", to, length)) totals[to] = add(totals[to], values[i]);
            }
            store(out.dtype, at[0], step_along(out, d), length, totals.data());
        });
    });
}

// ---- aclnnScatter (self, dim, index, src, reduce, out), aclnnInplaceScatter (the same without out)

template <bool inplace>
Status check_scatter(const std::vector<Arg> &args, const Config &) {
    const char *name = inplace ? "selfRef" : "self";
    EMU_PASS(check_core_present(args, {{0, name}, {2, "index"}, {3, "src"}}));
    if (!inplace) EMU_PASS(check_core_present(args, {{5, "out"}}));
    EMU_PASS(check_core(args, {{0, name}, {2, "index", Accept::Index}, {3, "src"}}));
    const View &self = args[0].tensor, &index = args[2].tensor, &src = args[3].tensor;
    EMU_PASS(check_same_dtype(src, "src", self.dtype, name));
    if (!inplace) EMU_PASS(check_same_dtype(args[5].tensor, "out", self.dtype, name));
    EMU_REQUIRE(args[4].i == 0, kParamInvalid, "reduce is ", args[4].i, "; accepted: 0 (replace)");
    EMU_PASS(check_rank(self, name));
    EMU_PASS(check_rank(index, "index"));
    EMU_PASS(check_rank(src, "src"));
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    if (!inplace) EMU_PASS(check_shape(args[5].tensor, "out", shape_of(self)));
    if (index.numel() > 0) {
        EMU_PASS(check_index_fits(index, self, name, d));
        EMU_PASS(check_index_fits(index, src, "src", -1));
    }
    return ready(0, self.numel() == 0);
}

template <bool inplace>
void run_scatter(std::vector<Arg> &args, const Config &) {
    const View &target = args[inplace ? 0 : 5].tensor;
    Dense source(args[3].tensor, target.dtype);  // the output may overlap it
    if (!inplace) copy(args[0].tensor, target);
    View index = at_least_1d(args[2].tensor);
    if (index.numel() == 0) return;
    int d = wrap_dim(args[1].i, args[0].tensor);
    const View views[] = {reached(target, index, d), index, reached(source.view, index, d)};
    const View &out = views[0];
    int64_t n = index.dims[d], item = dtype_size(out.dtype), to = step_along(out, d), from = step_along(views[2], d);
    each_line(views, d, [&](char *const *at) {
        std::vector<int64_t> places(n);
        load(index.dtype, at[1], step_along(index, d), n, places.data());
        for (int64_t i = 0; i < n; ++i) {
            if (!in_bounds("aclnnScatter", places[i], out.dims[d])) continue;
            std::memcpy(at[0] + places[i] * to, at[2] + i * from, item);
        }
    });
}

// ---- aclnnIndexSelect (self, dim, index, out), aclnnIndexAdd (self, dim, index, source, alpha, out)

Status check_index_rank(const View &index) {
    EMU_REQUIRE(index.ndim <= 1, kParamInvalid, "index has shape ", shape_text(index), "; accepted: at most one dim");
    return {};
}

Status check_index_select(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {2, "index", Accept::Index}, {3, "out"}}));
    const View &self = args[0].tensor, &index = args[2].tensor, &out = args[3].tensor;
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    EMU_PASS(check_index_rank(index));
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    EMU_REQUIRE(self.ndim > 0 || index.numel() == 1, kParamInvalid, "index has shape ", shape_text(index),
                "; accepted: one element, as self has no dims");
    EMU_PASS(check_shape(out, "out", with_length(self, d, index.numel())));
    return ready(0, out.numel() == 0);
}

void run_index_select(std::vector<Arg> &args, const Config &) {
    View self = at_least_1d(args[0].tensor), out = at_least_1d(args[3].tensor);
    int d = wrap_dim(args[1].i, self);
    std::vector<int64_t> index = read_index(args[2].tensor);
    for (size_t i = 0; i < index.size(); ++i) {
        if (in_bounds("aclnnIndexSelect", index[i], self.dims[d])) {
            copy(pick(self, d, index[i]), pick(out, d, static_cast<int64_t>(i)));
        }
    }
}

// ---- aclnnEmbedding (weight, indices, out)

Status check_embedding(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "weight"}, {1, "indices", Accept::Index}, {2, "out"}}));
    const View &weight = args[0].tensor, &indices = args[1].tensor, &out = args[2].tensor;
    EMU_PASS(check_same_dtype(out, "out", weight.dtype, "weight"));
    EMU_REQUIRE(weight.ndim == 2, kParamInvalid, "weight has shape ", shape_text(weight), "; accepted: two dims");
    Shape shape = shape_of(indices);
    shape.push_back(weight.dims[1]);
    EMU_PASS(check_shape(out, "out", shape));
    return ready(0, out.numel() == 0);
}

void run_embedding(std::vector<Arg> &args, const Config &) {
    const View &weight = args[0].tensor, &out = args[2].tensor;
    const View views[] = {subset(out, ~(1u << (out.ndim - 1))), args[1].tensor};
    View row = pick(weight, 0, 0), place = row;
    place.strides[0] = out.strides[out.ndim - 1];
    each_index(views, weight.dims[1], [&](char *const *at) {
        int64_t from = 0;
        load(views[1].dtype, at[1], 0, 1, &from);
        if (!in_bounds("aclnnEmbedding", from, weight.dims[0])) return;
        View to = place;
        to.data = at[0];
        copy(pick(weight, 0, from), to);
    });
}

Status check_index_add(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self"}, {2, "index", Accept::Index}, {3, "source"},
                               {4, "alpha", Accept::All, true}, {5, "out"}}));
    const View &self = args[0].tensor, &index = args[2].tensor, &source = args[3].tensor, &out = args[5].tensor;
    EMU_PASS(check_same_dtype(source, "source", self.dtype, "self"));
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    EMU_PASS(check_factor(args[4], "alpha", self.dtype));
    EMU_PASS(check_index_rank(index));
    int d;
    EMU_PASS(check_dim(args[1].i, self.ndim, "dim", d));
    EMU_REQUIRE(self.ndim > 0 || index.numel() == 1, kParamInvalid, "index has shape ", shape_text(index),
                "; accepted: one element, as self has no dims");
    EMU_PASS(check_shape(out, "out", shape_of(self)));
    EMU_PASS(check_shape(source, "source", with_length(self, d, index.numel())));
    return ready(0, out.numel() == 0);
}

void run_index_add(std::vector<Arg> &args, const Config &) {
    copy(args[0].tensor, args[5].tensor);
    const View views[] = {at_least_1d(args[5].tensor), at_least_1d(args[3].tensor)};
    const View &out = views[0], &source = views[1];
    int d = wrap_dim(args[1].i, out);
    int64_t length = out.dims[d], n = source.dims[d];
    std::vector<int64_t> index = read_index(args[2].tensor);
    std::vector<int64_t> taken;  // positions in source
    for (int64_t i = 0; i < n; ++i) {
        if (in_bounds("aclnnIndexAdd", index[i], length)) taken.push_back(i);
    }
    with_compute(out.dtype, [&](auto type) {
        using C = decltype(type);
        C alpha = scalar_value<C>(args[4], out.dtype);
        each_line(views, d, [&](char *const *at) {
            std::vector<C> totals(length), values(n);
            load(out.dtype, at[0], step_along(out, d), length, totals.data());
            load(source.dtype, at[1], step_along(source, d), n, values.data());
            for (int64_t i : taken) {
                totals[index[i]] = add(totals[index[i]], multiply(values[i], alpha));
            }
            store(out.dtype, at[0], step_along(out, d), length, totals.data());
        });
    });
}

// ---- aclnnCat (tensors, dim, out)

// A tensor of shape (0,) joins any others.
bool joins_any(const View &view) { return view.ndim == 1 && view.dims[0] == 0; }

const View &cat_model(const std::vector<View> &tensors) {
    for (const View &view : tensors) {
        if (!joins_any(view)) return view;
    }
    return tensors[0];
}

aclDataType cat_dtype(const std::vector<View> &tensors) {
    aclDataType common = tensors[0].dtype;
    for (const View &view : tensors) common = promote(common, view.dtype);
    return common;
}

std::string item(size_t i) { return text("tensors[", i, "]"); }

// What Cat and Stack ask of (tensors, dim, out) alike.
Status check_joined(const std::vector<Arg> &args) {
    EMU_PASS(check_core_present(args, {{0, "tensors"}, {2, "out"}}));
    const std::vector<View> &tensors = args[0].tensors;
    const View &out = args[2].tensor;
    EMU_REQUIRE(!tensors.empty(), kParamInvalid, "tensors is an empty list; accepted: at least one tensor");
    for (size_t i = 0; i < tensors.size(); ++i) {
        EMU_REQUIRE(tensors[i].dtype != ACL_DT_UNDEFINED, kParamNullptr, item(i),
                    " is a null pointer; it is required");
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
        EMU_PASS(check_core_dtype(tensors[i].dtype, item(i).c_str(), Accept::All));
    }
    EMU_PASS(check_core_dtype(out.dtype, "out", Accept::All));
    EMU_PASS(check_castable(cat_dtype(tensors), out, "out"));
    for (size_t i = 0; i < tensors.size(); ++i) EMU_PASS(check_rank(tensors[i], item(i).c_str()));
    return {};
}

Status check_cat(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_joined(args));
    const std::vector<View> &tensors = args[0].tensors;
    const View &out = args[2].tensor;
    const View &model = cat_model(tensors);
    EMU_REQUIRE(model.ndim > 0, kParamInvalid, "tensors has one of shape (); accepted: at least one dim");
    int d;
    EMU_PASS(check_dim(args[1].i, model.ndim, "dim", d));
    int64_t length = 0;
    for (size_t i = 0; i < tensors.size(); ++i) {
        const View &view = tensors[i];
        if (joins_any(view)) continue;
        EMU_REQUIRE(view.ndim == model.ndim && with_length(view, d, 0) == with_length(model, d, 0), kParamInvalid,
                    item(i), " has shape ", shape_text(view), "; accepted: ", shape_text(model), " but for dim ", d);
        length += view.dims[d];
    }
    EMU_PASS(check_shape(out, "out", with_length(model, d, length)));
    return ready(0, out.numel() == 0);
}

void run_cat(std::vector<Arg> &args, const Config &) {
    const std::vector<View> &tensors = args[0].tensors;
    const View &out = args[2].tensor;
    aclDataType common = cat_dtype(tensors);
    int d = wrap_dim(args[1].i, out);
    int64_t at = 0;
    for (const View &view : tensors) {
        if (joins_any(view)) continue;
        View to = slice(out, d, at, view.dims[d]);
        if (view.dtype != common && out.dtype != common) {
            copy(Dense(view, common).view, to);
        } else {
            copy(view, to);
        }
        at += view.dims[d];
    }
}

// ---- aclnnStack (tensors, dim, out)

Status check_stack(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_joined(args));
    const std::vector<View> &tensors = args[0].tensors;
    const View &out = args[2].tensor;
    EMU_PASS(check_rank(out, "out"));
    Shape shape = shape_of(tensors[0]);
    int d;
    EMU_PASS(check_dim(args[1].i, tensors[0].ndim + 1, "dim", d));
    for (size_t i = 0; i < tensors.size(); ++i) EMU_PASS(check_shape(tensors[i], item(i).c_str(), shape));
    shape.insert(shape.begin() + d, static_cast<int64_t>(tensors.size()));
    EMU_PASS(check_shape(out, "out", shape));
    return ready(0, out.numel() == 0);
}

void run_stack(std::vector<Arg> &args, const Config &) {
    const std::vector<View> &tensors = args[0].tensors;
    const View &out = args[2].tensor;
    aclDataType common = cat_dtype(tensors);
    int d = wrap_dim(args[1].i, out);
    for (size_t i = 0; i < tensors.size(); ++i) {
        View to = pick(out, d, static_cast<int64_t>(i));
        bool twice = tensors[i].dtype != common && out.dtype != common;
        copy(twice ? Dense(tensors[i], common).view : tensors[i], to);
    }
}

// ---- aclnnPermute (self, dims, out)

std::vector<int> permutation(const std::vector<Arg> &args) {
    std::vector<int> dims;
    for (int64_t dim : args[1].ints) dims.push_back(wrap_dim(dim, args[0].tensor));
    return dims;
}

Status check_permute(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core_present(args, {{0, "self"}, {1, "dims"}}));
    EMU_PASS(check_core(args, {{0, "self"}, {2, "out"}}));
    const View &self = args[0].tensor, &out = args[2].tensor;
    EMU_PASS(check_same_dtype(out, "out", self.dtype, "self"));
    EMU_REQUIRE(static_cast<int>(args[1].ints.size()) == self.ndim, kParamInvalid, "dims has ", args[1].ints.size(),
                " entries; accepted: ", self.ndim, ", as self has dims");
    uint32_t seen = 0;
    for (int64_t dim : args[1].ints) {
        int d;
        EMU_PASS(check_dim(dim, self.ndim, "dims", d));
        EMU_REQUIRE(!(seen >> d & 1), kParamInvalid, "dims has dim ", dim, " twice; accepted: each dim once");
        seen |= 1u << d;
    }
    EMU_PASS(check_shape(out, "out", shape_of(permuted(self, permutation(args)))));
    return ready(0, out.numel() == 0);
}

void run_permute(std::vector<Arg> &args, const Config &) {
    copy(permuted(args[0].tensor, permutation(args)), args[2].tensor);
}

}  // namespace

EMU_OPERATOR(Sort, check_sort, run_order);
EMU_OPERATOR(Topk, check_topk, run_order);
EMU_OPERATOR(Gather, check_gather, run_gather);
EMU_OPERATOR(ScatterAdd, check_scatter_add, run_scatter_add);
EMU_OPERATOR(IndexSelect, check_index_select, run_index_select);
EMU_OPERATOR(IndexAdd, check_index_add, run_index_add);
EMU_OPERATOR(Cat, check_cat, run_cat);
EMU_OPERATOR(Scatter, check_scatter<false>, run_scatter<false>);
EMU_OPERATOR(InplaceScatter, check_scatter<true>, run_scatter<true>);
EMU_OPERATOR(Embedding, check_embedding, run_embedding);
EMU_OPERATOR(Stack, check_stack, run_stack);
EMU_OPERATOR(Permute, check_permute, run_permute);

}  // namespace emu
