"""Asynchronous use: a training-like loop in which the host never waits for the device inside the loop.

Batches go up from pinned memory on one stream, the gradient runs on another, events order the two, and the memory in
use stays bounded over 1,000 launches. Needs a device or the emulator: ACLNN_PY_BACKEND=emulator.
"""

import numpy as np

import aclnn_py

LAUNCHES, TOKENS, SLOTS, WIDTH = 1000, 16, 2, 32
ROWS = TOKENS * SLOTS


def main() -> None:
    backend = aclnn_py.get_backend()
    if backend.name == "reference":
        print("the reference computes at once: no launches to wait for. ACLNN_PY_BACKEND=emulator has them")
        return
    rng = np.random.default_rng(0)
    order = rng.permutation(ROWS).astype(np.int32)
    grads = rng.standard_normal((4, TOKENS, WIDTH)).astype(np.float32)
    row_idx, x = backend.to_device(order), backend.to_device(np.ones((ROWS, WIDTH), np.float32))
    scales = backend.to_device(np.full((TOKENS, SLOTS), 0.5, np.float32))
    grad_x, grad_scales = backend.empty((ROWS, WIDTH), np.float32), backend.empty((TOKENS, SLOTS), np.float32)
    total = backend.to_device(np.zeros((TOKENS, SLOTS), np.float32))

    with backend.create_stream() as copying, backend.create_stream() as computing:
        # two halves: one is filled while the other is read
        pinned = [aclnn_py.HostBuffer(backend.runtime, grads[0].nbytes, backend.device) for _ in range(2)]
        staged = [np.asarray(buffer).view(np.float32).reshape(TOKENS, WIDTH) for buffer in pinned]
        grad_y = [backend.empty((TOKENS, WIDTH), np.float32) for _ in range(2)]
        copied, used = ([backend.create_event() for _ in range(2)] for _ in range(2))
        gradient = aclnn_py.op("aclnnMoeFinalizeRoutingV2Grad", backend=backend).bind(
            grad_y[0], row_idx, x, scales, None, None, 0, 0, 0, 0, grad_x, grad_scales, stream=computing
        )
        add = aclnn_py.op("aclnnInplaceAdd", backend=backend).bind(total, grad_scales, 1.0, stream=computing)
        free_before = backend.runtime.memory_info(backend.device).free
        with gradient, add:
            for number in range(LAUNCHES):
                half = number % 2
                if number >= 2:
                    copied[half].synchronize()  # of two launches ago: the pinned half can be written again
                    copying.wait_event(used[half])  # and its device half is read
                staged[half][...] = grads[number % len(grads)]
                grad_y[half].buffer.copy_from_host(staged[half], stream=copying)
                copied[half].record(copying)
                computing.wait_event(copied[half])
                gradient(gradY=grad_y[half])
                add()
                used[half].record(computing)
            taken = free_before - backend.runtime.memory_info(backend.device).free
            computing.synchronize()
        for event in (*copied, *used):
            event.close()
        for buffer in pinned:
            buffer.close()

    expected = sum(grads[n % len(grads)].astype(np.float64).sum(-1) for n in range(LAUNCHES))
    np.testing.assert_allclose(total.numpy(), np.repeat(expected[:, None], SLOTS, 1), rtol=1e-3, atol=1e-2)
    print(f"{2 * LAUNCHES} launches, {taken >> 20} MiB of device memory for workspace and what was in flight")
    assert taken <= 256 << 20, "the bound of the pool"


if __name__ == "__main__":
    main()
