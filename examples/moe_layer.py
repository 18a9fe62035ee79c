"""A mixture-of-experts layer in torch that trains: router, dispatch, experts, finalize.

The operators run on the host here; ``--device npu`` runs the same code on an NPU through torch_npu. The layer is
compared, step by step, with one in plain torch.

    python examples/moe_layer.py [--device cpu|npu] [--steps 20]
"""

from __future__ import annotations

import argparse
import copy

import torch
from torch import nn

import aclnn_py
from aclnn_py.interop.torch import moe_finalize_routing


class Dispatch(torch.autograd.Function):
    """Sort the slots of all tokens by expert and expand the tokens into that order."""

    @staticmethod
    def forward(ctx, x, experts, count):
        routed = aclnn_py.moe_init_routing_v2(x, experts, expert_num=count, expert_tokens_count_or_cumsum_flag=2)
        ctx.slots = experts.shape[1]
        ctx.save_for_backward(routed.expanded_row_idx)
        ctx.mark_non_differentiable(routed.expanded_row_idx, routed.expert_tokens_count_or_cumsum)
        return routed.expanded_x, routed.expanded_row_idx, routed.expert_tokens_count_or_cumsum

    @staticmethod
    def backward(ctx, grad_rows, *_):
        # un-permuting without weights adds up the rows of each token: the transpose of expanding them
        (index,) = ctx.saved_tensors
        return aclnn_py.moe_token_unpermute_with_ep(grad_rows, index, num_topk=ctx.slots), None, None


class MoeLayer(nn.Module):
    """K of E small feed-forward experts per token."""

    def __init__(self, hidden: int, inner: int, experts: int, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.router = nn.Linear(hidden, experts, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(hidden, inner), nn.SiLU(), nn.Linear(inner, hidden)) for _ in range(experts)
        )

    def route(self, x):
        return torch.topk(torch.softmax(self.router(x), dim=-1), self.slots, dim=-1)

    def forward(self, x):
        weights, experts = self.route(x)
        rows, index, counts = Dispatch.apply(x, experts.int(), len(self.experts))
        parts = rows.split(counts.tolist())
        rows = torch.cat([expert(part) for expert, part in zip(self.experts, parts, strict=True)])
        # mode 2: the index is in (R, K) order, as moe_init_routing_v2 gives it
        return moe_finalize_routing(rows, index, scales=weights, drop_pad_mode=2)


class PlainLayer(MoeLayer):
    """The same layer without the operators: every expert on every token, masked."""

    def forward(self, x):
        weights, experts = self.route(x)
        out = torch.zeros_like(x)
        for number, expert in enumerate(self.experts):
            out = out + expert(x) * (weights * (experts == number)).sum(-1, keepdim=True)
        return out


def train(layer: nn.Module, x: torch.Tensor, target: torch.Tensor, steps: int) -> list[float]:
    # one tensor at a time: the emulator does not have the operators on lists of tensors
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1, foreach=False)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = (x + layer(x) - target).square().sum(-1).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu", choices=["cpu", "npu"])
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    if options.device == "npu":
        import torch_npu  # noqa: F401

    torch.manual_seed(0)
    layer = MoeLayer(hidden=32, inner=48, experts=6, slots=2)
    plain = PlainLayer(hidden=32, inner=48, experts=6, slots=2)
    plain.load_state_dict(copy.deepcopy(layer.state_dict()))
    x, target = torch.randn(64, 32), torch.randn(64, 32)

    expected = train(plain, x, target, options.steps)
    losses = train(layer.to(options.device), x.to(options.device), target.to(options.device), options.steps)
    for step in range(0, options.steps, 5):
        print(f"step {step:2}: loss {losses[step]:.6f}, plain torch {expected[step]:.6f}")
    worst = max(abs(a - b) / b for a, b in zip(losses, expected, strict=True))
    assert worst < 1e-4, f"the losses differ by {worst:.1e}"
    assert losses[-1] < 0.9 * losses[0], "the layer does not learn"
    print(f"largest relative difference of a loss: {worst:.1e}; checks passed")


if __name__ == "__main__":
    main()
