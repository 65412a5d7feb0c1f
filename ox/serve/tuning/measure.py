"""How many rows, instances and threads suit a model on this machine: a short measurement when it is loaded.

Values in the options are not measured. What cannot be measured in the time that a start may take keeps the defaults: an
instance of one thread for each core, batches of 8.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

import numpy as np

from ox.devices.machine import threads as usable_threads
from ox.errors import LoadError, ServeError
from ox.graph.contract import Array, Sample
from ox.serve.batching.padding import Padding
from ox.serve.config.model_config import ModelConfig
from ox.serve.runtime.instance import Feed, Instance
from ox.serve.runtime.lost_device import LostDeviceError
from ox.serve.runtime.proof import Proof, promise, prove, rows
from ox.serve.runtime.session import Engine, Run
from ox.serve.runtime.source import Source
from ox.serve.tuning import gpu_trial
from ox.serve.tuning.gpu_trial import give_memory_back
from ox.tolerance import Through, compare

log = logging.getLogger("ox.serve")
Now = Callable[[], float]
Trial = tuple[Feed, int]  # one row, and the most of it in a batch

HANDOFF_S = 60e-6  # what a batch costs besides its run; and a run that is shorter needs no thread
MAX_BATCH = 32  # on a CPU
USUAL = {"cpu": 8, "cuda": gpu_trial.USUAL}
MIN_BATCHES = 4  # is tried however slow the model is
TURNS = 30
BUDGET_S = 0.06  # for the rows, and again for the threads
GPU_BUDGET_S = 0.5  # for the rows: batches are larger
SLOW_LOAD_S = 0.1  # a session that takes so long is not made again to try other threads
WORTH = 1.05  # what buffers, or a smaller batch's rows, must gain
CLEARLY = 1.2  # the required gain over the default size or threads: measurements on a busy machine vary


@dataclass(frozen=True)
class Fit:
    """What suits a model: `measured` names the settings that were measured rather than given."""

    engine: Engine
    proof: Proof
    instances: int
    threads: int
    bound: int  # rows of the instances' own buffers; 0 for none
    measured: frozenset[str]


def fit(
    source: Source,
    engine: Engine,
    samples: Sequence[Sample],
    options: ModelConfig,
    through: Through = None,
    max_rows_source: str | None = None,
) -> Fit:
    """Proves and measures a model that has been loaded for one thread a run, or for the number in the options;
    `max_rows_source` is which setting of theirs the most rows are from."""
    measured: set[str] = set()
    on_gpu = engine.device == "cuda"
    known = rows(engine, samples, 1)
    row = known[0][0] if known else None
    asked = options.max_rows is not None and options.max_rows > 1
    max_rows, unwanted = options.max_rows, max_rows_source or f"max_rows is {options.max_rows}"
    impossible = promise(engine.inputs, engine.outputs, asked) or source.mixing
    if impossible is not None and (max_rows is None or asked):
        max_rows, unwanted = 1, impossible
    if max_rows is None:
        max_rows = USUAL[engine.device]
        if row is not None and (best := _best_rows(engine, row, options)) is not None:
            # a CUDA graph saves launches, which the trial without graphs cannot see
            max_rows, unwanted = max(best, 2) if engine.captures else best, "batches are not faster (measured)"
            measured.add("rows")
    proof = prove(engine, samples, max_rows, through, unwanted)
    cores = max(1, len(engine.placement.numbers)) if on_gpu else usable_threads()
    threads = options.threads or 1
    instances = options.instances or (cores if on_gpu else max(1, cores // threads))
    if options.threads is None and options.instances is None and cores > 1 and row is not None and not on_gpu:
        other = _all_cores(source, engine, row, proof, cores)
        if other is not None:
            measured.add("threads")
            if other is not engine:
                engine, instances, threads = other, 1, cores
    bound = 0
    single = engine.captures and options.max_rows == 1  # a graph of one sample needs no proof of batches
    takes = engine.bindable and (single or proof.why is None)
    if takes and row is not None and (on_gpu or _binding_is_faster(engine, row, proof)):
        bound = _bound(engine, row, proof.max_rows, [(row, proof.max_rows)], through)
    return Fit(engine, proof, instances, threads, bound, frozenset(measured))


def _best_rows(engine: Engine, row: Feed, options: ModelConfig) -> int | None:
    if engine.device == "cpu":
        return best_rows(engine.run, row, MAX_BATCH, engine.now)
    best = []
    for index in gpu_trial.kinds(engine):
        with gpu_trial.gpu_trial(engine, row, options.max_dims, index) as (run, largest):
            best.append(best_rows(run, row, largest, engine.now, USUAL["cuda"], GPU_BUDGET_S) if largest else None)
    sizes = [size for size in best if size is not None]
    return min(sizes) if len(sizes) == len(best) else None


def best_rows(
    run: Run, row: Feed, max_rows: int, now: Now, usual: int = USUAL["cpu"], budget_s: float | None = None
) -> int | None:
    """Batches of the usual size if they are nearly as quick a row as the best, else the smallest that are; None if the
    row cannot be repeated."""
    seconds: dict[int, float] = {}
    budget_s = BUDGET_S if budget_s is None else budget_s
    started, sizes = now(), [1 << power for power in range(max_rows.bit_length())]
    try:
        largest = {name: np.repeat(array, sizes[-1], axis=0) for name, array in row.items()}
        feeds = {size: {name: array[:size] for name, array in largest.items()} for size in sizes}
        # All sizes in turn, again and again: what else the machine does meets them all.
        for turn in range(TURNS):
            for size, feed in feeds.items():
                if size > MIN_BATCHES and (now() - started > budget_s or (turn and size not in seconds)):
                    break
                seconds[size] = min(seconds.get(size, float("inf")), _shortest_run(run, feed, 0.0, now))
            if now() - started > budget_s:
                break
    except LostDeviceError:
        raise
    except (ServeError, MemoryError, np.exceptions.AxisError):
        return None
    times = {size: (each + HANDOFF_S) / size for size, each in seconds.items()}
    best = min(times.values())
    if usual in times and times[usual] <= CLEARLY * best:
        return usual
    return next(size for size, each in times.items() if each <= WORTH * best)


def _shortest_run(run: Run, feed: Feed, seconds: float, now: Now) -> float:
    """The shortest of a few runs, at least one: what else the machine does only makes them longer."""
    quickest, end = float("inf"), now() + seconds
    for _ in range(TURNS):
        started = now()
        run(feed)
        ended = now()
        quickest = min(quickest, ended - started)
        if ended > end:
            break
    return quickest


def _all_cores(source: Source, engine: Engine, row: Feed, proof: Proof, cores: int) -> Engine | None:
    """The engine, or another one with all cores for each run if that is clearly quicker; None if it was not tried."""
    if proof.row_s < HANDOFF_S or engine.load_s > SLOW_LOAD_S or proof.row_s * proof.max_rows > BUDGET_S / 4:
        return None
    feed = {name: np.repeat(array, proof.max_rows, axis=0) for name, array in row.items()} if proof.why is None else row
    other = Engine(source, engine.device, 1, cores, engine.memory.limit, engine.loading)
    each = [engine.instance(index) for index in range(cores)]
    rates: list[float] = []
    for instances in (each, [other.instance(0)]) * 3:
        rates.append(throughput(instances, feed, BUDGET_S / 6, engine.now))
    return other if min(rates[1::2]) > CLEARLY * max(rates[::2]) else engine


def throughput(instances: Sequence[Instance], feed: Feed, seconds: float, now: Now) -> float:
    """Runs a second of instances that all run the same feed at once."""
    counts = [0] * len(instances)
    start = threading.Barrier(len(instances))

    def work(index: int) -> None:
        start.wait()
        end = now() + seconds
        with suppress(ServeError):  # the load was stopped: its waiter gets the error
            while now() < end:
                instances[index]((feed,))
                counts[index] += 1

    threads = [threading.Thread(target=work, args=(index,), daemon=True) for index in range(len(instances))]
    started = now()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(counts) / (now() - started)


def _binding_is_faster(engine: Engine, row: Feed, proof: Proof) -> bool:
    if proof.row_s > HANDOFF_S:
        return False
    times = {"without": 0.0, "with": 0.0}
    instances = {"without": engine.instance(0), "with": engine.instance(0, proof.max_rows)}
    for count in (1, min(proof.max_rows, USUAL["cpu"])):
        for name, instance in instances.items():
            times[name] += _shortest_run(partial(_call, instance, [row] * count), row, BUDGET_S / 10, engine.now)
    return times["with"] * WORTH < times["without"]


def padded_rows(engine: Engine, proof: Proof, padding: Padding, through: Through = None) -> int:
    """The rows of buffers on a GPU for batches that are padded; 0 if they give other results, or cannot be."""
    if proof.row is None or proof.why is not None or not engine.bindable_with(padding):
        return 0
    sizes = [{dim: padding.length(dim, size) for dim, size in padding.sizes(proof.row).items()}]
    lengths = {dim: padding.lengths(dim) for dim in padding.dims}
    sizes += [{dim: all_[end] for dim, all_ in lengths.items() if all_} for end in (0, -1) if all(lengths.values())]
    rows = (padding.resized(proof.row, each) for each in sizes)  # the longest last, if the others came out well
    return _bound(engine, proof.row, proof.max_rows, _as_large(rows, proof.max_rows), through, padding)


def _as_large(rows: Iterable[Feed], max_rows: int) -> Iterator[Trial]:
    """Rows of several lengths, in batches of the most rows of the first one, or of as many elements as these have:
    batches of the longest may take more memory than there is."""
    most = 0
    for row in rows:
        elements = max(1, sum(array.size for array in row.values()))
        most = most or max_rows * elements
        yield row, min(max_rows, max(1, most // elements))


def _bound(
    engine: Engine, row: Feed, max_rows: int, trials: Iterable[Trial], through: Through, padding: Padding | None = None
) -> int:
    """The most rows of buffers; 0 if there is no room for them, or if they do not give what runs without them do."""
    try:
        engine.buffers.hold(max_rows, padding)
    except LoadError as error:
        if engine.captures:
            raise
        log.warning("a model is served without buffers of its own: %s", error.one_line())
        return 0
    instances = [engine.instance(0), engine.instance(0, max_rows, padding is None, padding)]
    works = _gives_the_same(instances, trials, through)
    engine.buffers.hold_graphs(instances[1].graph_bytes)  # which ONNX Runtime holds as long as the session
    instances.clear()  # with their buffers
    if engine.device == "cuda" and not (works and padding is None):
        give_memory_back(engine, row)
    if not works:
        engine.buffers.hold(0)
    return max_rows if works else 0


def _gives_the_same(instances: Sequence[Instance], trials: Iterable[Trial], through: Through) -> bool:
    """Whether an instance with buffers, the second, gives what the first gives without; if it raises, the model is
    served without."""
    plain, bound = instances
    try:
        for row, max_rows in trials:
            for count in sorted({1, max_rows - 1, max_rows} - {0}):
                pairs = zip(bound([row] * count), plain([row] * count), strict=True)
                if not all(compare(got, expected, through).ok for got, expected in pairs):
                    return False
    except Exception:
        return False
    return True


def _call(instance: Instance, feeds: Sequence[Feed], _: Feed) -> list[Array]:
    return instance(feeds)
