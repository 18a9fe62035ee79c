"""One step of an expert-parallel layer, forward and backward, under torch.distributed.

Each process owns a slice of the experts, and so a range of the rows in expert order. It calls the WithEp operators
with its own ``range``; their results are parts of a sum, which one ``all_reduce`` adds up. The example runs the step
in one process and in several, and compares: outputs to rounding, gradients of the owned rows bit for bit.

    python examples/expert_parallel.py [--processes 1 2 4] [--device cpu|npu]

Hosts talk over gloo. On NPUs (``--device npu``) it is HCCL, one device per process; nothing else changes. In a
training job, replace ``run_in_processes`` by torchrun, which starts the processes and gives each its rank.
"""

from __future__ import annotations

import argparse
import multiprocessing
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist

import aclnn_py
from aclnn_py.interop.torch import moe_token_unpermute_with_ep

TOKENS, HIDDEN, EXPERTS, SLOTS = 48, 16, 8, 2


class Permute(torch.autograd.Function):
    """Copy out the tokens of the experts that this rank owns, in expert order."""

    @staticmethod
    def forward(ctx, x, experts, mine):
        moved = aclnn_py.moe_token_permute_with_ep(x, experts, range=mine)
        ctx.mine, ctx.slots = mine, experts.shape[1]
        ctx.save_for_backward(moved.sorted_indices)
        ctx.mark_non_differentiable(moved.sorted_indices)
        return moved.permute_tokens, moved.sorted_indices

    @staticmethod
    def backward(ctx, grad_rows, _):
        (index,) = ctx.saved_tensors
        grad = aclnn_py.moe_token_permute_with_ep_grad(grad_rows, index, num_topk=ctx.slots, range=ctx.mine)
        return grad.token_grad, None, None


class SumOverRanks(torch.autograd.Function):
    """Add up the parts of all ranks; each part's gradient is that of the sum."""

    @staticmethod
    def forward(ctx, part):
        total = part.clone()
        if dist.is_initialized():
            dist.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx, grad):
        return grad


def inputs(device: str) -> dict[str, torch.Tensor]:
    """Make the same tensors on every rank.

    The last two experts are allowed no token, so the last of four ranks has nothing to do.
    """
    make = torch.Generator().manual_seed(0)
    router = torch.randn(HIDDEN, EXPERTS, generator=make)
    return {
        "x": torch.randn(TOKENS, HIDDEN, generator=make).to(device).requires_grad_(),
        "router": router.to(device).requires_grad_(),
        "allowed": torch.tensor([0.0] * (EXPERTS - 2) + [-torch.inf] * 2).to(device),
        "weights": torch.randn(EXPERTS, HIDDEN, HIDDEN, generator=make).to(device),
        "direction": torch.randn(TOKENS, HIDDEN, generator=make).to(device),
    }


def step(rank: int, world: int, device: str) -> dict[str, object]:
    """Forward and backward of the loss ``sum(output * direction)`` on this rank's share of the experts."""
    given = inputs(device)
    x, router = given["x"], given["router"]
    owned = EXPERTS // world
    first = rank * owned
    weights = given["weights"][first : first + owned].clone().requires_grad_()

    probs, experts = torch.topk(torch.softmax(x @ router + given["allowed"], -1), SLOTS)
    counts = torch.bincount(experts.flatten().cpu(), minlength=EXPERTS).tolist()
    start = sum(counts[:first])
    mine = (start, start + sum(counts[first : first + owned]))

    rows, index = Permute.apply(x, experts.int(), mine)
    parts = rows.split(counts[first : first + owned])
    rows = torch.cat([torch.tanh(part @ weight) for part, weight in zip(parts, weights, strict=True)])
    rows.retain_grad()
    output = SumOverRanks.apply(moe_token_unpermute_with_ep(rows, index, probs, range=mine))
    (output * given["direction"]).sum().backward()

    if dist.is_initialized():  # what every rank has a copy of, got its gradient in parts
        for shared in (x, router):
            dist.all_reduce(shared.grad)
    results = {"output": output, "rows": rows.grad, "weights": weights.grad, "x": x.grad, "router": router.grad}
    return {"range": mine, **{name: tensor.detach().cpu() for name, tensor in results.items()}}


def work(rank: int, world: int, device: str, folder: str) -> None:
    """One process of the group."""
    torch.set_num_threads(1)
    if device == "npu":
        import torch_npu  # noqa: F401

        torch.npu.set_device(rank)
    network = "hccl" if device == "npu" else "gloo"
    dist.init_process_group(network, init_method=f"file://{folder}/group", rank=rank, world_size=world)
    try:
        torch.save(step(rank, world, device), f"{folder}/{rank}.pt")
    finally:
        dist.destroy_process_group()


def run_in_processes(world: int, device: str) -> list[dict[str, object]]:
    # a device cannot be used in a process that was forked after its start: this server never starts one, it only
    # imports what every process would (the last is what the first call of an operator of torch.library imports)
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch.distributed", "aclnn_py.interop.torch", "torch._dynamo"])
    with tempfile.TemporaryDirectory() as folder:
        processes = [context.Process(target=work, args=(rank, world, device, folder)) for rank in range(world)]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        failed = [rank for rank, process in enumerate(processes) if process.exitcode]
        if failed:
            raise SystemExit(f"ranks {failed} failed")
        return [torch.load(Path(folder) / f"{rank}.pt") for rank in range(world)]


def compare(results: list[dict[str, object]], alone: dict[str, object]) -> None:
    world = len(results)
    for rank, result in enumerate(results):
        start, end = result["range"]
        owned = EXPERTS // world
        assert torch.equal(result["rows"], alone["rows"][start:end]), "the gradients of owned rows differ"
        mine = alone["weights"][rank * owned : (rank + 1) * owned]
        assert torch.allclose(result["weights"], mine, rtol=1e-5, atol=1e-6), "gradients of the experts"
        for name in ("output", "x", "router"):
            assert torch.allclose(result[name], alone[name], rtol=1e-4, atol=1e-5), name
        print(f"  rank {rank}: rows {start} to {end}" + ("" if end > start else ", no tokens"))
    worst = max((result["output"] - alone["output"]).abs().max().item() for result in results)
    print(f"  output within {worst:.1e} of one process; gradients of owned rows equal bit for bit")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--device", default="cpu", choices=["cpu", "npu"])
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.device == "npu":
        import torch_npu  # noqa: F401
    alone = step(0, 1, options.device)
    for world in options.processes:
        if EXPERTS % world:
            parser.error(f"--processes {world} does not divide the {EXPERTS} experts")
        print(f"{world} process(es)")
        compare(run_in_processes(world, options.device), alone)
    print("checks passed")


if __name__ == "__main__":
    main()
