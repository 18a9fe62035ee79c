"""MoE routing, experts, combining and its gradient: ``aclnnMoeFinalizeRoutingV2Grad`` in both of its modes.

ACLNN_PY_BACKEND chooses the backend. All values are small integers, so that every check is exact.
"""

import numpy as np

import aclnn_py

R, K, H, E, C = 3, 2, 4, 3, 2  # tokens, experts per token, hidden size, experts, capacity of an expert
rng = np.random.default_rng(0)


def integers(*shape):
    return rng.integers(-3, 4, shape).astype(np.float32)


def check_gradients(forward, x, scales, grad_y, grad_x, grad_scales):
    """Check that the gradients predict a change of the output, which is linear in x and in the scales, exactly."""
    before = forward(x, scales)
    dx, ds = integers(*x.shape), integers(*scales.shape)
    assert np.vdot(grad_y, forward(x + dx, scales) - before) == np.vdot(grad_x, dx)
    assert np.vdot(grad_y, forward(x, scales + ds) - before) == np.vdot(grad_scales, ds)


def dropless(backend, tokens, experts, scales, bias, grad_y):
    """Gradient mode 0: every (token, slot) has a row of its own."""
    routed = aclnn_py.moe_init_routing_v2(tokens, experts, backend=backend)
    x, index = routed.expanded_x, routed.expanded_row_idx  # index is in (R, K) order: entry t * K + k
    print("mode 0: index in (R, K) order", index.reshape(R, K).tolist())

    def forward(x, scales):
        common = {"bias": bias, "scales": scales, "expert_idx": experts, "backend": backend}
        out = aclnn_py.moe_finalize_routing_v2(x, index, drop_pad_mode=2, **common)
        columns = aclnn_py.column_major_row_idx(index, K)  # mode 0 reads (K, R) order: entry k * R + t
        assert np.array_equal(out, aclnn_py.moe_finalize_routing_v2(x, columns, drop_pad_mode=0, **common))
        return out

    grad = aclnn_py.moe_finalize_routing_v2_grad(grad_y, index, x, scales, experts, bias, backend=backend)
    check_gradients(forward, x, scales, grad_y, grad.grad_expanded_x, grad.grad_scales)
    print("  grad_scales", grad.grad_scales.tolist())
    wrong = aclnn_py.column_major_row_idx(index, K)  # what forward mode 0 took: no error, other numbers
    other = aclnn_py.moe_finalize_routing_v2_grad(grad_y, wrong, x, scales, experts, bias, backend=backend)
    assert not np.array_equal(other.grad_expanded_x, grad.grad_expanded_x)
    print("  the gradient given (K, R) order runs, and is wrong; row_major_row_idx() converts")


def drop_and_pad(backend, tokens, experts, scales, bias, grad_y):
    """Gradient mode 1: each expert has C rows, and a slot beyond them is dropped (-1)."""
    sizes = {"expert_num": E, "expert_capacity": C, "drop_pad_mode": 1, "backend": backend}
    routed = aclnn_py.moe_init_routing_v2(tokens, experts, **sizes)
    x, index = routed.expanded_x, routed.expanded_row_idx
    print("mode 1: index", index.reshape(R, K).tolist(), "with a dropped slot; rows", x.shape)

    def forward(x, scales):
        return aclnn_py.moe_finalize_routing_v2(x, index, scales=scales, drop_pad_mode=3, backend=backend)

    grad = aclnn_py.moe_finalize_routing_v2_grad(grad_y, index, x, scales, **sizes)
    check_gradients(forward, x, scales, grad_y, grad.grad_expanded_x, grad.grad_scales)
    dropped = index.reshape(R, K) == -1
    assert grad.grad_scales[dropped].tolist() == [0]
    # With bias the gradient keeps the bias of a dropped slot, which the forward skips: mask it in training.
    biased = aclnn_py.moe_finalize_routing_v2_grad(grad_y, index, x, scales, experts, bias, **sizes)
    kept = np.einsum("rh,rkh->rk", grad_y, bias[experts])[dropped]
    assert np.array_equal(biased.grad_scales[dropped], kept)
    print("  grad_scales of the dropped slot: 0 without bias,", kept.tolist(), "with")


def main() -> None:
    backend = aclnn_py.get_backend()
    print("backend:", backend.name)
    experts = np.array([[1, 2], [0, 1], [1, 0]], np.int32)  # expert 1 is chosen three times: one over capacity
    inputs = integers(R, H), experts, integers(R, K), integers(E, H), integers(R, H)
    dropless(backend, *inputs)
    drop_and_pad(backend, *inputs)
    print("all checks passed")


if __name__ == "__main__":
    main()
