"""What PyTorch scripts switch at their head: threads, printing, determinism."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.core.device import CPU
from ox.core.device import device as Device
from ox.devices import machine
from ox.devices.cpu_kernels import kernel_table as compiled
from ox.devices.gpu import matmul_precision
from ox.devices.onnxruntime import node_session
from ox.dtypes import set_default_dtype
from ox.errors import ArgumentError

PRINTING: dict[str, Any] = {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80, "sci_mode": None}


def set_printoptions(
    precision: int | None = None,
    threshold: float | None = None,
    edgeitems: int | None = None,
    linewidth: int | None = None,
    profile: str | None = None,
    sci_mode: bool | None = None,
) -> None:
    """How tensors print. `torch.set_printoptions`.

    Args:
        profile: ``default``, ``short`` (2 digits) or ``full`` (no dots for elements left out).
        sci_mode: powers of ten always or never; None where numbers need them.
    """
    profiles: dict[str, dict[str, Any]] = {
        "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
        "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
        "full": {"precision": 4, "threshold": float("inf"), "edgeitems": 3, "linewidth": 80},
    }
    if profile is not None and profile not in profiles:
        raise ArgumentError(f"no profile '{profile}'", expected=", ".join(profiles))
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    PRINTING.update(profiles[profile] if profile else {})
    PRINTING.update({name: value for name, value in given.items() if value is not None})
    PRINTING["sci_mode"] = sci_mode


def get_num_threads() -> int:
    """How many threads the kernels of large operators use. `torch.get_num_threads`."""
    return machine.threads()


def set_num_threads(num: int) -> None:
    """Let the kernels of large operators use this many threads. `torch.set_num_threads`.

    Raises:
        ArgumentError: not an int from 1 to 256, or the pool of ONNX Runtime has already started: it is one for the
            process.
    """
    if not isinstance(num, (int, np.integer)) or isinstance(num, bool) or not 1 <= num <= machine.MOST_THREADS:
        raise ArgumentError(f"the number of threads is an int from 1 to {machine.MOST_THREADS}", got=repr(num))
    num = int(num)
    if num == machine.threads():
        return
    if node_session.started():
        raise ArgumentError(
            "the threads have started, and their number stays",
            expected=str(machine.threads()),
            got=str(num),
            hint=f"ox.set_num_threads({num}) before the first large operator",
        )
    machine.use(num)
    if compiled.library.cache_info().currsize:  # loaded with the old number
        compiled.set_threads(num)


def set_default_device(device: Any) -> None:
    """Where tensors are made without `device=`: on the CPU, and nowhere else yet. `torch.set_default_device`.

    Raises:
        ArgumentError: another device.
    """
    if device is not None and Device(str(device)).type != "cpu":
        raise ArgumentError(
            "the default device is always the CPU", got=str(device),
            hint="device= where a tensor is made, and model.to(device)",
        )  # fmt: skip


def get_default_device() -> Device:
    """The CPU. `torch.get_default_device`."""
    return CPU


def set_default_tensor_type(t: Any) -> None:
    """`set_default_dtype` by the name or the class of a typed tensor of the CPU. `torch.set_default_tensor_type`.

    Raises:
        ArgumentError: no type of tensor, or one of another device.
        DTypeError: no floating type.
    """
    from ox.tensors import legacy_types

    kind = legacy_types.named(t) if isinstance(t, str) else t
    set_default_device(getattr(kind, "kind", "cpu"))
    set_default_dtype(getattr(kind, "dtype", kind))


def set_num_interop_threads(num: int) -> None:
    """Nothing: operators run one after the other. `torch.set_num_interop_threads`."""


def get_num_interop_threads() -> int:
    """1. `torch.get_num_interop_threads`."""
    return 1


def set_flush_denormal(mode: bool) -> bool:
    """False: it cannot be switched. `torch.set_flush_denormal`."""
    return False


def set_warn_always(b: bool) -> None:
    """Does nothing: warnings appear once. `torch.set_warn_always`."""


def set_deterministic_debug_mode(debug_mode: Any) -> None:
    """Nothing to switch: every operator gives the same bits again. `torch.set_deterministic_debug_mode`."""


def get_deterministic_debug_mode() -> int:
    """2: operations without a deterministic form would raise. `torch.get_deterministic_debug_mode`."""
    return 2


def _assert(condition: Any, message: str = "") -> None:
    """An assertion, as a function. `torch._assert`."""
    assert condition, message


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Nothing to switch: every operator of ox gives the same bits again on the same machine.
    `torch.use_deterministic_algorithms`."""


def set_float32_matmul_precision(precision: str) -> None:
    """ "highest": products of float32 are those of float32; "high", "medium": on a GPU, matrices may be rounded to TF32
    first. No other device has TF32. `torch.set_float32_matmul_precision`.

    Raises:
        ArgumentError: another word.
    """
    matmul_precision.set_precision(precision)


def get_float32_matmul_precision() -> str:
    """What was set; ``highest`` at first. `torch.get_float32_matmul_precision`."""
    return matmul_precision.precision()


def are_deterministic_algorithms_enabled() -> bool:
    """True: there are no others."""
    return True
