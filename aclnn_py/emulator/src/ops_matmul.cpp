// Matrix products: Matmul, Mm, BatchMatMul, Addmm. float32 sums, one rounding at the end.
#include "checks_core.h"
#include "kernels_core_loops.h"

namespace emu {

namespace {

constexpr int64_t kTileRows = 4, kTileColumns = 8;
constexpr int64_t kDepth = 64;  // products summed in registers before they are added to the result

// A row-major matrix whose rows are padded to whole tiles.
struct Product {
    int64_t stride;
    std::vector<float> values;

    Product(int64_t rows, int64_t columns)
        : stride((columns + kTileColumns - 1) / kTileColumns * kTileColumns), values(rows * stride) {}
};

// Rows of a by columns of b, which is packed: the rows of eight columns one after another.
void add_tile(const float *const *a, const float *b, int64_t depth, float *const *c) {
    F8 sums[kTileRows] = {};
    for (int64_t i = 0; i < depth; ++i) {
        F8 row = base::load8(b + i * kTileColumns);
        for (int r = 0; r < kTileRows; ++r) sums[r] += a[r][i] * row;
    }
    for (int r = 0; r < kTileRows; ++r) base::store8(c[r], base::load8(c[r]) + sums[r]);
}

Product matrix_product(const float *a, const float *b, int64_t m, int64_t k, int64_t n) {
    Product c(m, n);
    int64_t panels = c.stride / kTileColumns;
    std::vector<float> packed(c.stride * k);
    for (int64_t j = 0; j < n; ++j) {
        float *panel = packed.data() + j / kTileColumns * k * kTileColumns + j % kTileColumns;
        for (int64_t i = 0; i < k; ++i) panel[i * kTileColumns] = b[i * n + j];
    }
    int64_t blocks = (m + kTileRows - 1) / kTileRows;
    parallel(blocks, kThreadWork / (k * n + 1) + 1, [&](int64_t begin, int64_t end) {
        std::vector<float> spare(c.stride);  // takes the rows beyond the last
        for (int64_t first = 0; first < k; first += kDepth) {
            int64_t depth = std::min(kDepth, k - first);
            for (int64_t block = begin; block < end; ++block) {
                const float *from[kTileRows];
                float *to[kTileRows];
                for (int r = 0; r < kTileRows; ++r) {
                    int64_t row = block * kTileRows + r;
                    from[r] = a + std::min(row, m - 1) * k + first;
                    to[r] = row < m ? c.values.data() + row * c.stride : spare.data();
                }
                for (int64_t p = 0; p < panels; ++p) {
                    add_tile(from, packed.data() + (p * k + first) * kTileColumns, depth, to);
                    for (float *&row : to) row += kTileColumns;
                }
            }
        }
    });
    return c;
}

void write_product(const Product &product, const View &out, char *at) {
    for (int64_t row = 0; row < out.dims[out.ndim - 2]; ++row) {
        store(out.dtype, at + row * step_along(out, out.ndim - 2), step_along(out, out.ndim - 1),
              out.dims[out.ndim - 1], product.values.data() + row * product.stride);
    }
}

// ---- aclnnMatmul, aclnnMm, aclnnBatchMatMul

View with_dim(const View &view, int d) {
    View out = view;
    std::copy_backward(out.dims + d, out.dims + out.ndim, out.dims + out.ndim + 1);
    std::copy_backward(out.strides + d, out.strides + out.ndim, out.strides + out.ndim + 1);
    out.dims[d] = 1;
    out.strides[d] = 0;
    ++out.ndim;
    return out;
}

// A vector is a row on the left and a column on the right; the result lacks that dim.
struct Matrices {
    View left, right, out;

    Matrices(const View &self, const View &mat2, const View &to) : left(self), right(mat2), out(to) {
        if (mat2.ndim == 1) {
            right = with_dim(right, 1);
            out = with_dim(out, out.ndim);
        }
        if (self.ndim == 1) {
            left = with_dim(left, 0);
            out = with_dim(out, out.ndim - 1);
        }
    }
};

Status check_cube_math(const Arg &type) {
    EMU_REQUIRE(type.i >= 0 && type.i <= 3, kParamInvalid, "cubeMathType is ", type.i, "; accepted: 0 to 3");
    return {};
}

Status check_product(const View &one, const char *one_name, const View &two, const char *two_name, Shape &shape) {
    EMU_REQUIRE(one.ndim > 0, kParamInvalid, one_name, " has shape (); accepted: at least one dim");
    EMU_REQUIRE(two.ndim > 0, kParamInvalid, two_name, " has shape (); accepted: at least one dim");
    int64_t columns = one.dims[one.ndim - 1], rows = two.dims[std::max(two.ndim - 2, 0)];
    EMU_REQUIRE(columns == rows, kParamInvalid, two_name, " has shape ", shape_text(two), "; accepted: ", columns,
                " rows, the columns of ", one_name, " ", shape_text(one));
    View batches[2] = {one, two};
    for (View &batch : batches) batch.ndim = std::max(batch.ndim - 2, 0);
    shape = shape_of(batches[0]);
    EMU_PASS(check_broadcast(batches[1], two_name, shape));
    if (one.ndim > 1) shape.push_back(one.dims[one.ndim - 2]);
    if (two.ndim > 1) shape.push_back(two.dims[two.ndim - 1]);
    return {};
}

Status check_matrix_rank(const View &view, const char *name, int rank) {
    EMU_REQUIRE(rank == 0 || view.ndim == rank, kParamInvalid, name, " has shape ", shape_text(view), "; accepted: ",
                rank, " dims");
    return {};
}

template <int rank>
Status check_matmul(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, "self", Accept::Matrix}, {1, "mat2", Accept::Matrix},
                               {2, "out", Accept::Matrix}}));
    EMU_PASS(check_cube_math(args[3]));
    const View &self = args[0].tensor, &mat2 = args[1].tensor, &out = args[2].tensor;
    EMU_PASS(check_matrix_rank(self, "self", rank));
    EMU_PASS(check_matrix_rank(mat2, "mat2", rank));
    EMU_REQUIRE(rank != 3 || self.dims[0] == mat2.dims[0], kParamInvalid, "mat2 has shape ", shape_text(mat2),
                "; accepted: ", self.dims[0], " matrices, as self has");
    Shape shape;
    EMU_PASS(check_product(self, "self", mat2, "mat2", shape));
    EMU_PASS(check_shape(out, "out", shape));
    return ready(0, out.numel() == 0);
}

