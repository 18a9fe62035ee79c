"""Plain torch formulas of the differentiable operators: what autograd makes of them is the truth of the tests."""

from __future__ import annotations

from typing import Any

import torch


def finalize(
    expanded_x: Any, index: Any, x1: Any = None, x2: Any = None, bias: Any = None, scales: Any = None,
    expert_idx: Any = None, mode: int = 0, k: int = 1,
) -> Any:  # fmt: skip
    """``x1 + x2 + sum_k scales * (expanded_x[row] + bias[expert])``; slots outside the rows are skipped."""
    k = k if scales is None else scales.shape[1]
    index = (index.reshape(k, -1).t() if mode < 2 else index.reshape(-1, k)).long()
    rows = expanded_x.reshape(-1, expanded_x.shape[-1])
    kept = (index >= 0) & (index < rows.shape[0])
    terms = rows[torch.where(kept, index, 0)]
    if bias is not None:
        terms = terms + bias[torch.where(kept, expert_idx, 0).long()]
    terms = terms * kept[..., None]
    out = (terms if scales is None else terms * scales[..., None]).sum(1)
    for extra in (x1, x2):
        out = out if extra is None else out + extra
    return out


def unpermute(
    permuted: Any, index: Any, probs: Any = None, topk: int = 1, start: int = 0, end: int | None = None
) -> Any:
    """This rank's part of the sum over the slots of each token."""
    topk = topk if probs is None else probs.shape[1]
    index = index.long().reshape(-1, topk)
    kept = (index >= start) & (index < (index.numel() if end is None else end))
    if not kept.any():
        nothing = 0 * permuted.sum() + (0 if probs is None else 0 * probs.sum())
        return nothing.expand(index.shape[0], permuted.shape[1])
    terms = permuted[torch.where(kept, index - start, 0)] * kept[..., None]
    return (terms if probs is None else terms * probs[..., None]).sum(1)


def finalize_case(
    mode: int, *, bias: bool = False, extras: bool = False, scales: bool = True, drop: float = 0.3, k: int = 2,
    tokens: int = 5, hidden: int = 7, experts: int = 4, seed: int = 0, dtype: Any = torch.float32,
) -> dict[str, Any]:  # fmt: skip
    """Arguments of a forward call; modes 1 and 3 drop some slots."""
    make = torch.Generator().manual_seed(seed)
    normal = lambda *shape: torch.randn(*shape, generator=make).to(dtype)  # noqa: E731
    capacity = (tokens * k + experts - 1) // experts + 1
    if mode % 2:
        rows: tuple[int, ...] = (experts, capacity, hidden)
        index = torch.randperm(experts * capacity, generator=make)[: tokens * k].int()
        index[torch.rand(tokens * k, generator=make) < drop] = -1
    else:
        rows, index = (tokens * k, hidden), torch.randperm(tokens * k, generator=make).int()
    return {
        "expanded_x": normal(*rows),
        "expanded_row_idx": index,
        "x1": normal(tokens, hidden) if extras else None,
        "x2": normal(tokens, hidden) if extras else None,
        "bias": normal(experts, hidden) if bias else None,
        "scales": normal(tokens, k) if scales else None,
        "expert_idx": torch.randint(0, experts, (tokens, k), generator=make).int() if bias else None,
    }


def dropped(case: dict[str, Any], mode: int) -> Any:
    """Mask (R, K) of the slots that are dropped."""
    k = case["scales"].shape[1]
    index = case["expanded_row_idx"]
    return (index.reshape(k, -1).t() if mode < 2 else index.reshape(-1, k)) < 0
