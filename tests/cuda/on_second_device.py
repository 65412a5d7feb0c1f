"""pytest -p on_second_device: tests marked `gpu` run on "cuda:1" of host_cuda, while the current device is the first.

Memory of one device is closed to the kernels of the other: an operator that runs where its arrays are not is an error.
"""

from __future__ import annotations

import os

import host_cuda

os.environ["HOST_CUDA_DEVICES"] = "2"
host_cuda.install()

from ox.devices import cuda  # noqa: E402 (after the stand-in)
from ox.devices.gpu import elementwise as cuda_elements  # noqa: E402 (after the stand-in)
from ox.devices.gpu import pinned_memory  # noqa: E402 (after the stand-in)

_first = cuda.ordinal


def second(device: str) -> int:
    """To "cuda", the second device; another one by its number."""
    return 1 if device == "cuda" else _first(device)


for module in (cuda, cuda_elements, pinned_memory):
    module.ordinal = second  # type: ignore[attr-defined]
