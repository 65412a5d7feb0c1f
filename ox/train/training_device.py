"""The device of a training run."""

from __future__ import annotations

from ox.devices import cuda
from ox.errors import ArgumentError, DeviceError
from ox.functions.creation import zeros


def check_device(name: str, ranks: int) -> None:
    """Raises ArgumentError for several ranks on one GPU."""
    if ranks > 1 and ":" in name:
        raise ArgumentError(
            "each rank has a GPU of its own", where="", expected="cuda", got=f"{name} for {ranks} ranks",
            hint="CUDA_VISIBLE_DEVICES chooses among the GPUs",
        )  # fmt: skip


def choose_device(name: str, ranks: int) -> str:
    """The device with its number, which becomes the current one, so that nothing is allocated on another; "auto" is
    CUDA if it works. Of several ranks each has the device that its process group has chosen.

    Raises:
        ArgumentError: a number for several ranks. DeviceError: a GPU is asked for, and does not work.
    """
    if name == "cpu":
        return "cpu"
    check_device(name, ranks)
    try:
        device = cuda.use("cuda" if name == "auto" else name)
        zeros(1).to(device)
    except DeviceError:
        if name == "auto":
            return "cpu"
        raise
    return device
