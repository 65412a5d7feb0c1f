"""The room that buffers of a model's instances on GPUs are to have: of the GPUs, and of the host for pinned copies."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Mapping
from math import prod
from pathlib import Path
from typing import Protocol

from ox.devices.machine import available_memory
from ox.errors import LoadError
from ox.graph.contract import DTYPES, TensorInfo
from ox.serve.batching.padding import Padding
from ox.serve.gpu_budget import FEWER
from ox.serve.runtime.buffer import buffer_shape

MIB = 1 << 20
GRAPHS, FEWER_GRAPHS = "its CUDA graphs", "fewer of them: a smaller max_rows; without enable_cuda_graph"


class Claim(Protocol):
    """Keeps room on GPUs, as `GpuBudget.claim` does for one model, and returns what gives it back."""

    def __call__(self, needs: Mapping[int, int], what: str = ..., hint: str = ...) -> Callable[[], None]: ...


class BufferClaim:
    """Keeps that room as long as it is there itself.

    Args:
        path: the model's, for errors.
        instances: how many each GPU has, by its number.
        claim: None where the models of the process have no limit.

    `tensors` are the model's inputs and outputs.
    """

    def __init__(self, path: Path, instances: Mapping[int, int], claim: Claim | None) -> None:
        self._path, self._claim, self.tensors = path, claim, tuple[TensorInfo, ...]()
        self._on, self.gpus, self.instances = instances, tuple(instances), sum(instances.values())
        self._give_back: Callable[[], object] = bool

    def hold_graphs(self, bytes_: int) -> None:
        """Keeps what CUDA graphs of the one session have taken of its GPU, until the session ends.

        Raises:
            LoadError: the limit of all models leaves no room for it.
        """
        if self._claim is not None and bytes_:
            weakref.finalize(self, self._claim({self.gpus[0]: bytes_}, GRAPHS, FEWER_GRAPHS))

    def instances_on(self, number: int) -> int:
        """How many instances a GPU is known to have, each with a session; at least 1."""
        return max(1, self._on.get(number, 0))

    def hold(self, rows: int, padding: Padding | None = None, share: float = 1.0) -> None:
        """Keeps room for the buffers of all instances, in place of what was kept before.

        Args:
            rows: of the largest batch, of a model that is `bindable`; 0 for none.
            padding: how batches are padded; they are as long as its largest sizes.
            share: they may take so much of what other models leave of a GPU; the rest is kept, too.

        Raises:
            LoadError: the limit of all models leaves a GPU no room, or the host has no memory to pin. Then nothing is
                kept.
        """
        self._give_back()
        self._give_back = bool
        if not rows or not self.instances:
            return
        what = f"buffers of each instance, for batches of {rows:,}"
        hint = f"a smaller max_rows{'' if padding is None else ', smaller max_dims'}"
        sizes = {} if padding is None else {dim: (padding.lengths(dim) or [0])[-1] for dim in padding.dims}
        if not all(sizes.values()):
            if self._claim is not None:
                problem = f"{self._path} may take any amount of a GPU's memory for its buffers"
                expected = "the largest size of each padded dimension, for --limit gpu_memory"
                raise LoadError(problem, expected=expected, got=f"no limit of {', '.join(sizes)}", hint="max_dims")
            return
        bytes_ = sum(prod(buffer_shape(info, rows, sizes)) * DTYPES[info.dtype].itemsize for info in self.tensors)
        # each instance's, beside a batch and what came of it
        pinned, most = bytes_ * (self.instances + 1), available_memory() // 2
        if pinned > most:
            raise LoadError(
                f"this machine has no memory for {self._path}",
                expected=f"at most {most // MIB:,} MiB, half of what is available",
                got=f"{pinned // MIB:,} MiB ({what}, in pinned memory)",
                hint=hint,
            )
        if self._claim is not None:
            needs = {number: int(count * bytes_ / share) for number, count in self._on.items()}
            self._give_back = weakref.finalize(self, self._claim(needs, what, f"{hint}, {FEWER}"))
