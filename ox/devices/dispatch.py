"""Which executor runs a call: decided once for an operator and its element types, then looked up."""

from __future__ import annotations

import sys
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from ox.devices import cuda_state
from ox.devices.gpu import device_checks
from ox.devices.operator import Operator
from ox.dtypes import DType
from ox.errors import DeviceError


class Accelerated(Protocol):
    """A faster way to run one operator on some element types, where it pays."""

    def worthwhile(self, arrays: list[Any]) -> bool:
        """Whether these arrays are large enough for it."""

    def run(self, op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        """The outputs, as the kernel would return them."""


def accelerated(op: Operator, arrays: list[Any]) -> Accelerated | None:
    """The faster executor for these element types on the CPU, or None when the NumPy kernel is the one to use. For
    arrays of a GPU it is decided at the first call with these types on the CPU."""
    if any(isinstance(a, cuda_state.array_type) for a in arrays):
        return Undecided(op)
    for offer in accelerators:
        found: Accelerated | None = offer(op, arrays)
        if found is not None:
            return found
    return None


class Undecided:
    """What `accelerated` gives for a call on the CPU, after one on a GPU that has the same element types."""

    def __init__(self, op: Operator) -> None:
        self._op, self._decided = op, False
        self._found: Accelerated | None = None

    def decided(self, arrays: list[Any]) -> Accelerated | None:
        """What `accelerated` gives for arrays on the CPU; None for others."""
        if not self._decided:
            executor = accelerated(self._op, arrays)
            if isinstance(executor, Undecided):
                return None
            self._found, self._decided = executor, True
        return self._found

    def worthwhile(self, arrays: list[Any]) -> bool:
        executor = self.decided(arrays)
        return executor is not None and executor.worthwhile(arrays)

    def run(self, op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        assert self._found is not None
        return self._found.run(op, arrays, attributes)


accelerators: list[Any] = []  # functions (op, arrays) -> Accelerated | None; the kernel tables of the CPU add theirs


def cpu(array: Any) -> np.ndarray[Any, Any]:
    """The array in host memory (a copy if it lives on a GPU)."""
    if isinstance(array, np.ndarray):
        return array
    made = np.asarray(array.get())
    device_checks.raise_if_wrong()
    return made


def namespace(op: Operator, arrays: list[Any]) -> tuple[Any, list[int]]:
    """numpy, or cupy when an input lives on a GPU, and which inputs then are numbers of the host, for
    `take_scalars_along`. Host inputs are brought back.

    Raises:
        DeviceError: when larger tensors of both devices meet.
    """
    host = op.schema.host_inputs
    if arrays and not host and not cuda_state.several:
        for a in arrays:
            if type(a) is not cuda_state.array_type:
                break
        else:
            return cuda_state.module(sys.modules["cupy"]), []
    on_gpu: list[int] = []
    on_host: list[int] = []
    for i, a in enumerate(arrays):
        if a is None:
            continue
        if i in host:
            arrays[i] = cpu(a)
        elif isinstance(a, np.ndarray):
            on_host.append(i)
        else:
            on_gpu.append(i)
    if not on_gpu:
        return np, on_host
    if cuda_state.several and len(on_gpu) > 1:
        _check_one_gpu(op, arrays, on_gpu)
    for i in on_host:
        if arrays[i].size != 1:
            _take_along(op, arrays, i, on_gpu[0])
    numbers = [i for i in on_host if isinstance(arrays[i], np.ndarray)] if on_host else on_host
    return cuda_state.module(sys.modules["cupy"]), numbers


def _take_along(op: Operator, arrays: list[Any], i: int, first: int) -> None:
    """Copy the array at `i` to the GPU of the first one there."""
    if not cuda_state.takes_host_arrays_along():
        raise DeviceError(
            f"{op.name} got tensors on different devices",
            expected="all inputs on cuda",
            got=f"input '{op.schema.input_at(i).name}' on cpu, '{op.schema.input_at(first).name}' on cuda",
            hint='x.to("cuda")',
        )
    with cuda_state.at(arrays[first]):
        arrays[i] = sys.modules["cupy"].asarray(arrays[i])


def _check_one_gpu(op: Operator, arrays: list[Any], on_gpu: list[int]) -> None:
    first = on_gpu[0]
    device = arrays[first].device.id
    for i in on_gpu[1:]:
        other = arrays[i].device.id
        if other != device:
            raise DeviceError(
                f"{op.name} got tensors on different devices",
                expected=f"all inputs on cuda:{device}",
                got=f"input '{op.schema.input_at(i).name}' on cuda:{other}, "
                f"'{op.schema.input_at(first).name}' on cuda:{device}",
                hint=f'x.to("cuda:{device}")',
            )


def take_scalars_along(arrays: list[Any], numbers: list[int]) -> None:
    """Copy numbers of the host to the GPU; constants of ox once."""
    for i in numbers:
        a = arrays[i]
        if a.flags.writeable:
            arrays[i] = sys.modules["cupy"].asarray(a)
        else:
            arrays[i] = _constant(a.tobytes(), a.dtype, a.shape, _device())


def _device() -> int:
    return int(sys.modules["cupy"].cuda.Device().id)


@lru_cache(maxsize=4096)
def _constant(content: bytes, dtype: DType, shape: tuple[int, ...], device: int) -> Any:
    """An array that nobody may write on the GPU, like its read-only model on the host."""
    return sys.modules["cupy"].asarray(np.frombuffer(content, np.uint8).view(dtype).reshape(shape))
