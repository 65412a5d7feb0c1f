"""Buffers on the GPU that a session reads and writes itself: nothing is allocated for a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from types import ModuleType
from typing import Any

import numpy as np

from ox.graph.contract import Array, TensorInfo
from ox.serve.runtime.buffer import make_buffer
from ox.serve.runtime.instance import ControlledRun, Feed, Instance


class DeviceInstance(Instance):
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
        self.gathered_at = perf_counter()
        self._session.run_with_iobinding(binding, control or self.usual)
        return [output.numpy()[:rows] for output in outputs]

    def _bind(self, size: int) -> tuple[Any, dict[str, tuple[Array, Any]], list[Any]]:
        binding = self._session.io_binding()
        inputs: dict[str, tuple[Array, Any]] = {}
        outputs = []
        for place, infos in enumerate(self._infos):
            for info in infos:
                host = make_buffer(info, size)
                device = self._value.ortvalue_from_shape_and_type(host.shape, host.dtype.type, "cuda", 0)
                if place:
                    outputs.append(device)
                    binding.bind_ortvalue_output(info.name, device)
                else:
                    inputs[info.name] = host, device
                    binding.bind_ortvalue_input(info.name, device)
        self._buckets[size] = binding, inputs, outputs
        return self._buckets[size]
