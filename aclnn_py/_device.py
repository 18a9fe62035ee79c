"""Devices, and the product that a SoC name stands for."""

from __future__ import annotations

import re
import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import errors

if TYPE_CHECKING:
    from .runtime import Runtime

# A2 and A3 differ by name only; "Ascend910B" alone is a 910 of the first generation, "ascend910b" the short name
# that kernel directories of A2 have
_PRODUCTS = (
    (r"Ascend910_93.*", "A3"),
    (r"Ascend(950|910_95).*", "950"),
    (r"Ascend910B[1-4].*", "A2"),
    (r"Ascend(310[PB])\d?.*", ""),
)


def product_of_soc(name: str) -> str:
    """Tell the product from a SoC name.

    Parameters
    ----------
    name : str
        ``"Ascend910B1"``, ``"ascend910_93"``, ..., or a product, which is returned as it is.

    Returns
    -------
    str
        ``"A2"``, ``"A3"``, ``"950"``; for another family its name: ``"310P"``, ``"910A"``.

    Raises
    ------
    ValueError
        Not a SoC name.

    Examples
    --------
    >>> [product_of_soc(n) for n in ("Ascend910B4-1", "Ascend910_9391", "Ascend950PR_9599", "Ascend310P3", "A3")]
    ['A2', 'A3', '950', '310P', 'A3']
    """
    if name.upper() in ("A2", "A3", "950"):
        return name.upper()
    if name == "ascend910b":
        return "A2"
    for pattern, product in _PRODUCTS:
        if match := re.fullmatch(pattern, name, re.IGNORECASE):
            return product or match[1].upper()
    if not re.fullmatch(r"ascend\w+", name, re.IGNORECASE):
        raise ValueError(f"product: got {name!r}; expected A2, A3, 950 or a SoC name such as Ascend910B1")
    return name[len("Ascend") :]


class MemoryInfo(NamedTuple):
    """Device memory in bytes."""

    free: int
    total: int


class OnDevice:
    """A ``with`` block on a device; see ``Runtime.on_device``."""

    __slots__ = ("_device", "_previous", "_runtime")

    def __init__(self, runtime: Runtime, device: int) -> None:
        self._runtime = runtime
        self._device = device
        self._previous: int | None = None

    def __enter__(self) -> None:
        """Switch."""
        self._previous = self._runtime.switch(self._device)

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Switch back."""
        if self._previous is not None:
            self._runtime.restore(self._previous)


class Device:
    """One NPU, by number.

    Parameters
    ----------
    runtime : Runtime
        What to ask.
    index : int
        Device number, after ASCEND_RT_VISIBLE_DEVICES renumbered them.

    Examples
    --------
    >>> runtime.device(0).memory_info().free        # doctest: +SKIP
    """

    def __init__(self, runtime: Runtime, index: int) -> None:
        if isinstance(index, bool) or not isinstance(index, int):
            raise TypeError(f"device: got {type(index).__name__}, expected an int")
        if index < 0:
            raise ValueError(f"device: got {index}, expected 0 or more")
        self.runtime = runtime
        self.index = index

    def __repr__(self) -> str:
        """Name the number."""
        return f"<Device {self.index}>"

    @property
    def name(self) -> str:
        """The SoC name; CANN tells that of device 0 for all."""
        return self.runtime.soc_name()

    @property
    def product(self) -> str:
        """``"A2"``, ``"A3"``, ``"950"`` or another family; see :func:`product_of_soc`."""
        return product_of_soc(self.name)

    def memory_info(self) -> MemoryInfo:
        """Give free and total bytes."""
        return self.runtime.memory_info(self.index)

    def synchronize(self) -> None:
        """Wait for all its streams."""
        self.runtime.synchronize_device(self.index)

    def reset(self) -> None:
        """Release all that was made on it through this package, and give it back."""
        self.runtime.reset_device(self.index)


def torch_npu() -> Any:
    """Give ``torch.npu`` where torch_npu is imported, else None."""
    return sys.modules["torch"].npu if "torch_npu" in sys.modules and "torch" in sys.modules else None


def switch_torch(runtime: Runtime, device: int) -> int | None:
    """Make a device current through torch, which remembers per thread what it has set, or means to set later.

    Returns
    -------
    int or None
        The device to go back to, as in :meth:`Runtime.switch`.
    """
    npu = torch_npu()
    current = int(npu.current_device())
    if current != device or runtime.current_device() != device:
        npu.set_device(device)
        if runtime.current_device() != device:  # somebody changed it behind torch's back
            errors.check(runtime.api.aclrtSetDevice(device), "aclrtSetDevice", f"device {device}")
    return None if current == device else current


def restore_torch(device: int) -> bool:
    """Go back to a device as torch's guards do: one that nobody has used gets no context yet. False without torch."""
    npu = torch_npu()
    if npu is None:
        return False
    getattr(getattr(sys.modules["torch_npu"], "_C", None), "_npu_maybeExchangeDevice", npu.set_device)(device)
    return True
