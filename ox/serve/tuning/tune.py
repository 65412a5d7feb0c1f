"""Measures how a model is best run on this machine: every layout of instances and threads, every size of batch.

Jobs go through the batcher and the engine as they do in the server, from clients that wait for their answer before they
ask again; only sockets are missing. What is recommended is the quickest answer among the settings that are within a few
percent of the highest throughput.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import cycle
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from ox.clock import SYSTEM
from ox.devices.machine import threads as usable_threads
from ox.errors import ArgumentError, ServeError
from ox.serve.batching.job import Job
from ox.serve.config.model_config import ModelConfig
from ox.serve.config.placement import Placement
from ox.serve.config.request_limits import RequestLimits
from ox.serve.protocol.v2.request import Request
from ox.serve.runtime.instance import Feed
from ox.serve.runtime.proof import rows as valid_rows
from ox.serve.tuning.gpu_trial import gpu_trial, kinds

if TYPE_CHECKING:
    from ox.serve.repository.model import Model

T = TypeVar("T")

SIZES = (1, 2, 4, 8, 16, 32)  # on a CPU
CLIENTS = (1, 2, 4, 8, 16, 32, 64, 128)
LIKE = 0.97  # of the highest throughput: no difference worth a longer wait
GRID_SHARE = 0.7  # of the time; the rest is for the recommended setting under other loads
LEAST_S = 0.05  # one measurement
FLOOR_S = 1.0  # of the whole: what fits into that is measured, however little it is
ROUNDS = 3


@dataclass(frozen=True, order=True)
class Setting:
    """How a model is run."""

    instances: int
    threads: int
    max_rows: int

    @property
    def layout(self) -> str:
        return f"{self.instances} × {self.threads}"


@dataclass(frozen=True)
class Point:
    """What a setting did under a load of so many clients; times in seconds."""

    setting: Setting
    clients: int
    rate: float  # rows a second
    p50: float
    p99: float
    rows: float  # of a batch, on average


@dataclass(frozen=True)
class Tuning:
    """All that was measured. `loads` is the recommended setting under other numbers of clients."""

    name: str
    points: tuple[Point, ...]
    best: Point
    loads: tuple[Point, ...]
    cores: int
    why: str | None  # why batching is off, if it is
    skipped: int = 0  # settings that were not measured for lack of time

    def reason(self) -> str:
        """The reason for the choice."""
        top = max(self.points, key=lambda point: point.rate)
        what = f"{self.best.rate:,.0f} samples/s with {self.best.clients} clients"
        if self.best.rate >= top.rate:
            return f"{what}, the highest throughput"
        return f"{what}, {self.best.rate / top.rate:.0%} of the highest throughput, with the shortest p99 latency"

    def toml(self) -> str:
        """The setting as a table for `ox.toml`."""
        setting = self.best.setting
        quoted = self.name if self.name.replace("_", "").replace("-", "").isalnum() else f'"{self.name}"'
        return (
            f"# ox tune serve on {self.cores} cores: {self.reason()}\n"
            f"[models.{quoted}]\n"
            f"instances = {setting.instances}\nthreads = {setting.threads}\nmax_rows = {setting.max_rows}\n"
            "max_wait_ms = 0\n"
        )


def tune(
    path: str | Path, *, device: str = "cpu", seconds: float = 20.0, clients: int = 32, tell: Callable[[Point], None]
) -> Tuning:
    """Measures for about so many seconds, with so many clients; `tell` hears every point as it is measured.

    Raises:
        LoadError, DeviceError: the model cannot be served.
        ArgumentError: its inputs cannot be generated; or too little time.
    """
    from ox.serve.repository.model import Model

    if seconds < FLOOR_S:
        raise ArgumentError("too little time", expected=f"--seconds {FLOOR_S:g} or more", got=f"{seconds:g}")
    if Path(path).is_dir():
        found = min(Path(path).rglob("*.onnx"), default=None)
        example = f"ox tune serve {found}" if found else "the path of a model, such as DIR/NAME/1/model.onnx"
        raise ArgumentError(f"{path} is a folder", expected="an ONNX file", hint=example)

    def load(setting: Setting) -> Model:
        chosen = replace(
            ModelConfig(device), instances=setting.instances, threads=setting.threads, max_rows=setting.max_rows
        )
        return Model(path, replace(chosen, max_queue=1 << 20), RequestLimits())

    started = SYSTEM.now()
    first = load(Setting(len(Placement.parse(device).numbers) or 1, 1, max(SIZES)))  # an instance for each GPU
    feeds = [feed for feed, _ in valid_rows(first.engine, first.samples, 32)]
    if not feeds:
        raise ArgumentError("no valid input to tune with", where=str(path), hint="export with golden samples")
    cores = max(1, len(first.engine.placement.numbers)) if first.engine.device == "cuda" else usable_threads()
    sizes = _sizes(first, feeds[0], clients)
    ways: Sequence[tuple[int, int]] = layouts(cores)
    spent = SYSTEM.now() - started
    fits = max(1, int((seconds * GRID_SHARE - spent) / (LEAST_S + first.warm_s)))
    whole = len(ways) * len(sizes)
    if fits < whole:  # fewer sizes of each layout, then fewer layouts
        sizes = evenly_spaced(sizes, fits // len(ways))
        ways = evenly_spaced(ways, fits // len(sizes))
    grid = [Setting(*layout, size) for layout in ways for size in sizes]
    share = (seconds * GRID_SHARE - spent) / len(grid)
    # In rounds where there is time for them: what else the machine does then does not meet one setting alone.
    rounds = ROUNDS if share / ROUNDS > first.warm_s + LEAST_S else 1
    each = max(LEAST_S, share / rounds - first.warm_s)
    seen: dict[Setting, list[Point]] = {setting: [] for setting in grid}
    for _ in range(rounds):
        for setting in grid:
            seen[setting].append(run(load(setting), feeds, setting, clients, each))
            tell(seen[setting][-1])
    points = [sorted(some, key=lambda point: point.rate)[len(some) // 2] for some in seen.values()]
    best = recommend(points)
    loads = []
    rest = seconds * (1 - GRID_SHARE)
    counts = evenly_spaced(CLIENTS, int(rest / (LEAST_S + first.warm_s)))
    for count in counts:
        loads.append(run(load(best.setting), feeds, best.setting, count, max(LEAST_S, rest / len(counts))))
        tell(loads[-1])
    return Tuning(first.name, tuple(points), best, tuple(loads), cores, first.proof.why, whole - len(grid))


def _sizes(model: Model, row: Feed, clients: int) -> Sequence[int]:
    """The batch sizes to measure; on GPUs up to those that each kind has memory for and the clients fill."""
    if model.proof.why is not None:
        return SIZES[:1]
    if model.engine.device == "cpu":
        return SIZES
    most = max(clients, SIZES[-1])
    for index in kinds(model.engine):
        with gpu_trial(model.engine, row, {}, index, most) as (_, largest):
            most = max(1, largest)
    return [1 << power for power in range(most.bit_length())]


def layouts(cores: int) -> list[tuple[int, int]]:
    """Instances and threads of each: all cores in every even division, and half of them."""
    divided = [(cores // threads, threads) for threads in range(1, cores + 1) if cores % threads == 0]
    return divided if cores == 1 else [*divided, (max(1, cores // 2), 1)]


def evenly_spaced(values: Sequence[T], count: int) -> Sequence[T]:
    """So many of them, from one end to the other; the last one in any case."""
    if count >= len(values):
        return values
    if count <= 1:
        return values[-1:]
    return [values[place * (len(values) - 1) // (count - 1)] for place in range(count)]


def recommend(points: Sequence[Point]) -> Point:
    """The shortest p99 of those that are as quick as the quickest."""
    top = max(point.rate for point in points)
    return min((point for point in points if point.rate >= LIKE * top), key=lambda point: (point.p99, point.setting))


def run(model: Model, feeds: Sequence[Feed], setting: Setting, clients: int, seconds: float) -> Point:
    """One point. The first fifth of the time does not count; it takes longer where no answer came within the rest."""
    return asyncio.run(_measure(model, feeds, setting, clients, seconds))


async def _measure(model: Model, feeds: Sequence[Feed], setting: Setting, clients: int, seconds: float) -> Point:
    loop = asyncio.get_running_loop()
    load = Load(model, feeds, seconds)
    model.start(loop)
    for _ in range(clients):
        load.ask()
    await load.over.wait()
    batches = model.stages.batch_rows
    rows = batches.total / max(1, batches.count)
    await model.close()
    if load.error is not None:
        raise load.error
    waits = sorted(load.waits)
    rate = load.rows / max(load.last - load.counting, 1e-9)
    return Point(setting, clients, rate, _percentile(waits, 0.5), _percentile(waits, 0.99), rows)


class Load:
    """Clients in a closed loop: each answer brings the next question, until the time is over."""

    def __init__(self, model: Model, feeds: Sequence[Feed], seconds: float) -> None:
        now = model.clock.now()
        self.model, self.counting, self.end = model, now + seconds / 5, now + seconds
        self.last = self.counting
        self.waits: list[float] = []
        self.rows = self.open = 0
        self.over = asyncio.Event()
        self.error: Exception | None = None
        self._requests = cycle([Request(None, feed, *model.signature.rows_and_key(feed), ()) for feed in feeds])

    def ask(self) -> None:
        self.open += 1
        try:
            self.model.submit(Question(next(self._requests), self))
        except ServeError as error:
            self.error = error
            self.answered(None)

    def answered(self, job: Question | None) -> None:
        now = self.model.clock.now()
        self.open -= 1
        if job is not None and job.error is not None:
            self.error = job.error
        elif job is not None and job.arrived >= self.counting:
            self.waits.append(now - job.arrived)
            self.rows += job.request.rows
            self.last = now
        if self.error is None and (now < self.end or not self.waits):
            self.ask()
        elif not self.open:
            self.over.set()


class Question(Job):
    """A job that reports to its load."""

    __slots__ = ("_load",)

    def __init__(self, request: Request, load: Load) -> None:
        super().__init__(request, load.model.clock.now())
        self._load = load

    def done(self) -> None:
        self._load.answered(self)


def _percentile(ordered: Sequence[float], part: float) -> float:
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