// What lies between the sum and the output: a result of 16 bits is rounded first, then converted.
void settle_product(Product &product, aclDataType common, const View &out) {
    if (out.dtype != common) settle(common, product.values.data(), static_cast<int64_t>(product.values.size()));
}

void run_matmul(std::vector<Arg> &args, const Config &) {
    aclDataType common = promote(args[0].tensor.dtype, args[1].tensor.dtype);
    Dense self(args[0].tensor, ACL_FLOAT), mat2(args[1].tensor, ACL_FLOAT);
    Matrices of(self.view, mat2.view, args[2].tensor);
    int64_t m = of.out.dims[of.out.ndim - 2], n = of.out.dims[of.out.ndim - 1], k = of.left.dims[of.left.ndim - 1];
    View batches[] = {of.out, of.left, of.right};
    for (View &batch : batches) batch.ndim -= 2;
    each_index(batches, m * n * (k + 1), [&](char *const *at) {
        Product product = matrix_product(reinterpret_cast<float *>(at[1]), reinterpret_cast<float *>(at[2]), m, k, n);
        settle_product(product, common, of.out);
        write_product(product, of.out, at[0]);
    });
}

// ---- aclnnAddmm: beta * self + alpha * (mat1 @ mat2)

struct AddmmArgs {
    int out, type;
    const char *self, *out_name;
};
constexpr AddmmArgs kAddmmArgs = {5, 6, "self", "out"}, kInplaceAddmmArgs = {0, 5, "selfRef", "selfRef"};

template <const AddmmArgs &at>
Status check_addmm(const std::vector<Arg> &args, const Config &) {
    EMU_PASS(check_core(args, {{0, at.self, Accept::Matrix}, {1, "mat1", Accept::Matrix}, {2, "mat2", Accept::Matrix},
                               {3, "beta", Accept::All, true}, {4, "alpha", Accept::All, true},
                               {at.out, at.out_name, Accept::Matrix}}));
    EMU_PASS(check_cube_math(args[at.type]));
    const View &self = args[0].tensor, &mat1 = args[1].tensor, &mat2 = args[2].tensor, &out = args[at.out].tensor;
    EMU_PASS(check_matrix_rank(mat1, "mat1", 2));
    EMU_PASS(check_matrix_rank(mat2, "mat2", 2));
    Shape shape;
    EMU_PASS(check_product(mat1, "mat1", mat2, "mat2", shape));
    EMU_PASS(check_shape(out, at.out_name, shape));
    Shape with_self = shape;
    EMU_PASS(check_broadcast(self, at.self, with_self));
    EMU_REQUIRE(with_self == shape, kParamInvalid, at.self, " has shape ", shape_text(self),
                "; accepted: one that broadcasts to (", shape[0], ", ", shape[1], ")");
    return ready(0, out.numel() == 0);
}

template <const AddmmArgs &at>
void run_addmm(std::vector<Arg> &args, const Config &) {
    const View &out = args[at.out].tensor;
    aclDataType common = promote(promote(args[0].tensor.dtype, args[1].tensor.dtype), args[2].tensor.dtype);
    Dense self(args[0].tensor, ACL_FLOAT), mat1(args[1].tensor, ACL_FLOAT), mat2(args[2].tensor, ACL_FLOAT);
    float beta = scalar_value<float>(args[3], ACL_FLOAT), alpha = scalar_value<float>(args[4], ACL_FLOAT);
    Product product = matrix_product(static_cast<float *>(mat1.view.data), static_cast<float *>(mat2.view.data),
                               out.dims[0], mat1.view.dims[1], out.dims[1]);
    for (float &value : product.values) value *= alpha;
    if (beta != 0) {  // with beta 0 not even a NaN of self counts
        StridedLoop<2> loop(out);
        loop.operand(1, self.view, sizeof(float));
        View sums = out;
        sums.data = product.values.data();
        sums.strides[0] = product.stride;
        sums.strides[1] = 1;
        loop.operand(0, sums, sizeof(float));
        each_run(loop, [&](char *const *place, const int64_t *step, int64_t count) {
            for (int64_t i = 0; i < count; ++i) {
                *reinterpret_cast<float *>(place[0] + i * step[0]) +=
                    beta * *reinterpret_cast<float *>(place[1] + i * step[1]);
            }
        });
    }
    settle_product(product, common, out);
    write_product(product, out, static_cast<char *>(out.data));
}

}  // namespace

EMU_OPERATOR(Matmul, check_matmul<0>, run_matmul);
EMU_OPERATOR(Mm, check_matmul<2>, run_matmul);
EMU_OPERATOR(BatchMatMul, check_matmul<3>, run_matmul);
EMU_OPERATOR(Addmm, check_addmm<kAddmmArgs>, run_addmm<kAddmmArgs>);
EMU_OPERATOR(InplaceAddmm, check_addmm<kInplaceAddmmArgs>, run_addmm<kInplaceAddmmArgs>);

}  // namespace emu
