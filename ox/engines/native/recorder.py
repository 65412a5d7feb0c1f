"""Calls of kernels, recorded to be repeated on the same arrays: what the Python code of a compiled kernel decides and
looks up is done once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ox.devices.cpu_kernels.copy import contiguous
from ox.devices.cpu_kernels.kernel_table import Kernel
from ox.engines.native.calls import KernelCall
from ox.engines.native.memory import AddressSpace
from ox.kernels import Library, address

Array = Any
Call = tuple[Callable[..., Any], tuple[Any, ...]]

# Operators whose compiled kernels only call the library, and look at no numbers in arrays; with ox.
RECORDABLE = frozenset(
    (
        "ox.Linear", "ox.LinearGradient", "MatMul", "Gemm", "Conv", "ConvTranspose", "ox.ConvWeights", "MaxPool",
        "ox.MaxPoolGradient", "ox.AveragePoolGradient", "Softmax", "ox.SoftmaxGradient", "LogSoftmax",
        "ox.LogSoftmaxGradient",
        "ox.CrossEntropy", "ox.MeanCrossEntropy", "ox.CrossEntropyGradient",
        "ox.MeanSmoothedCrossEntropy", "ox.SmoothedCrossEntropyGradient", "LayerNormalization",
        "ox.LayerNormalizationGradient", "BatchNormalization", "ox.BatchNormalizationGradient", "ox.BlockwiseAttention",
        "ox.BlockwiseAttentionGradient",
    )
)  # fmt: skip


# The most dimensions of an input that is not row-major: these kernels read it as it lies, or make a copy by `dense`.
STRIDED = {"ox.BlockwiseAttention": 4, "ox.BlockwiseAttentionGradient": 4, "Conv": 4}


class Unrecordable(Exception):
    """The kernel does something that a repetition would not do."""


class Recorder:
    """Stands for the kernel library: calls are kept, not made, and new arrays are the given ones."""

    def __init__(self, library: Library, memory: list[Array] | AddressSpace) -> None:
        """
        Args:
            memory: bytes for each array that the kernel makes, in order; or address space, to see what it makes.
        """
        self._library, self._memory = library, memory
        self.calls: list[Call] = []
        self.made: list[Array] = []
        self._kept: list[Array] = []

    def __getattr__(self, name: str) -> Any:
        function = getattr(self._library, name)

        def record(*arguments: Any) -> None:
            self.calls.append((function, arguments))

        return record

    def call(self, function: Callable[..., Any], *arguments: Any) -> None:
        self.calls.append((function, arguments))

    def empty(self, shape: Any, dtype: Any = float) -> Array:
        if isinstance(self._memory, AddressSpace):
            array = self._memory.array((shape,) if isinstance(shape, int) else tuple(shape), dtype)
        else:
            memory = self._memory[len(self.made)]
            array = memory.view(dtype).reshape(shape)
        self.made.append(array)
        return array

    def empty_like(self, array: Array, dtype: Any = None) -> Array:
        if not array.flags.c_contiguous:
            raise Unrecordable
        return self.empty(array.shape, array.dtype if dtype is None else dtype)

    def dense(self, array: Array, dtype: Any = None) -> Array:
        if array.flags.c_contiguous and (dtype is None or array.dtype == dtype):
            return array
        copy = self.empty(array.shape, array.dtype if dtype is None else dtype)
        self.call(np.copyto, copy, array)
        return copy

    def reshaped(self, array: Array, shape: tuple[int, ...]) -> Array:
        """A copy with its elements in order, in another shape."""
        made = contiguous(self, array)
        if made is None:
            made = self.empty(array.shape, array.dtype)
            self.call(np.copyto, made, array)
        return made.reshape(shape)

    def joined(self, arrays: list[Array], axis: int) -> Array:
        """Arrays joined along an axis."""
        shape = list(arrays[0].shape)
        shape[axis] = sum(array.shape[axis] for array in arrays)
        made = self.empty(shape, arrays[0].dtype)
        self.call(np.concatenate, arrays, axis, made)
        return made

    def numbers(self, array: Array) -> int:
        self._kept.append(array)  # the recorded call holds its address
        return address(array)

    def record(self, call: KernelCall, arrays: list[Array | None]) -> tuple[Array, ...]:
        """Record a call on these arrays. Its results, which are views of what was made.

        Raises:
            Unrecordable: there is no compiled kernel for it.
        """
        kernel = call.accelerated_for(arrays)
        most = STRIDED.get(call.node.key, 2)
        if not isinstance(kernel, Kernel) or not kernel.worthwhile(arrays):
            raise Unrecordable
        if any(a is not None and not a.flags.c_contiguous and a.ndim > most for a in arrays):
            raise Unrecordable  # the kernel may copy it
        if call.check is not None:
            self.call(call.check, arrays, call.attributes)
        made = kernel.run_with(self, arrays, call.attributes)
        results = made if isinstance(made, tuple) else (made,)
        if made is None or not all(any(_holds(each, r) for each in self.made) for r in results):
            raise Unrecordable
        return results


def _holds(whole: Array, part: Array) -> bool:
    """Whether an array is, or is a view of, another one."""
    return part is whole or part.base is whole or (whole.base is not None and part.base is whole.base)
