"""Which batch sizes a GPU has memory for, and runs whose time tells what each brings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from math import prod

import numpy as np

from ox.devices import cuda
from ox.devices.machine import available_memory
from ox.devices.onnxruntime.probe import TENSORRT
from ox.errors import LoadError, OutOfMemoryError, ServeError
from ox.graph.contract import Array
from ox.serve.runtime.capture_gate import GATE
from ox.serve.runtime.device_memory import free_pools
from ox.serve.runtime.dimension_memory import varying
from ox.serve.runtime.instance import Feed
from ox.serve.runtime.lost_device import LostDeviceError
from ox.serve.runtime.proof import draw
from ox.serve.runtime.session import Engine, Run

USUAL = 32  # where memory is not known
MAX_BATCH = 1024
SHARE = 0.5  # of the memory that is free before, on the GPU and on the host: all instances may take so much
WARM_S = 2.0  # for the first runs, in which cuDNN looks for algorithms


def kinds(engine: Engine) -> list[int]:
    """An instance on each kind of GPU that the instances of a model run on: its index."""
    first: dict[str, int] = {}
    for index in range(engine.buffers.instances):
        first.setdefault(cuda.device_name(engine.placement.number(index)) if cuda.available() else "", index)
    return [*first.values()]


@contextmanager
def gpu_trial(
    engine: Engine, row: Feed, max_dims: Mapping[str, int], index: int = 0, limit: int = MAX_BATCH
) -> Iterator[tuple[Run, int]]:
    """Runs of a model as requests will run, but not captured, and the largest batch to try; 0 if one row does not run.

    Each size runs once, from 1 on. The next one may take twice the memory, which all instances of the GPU must have in
    `SHARE` of what was free, and the batches in as much of the host's, where each instance has pinned memory for one; a
    run that finds none (`gpu_mem_limit`) ends it, too. Sizes of inputs that vary must have
    limits in `max_dims`, because memory is looked at with the largest input: else batches have up to `USUAL` samples.
    At the end the memory of sizes that were only tried goes back to the GPU.

    Args:
        engine: on a GPU.
        row: a valid input of one row.
        max_dims: the largest sizes of dimensions, by name.
        index: of the instance that runs.
        limit: the most samples to try.
    """
    bound = _buffered(engine) if engine.bindable else 0
    instances = [engine.instance(index, bound, captures=False)]
    number = engine.placement.number(index)

    def run(feed: Feed) -> list[Array]:
        return instances[0]((feed,))

    open_sizes = [name for name in varying(engine.inputs) if name not in max_dims]
    known = not open_sizes and engine.provider != TENSORRT and cuda.available()
    rows = [row]
    if known and max_dims and varying(engine.inputs):
        drawn = sum(
            prod(max_dims.get(str(dim), size) for dim, size in zip(info.dims, row[info.name].shape, strict=True))
            for info in engine.inputs
        )
        known = 8 * drawn * (engine.buffers.instances + 2) <= SHARE * available_memory()
    if known and max_dims and varying(engine.inputs):
        rows.insert(0, draw(engine.inputs, [row], 1, np.random.default_rng(0), max_dims))
    try:
        yield run, _largest(engine, run, rows, number, min(limit, (bound or MAX_BATCH) if known else USUAL))
    finally:
        instances.clear()  # whose buffers lie in CuPy's pool
        engine.buffers.hold(0)
        give_memory_back(engine, row, index)


def give_memory_back(engine: Engine, row: Feed, index: int = 0) -> None:
    """Memory of the GPU of a session that only tries took goes back to it: of the arena, and of CuPy's pool."""
    with suppress(ServeError):
        engine.release_memory(row, index)
    with GATE.using():
        free_pools([engine.placement.number(index)])


def _buffered(engine: Engine) -> int:
    """The most rows of which the buffers of all instances have room in `SHARE` of what other models leave, and keeps
    it; 0 if the usual batch has none, and runs without."""
    rows = MAX_BATCH
    while rows >= USUAL:
        with suppress(LoadError):
            engine.buffers.hold(rows, share=SHARE)
            engine.buffers.hold(rows)
            return rows
        rows //= 2
    return 0


def _run(run: Run, row: Feed, size: int) -> int:
    """Runs so many rows, and returns the bytes of the batch and its results."""
    feed = {name: np.repeat(array, size, axis=0) for name, array in row.items()}
    return sum(array.nbytes for array in (*feed.values(), *run(feed)))


def _largest(engine: Engine, run: Run, rows: list[Feed], number: int, limit: int) -> int:
    """The largest batch that has run."""
    free = _free(number)
    host, batches = available_memory(), engine.buffers.instances + 2  # those that are measured, and one that is tried
    started, size, largest = engine.now(), 1, 0
    while size <= limit:
        try:
            bytes_ = max(_run(run, row, size) for row in rows)
        except LostDeviceError:
            raise
        except (ServeError, OutOfMemoryError, MemoryError, np.exceptions.AxisError) as error:
            error.__traceback__ = None  # its frames hold the buffers
            break
        largest, size = size, 2 * size
        if engine.now() - started > WARM_S:
            break
        if 2 * bytes_ * batches > SHARE * host:
            break
        left, instances = _free(number), engine.buffers.instances_on(number)
        if free is not None and left is not None and 2 * (free - left) * instances >= SHARE * free:
            break
    return largest


def _free(number: int) -> int | None:
    """What is free on a GPU; None where nothing tells."""
    with GATE.using():
        return cuda.memory(f"cuda:{number}").free if cuda.available() else None
