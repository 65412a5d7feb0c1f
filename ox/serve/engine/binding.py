"""Buffers that a session reads and writes itself, made once: for models so small that arrays cost as much as the run.

Rows are copied once, from the requests into the buffer, and an answer is copied out before the next run. Measured on a
64-64-10 model: 5.5 µs instead of 7.6 µs for 8 rows; for models of 100 µs and more it makes no difference, and
`engine.measure` leaves it off.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from ox.graph.contract import DTYPES, Array, TensorInfo
from ox.serve.engine.instance import ControlledRun, Feed, Instance


def bindable(infos: Sequence[TensorInfo]) -> bool:
    """Whether nothing but the number of rows varies, in types that a buffer can hold."""
    return all(
        info.dtype not in ("BYTES", "BF16")
        and info.dims
        and not isinstance(info.dims[0], int)
        and all(isinstance(size, int) for size in info.dims[1:])
        for info in infos
    )


class Bound(Instance):
    """An instance with buffers of its own for up to `most` rows; larger batches go the usual way.

    Args:
        run, control: as for `Instance`.
        session: ONNX Runtime's.
        inputs, outputs: the model's interface, `bindable`.
        most: rows of the buffers.
    """

    def __init__(
        self,
        run: ControlledRun,
        control: Callable[[], Any],
        session: Any,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        most: int,
    ) -> None:
        super().__init__(run, control)
        self._session, self._most = session, most
        self._inputs = [(info.name, _buffer(info, most)) for info in inputs]
        self._outputs = [(info.name, _buffer(info, most)) for info in outputs]
        self._bindings: list[Any] = [None] * (most + 1)  # by rows, all over the same buffers

    def __call__(self, feeds: Sequence[Feed], control: Any = None) -> list[Array]:
        name, _ = self._inputs[0]
        rows = 0
        for feed in feeds:
            rows += len(feed[name])
        if rows > self._most:
            return super().__call__(feeds, control)
        for name, buffer in self._inputs:
            if len(feeds) == 1:
                buffer[:rows] = feeds[0][name]
            else:
                np.concatenate([feed[name] for feed in feeds], out=buffer[:rows])
        self.gathered = perf_counter()
        binding = self._bindings[rows] or self._bind(rows)
        try:
            self._session.run_with_iobinding(binding, control)
        except Exception:  # the usual way knows what it means, and whether it was only the buffers' fault
            if control is not None and control.terminate:
                raise
            return super().__call__(feeds, control)
        return [buffer[:rows].copy() for _, buffer in self._outputs]

    def _bind(self, rows: int) -> Any:
        binding = self._bindings[rows] = self._session.io_binding()
        for name, buffer in self._inputs:
            shape = (rows, *buffer.shape[1:])
            binding.bind_input(name, "cpu", 0, buffer.dtype.type, shape, buffer.ctypes.data)
        for name, buffer in self._outputs:
            shape = (rows, *buffer.shape[1:])
            binding.bind_output(name, "cpu", 0, buffer.dtype.type, shape, buffer.ctypes.data)
        return binding


def _buffer(info: TensorInfo, rows: int) -> Array:
    return np.empty([rows, *(size for size in info.dims[1:] if isinstance(size, int))], DTYPES[info.dtype])


class OnDevice(Instance):
    """An instance whose buffers lie on the GPU, one set for each bucket of rows; a batch is filled up to its bucket.

    Few shapes, because the CUDA provider searches for algorithms anew for each. Never run: no GPU was at hand.
    """

    def __init__(
        self,
        run: ControlledRun,
        control: Callable[[], Any],
        session: Any,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        most: int,
        runtime: ModuleType,
    ) -> None:
        super().__init__(run, control)
        self._session, self._most, self._value = session, most, runtime.OrtValue
        self._infos = inputs, outputs
        self._buckets: dict[int, tuple[Any, dict[str, tuple[Array, Any]], list[Any]]] = {}

    def __call__(self, feeds: Sequence[Feed], control: Any = None) -> list[Array]:
        rows = sum(len(next(iter(feed.values()))) for feed in feeds)
        if rows > self._most:
            return super().__call__(feeds, control)
        size = min(1 << (rows - 1).bit_length(), self._most)
        binding, inputs, outputs = self._buckets.get(size) or self._bind(size)
        for name, (host, device) in inputs.items():
            np.concatenate([feed[name] for feed in feeds], out=host[:rows])
            host[rows:] = host[:1]  # a row that is known to be valid
            device.update_inplace(host)
        self.gathered = perf_counter()
        self._session.run_with_iobinding(binding, control)
        return [output.numpy()[:rows] for output in outputs]

    def _bind(self, size: int) -> tuple[Any, dict[str, tuple[Array, Any]], list[Any]]:
        binding = self._session.io_binding()
        inputs: dict[str, tuple[Array, Any]] = {}
        outputs = []
        for place, infos in enumerate(self._infos):
            for info in infos:
                host = _buffer(info, size)
                device = self._value.ortvalue_from_shape_and_type(host.shape, host.dtype.type, "cuda", 0)
                if place:
                    outputs.append(device)
                    binding.bind_ortvalue_output(info.name, device)
                else:
                    inputs[info.name] = host, device
                    binding.bind_ortvalue_input(info.name, device)
        self._buckets[size] = binding, inputs, outputs
        return self._buckets[size]
