"""Expert parallelism in one process: ``aclnnMoeTokenUnpermuteWithEpGrad`` on ranges that add up to the whole.

The N = T*K (token, slot) pairs, sorted by expert, are positions 0 .. N-1. Each rank owns a range [start, end) of them:
the WithEp operators read and write only those rows. Here one process plays all ranks in turn; in training each rank
is a process, and the two sums below are all-reduces.

Run it with ``python examples/token_unpermute_with_ep_grad.py``; ACLNN_PY_BACKEND chooses the backend.
"""

import numpy as np

import aclnn_py

T, K, H, E, RANKS = 6, 2, 8, 4, 3  # tokens, experts per token, hidden size, experts, ranks
N = T * K


def main() -> None:
    backend = aclnn_py.get_backend()
    print("backend:", backend.name)
    rng = np.random.default_rng(1)

    def integers(*shape: int) -> np.ndarray:  # sums of small integers are exact in any order
        return rng.integers(-3, 4, shape).astype(np.float32)

    tokens, probs, grad = integers(T, H), integers(T, K), integers(T, H)
    experts = np.stack([rng.permutation(E)[:K] for _ in range(T)]).astype(np.int32)
    factor = np.repeat(integers(E), np.bincount(experts.ravel(), minlength=E))[:, None]  # the experts: row * factor

    # the whole, as a single rank would do it
    permuted, indices, _ = aclnn_py.moe_token_permute_with_ep(tokens, experts, backend=backend)
    rows = permuted * factor
    out = aclnn_py.moe_token_unpermute_with_ep(rows, indices, probs, backend=backend)
    whole = aclnn_py.moe_token_unpermute_with_ep_grad(grad, indices, rows, probs, backend=backend)
    token_grad = aclnn_py.moe_token_permute_with_ep_grad(
        whole.permuted_tokens_grad * factor, indices, num_topk=K, backend=backend
    ).token_grad

    # the same in ranges; the last cut leaves one rank with nothing to do, which must work too
    cuts = [0, 5, N, N]
    out_sum, token_grad_sum, probs_sum = np.zeros_like(out), np.zeros_like(tokens), np.zeros_like(probs)
    pieces = []
    for rank in range(RANKS):
        mine = slice(cuts[rank], cuts[rank + 1])
        ep = {"range": (mine.start, mine.stop), "backend": backend}
        part = aclnn_py.moe_token_permute_with_ep(tokens, experts, **ep)
        assert np.array_equal(part.sorted_indices, indices)  # of all N positions, whatever the range
        my_rows = part.permute_tokens * factor[mine]
        out_sum += aclnn_py.moe_token_unpermute_with_ep(my_rows, indices, probs, **ep)

        back = aclnn_py.moe_token_unpermute_with_ep_grad(grad, indices, my_rows, probs, **ep)
        assert back.permuted_tokens_grad.shape == my_rows.shape
        print(f"rank {rank}: positions {ep['range']}, {len(my_rows)} rows, probs_grad {back.probs_grad.ravel()}")
        pieces.append(back.permuted_tokens_grad)
        probs_sum += back.probs_grad
        token_grad_sum += aclnn_py.moe_token_permute_with_ep_grad(
            back.permuted_tokens_grad * factor[mine], indices, num_topk=K, **ep
        ).token_grad

    assert np.array_equal(out_sum, out)
    assert np.array_equal(np.concatenate(pieces), whole.permuted_tokens_grad)
    assert np.array_equal(probs_sum, whole.probs_grad)
    assert np.array_equal(token_grad_sum, token_grad)

    # and the gradient is that of the forward: it predicts the change of the output exactly
    step = integers(T, K)
    moved = aclnn_py.moe_token_unpermute_with_ep(rows, indices, probs + step, backend=backend)
    assert np.vdot(grad, moved - out) == np.vdot(whole.probs_grad, step)
    print("the ranks add up to the whole, forward and backward")


if __name__ == "__main__":
    main()
