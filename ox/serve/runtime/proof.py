"""May requests share a batch? A file's symbolic first dimension promises it; here the promise is tried out.

Rows are run alone and in batches of every bucket, and must come out the same within the one tolerance table. Golden
samples are used where the file carries them; where it does not, rows are drawn. What drawn rows do not show, such as a
threshold that none of them reaches, `ox.serve.runtime.row_independence` reads from the graph: both must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from ox.errors import LoadError, ServeError
from ox.graph.contract import DTYPES, Array, Sample, TensorInfo
from ox.serve.config.dimension_limits import counts_rows
from ox.serve.operator_kinds import KINDS
from ox.serve.runtime.instance import Feed
from ox.serve.runtime.session import Engine, Run
from ox.tolerance import Through, compare

SingleRun = tuple[Feed, list[Array]]  # a row, and its outputs in a run of its own

MEMORY = (413, 503)  # statuses of runs for which memory was missing
MAX_TRIES = 32  # rows; larger batches hold some of them more than once
NONE: Mapping[str, int] = {}
# Their presence says that the file is quantized; the last one is ONNX Runtime's own.
QUANTIZED = KINDS["quantization"] | KINDS["integer_product"] | {"MatMulNBits"}
AFTERWARDS = "the file was quantized after it was proven: ox quantize --adopt FILE draws its golden samples again"
SIZES = (8, 32, 224, 1)  # tried in turn for sizes that the file leaves open


@dataclass(frozen=True)
class Proof:
    """What was found out.

    `max_rows` is the largest batch; with 1 batching is off, and `why` is the reason. `row` is a valid input, if one is
    known, and `row_s` the seconds that it takes.
    """

    max_rows: int
    why: str | None
    row: Feed | None
    row_s: float


def buckets(max_rows: int) -> list[int]:
    """1, 2, 4, ... and max_rows itself."""
    powers = [1 << power for power in range(max_rows.bit_length())]
    return sorted({*powers, max_rows})


def check_golden(
    name: str, engine: Engine, samples: Sequence[Sample], through: Through = None, operators: Set[str] = frozenset()
) -> None:
    """Runs the file's golden samples; `through` as in `ox.tolerance`, `operators` are those of the file.

    Raises:
        LoadError: a sample does not fit the model, or gives other outputs than in the file; names it.
    """
    quantized = not operators.isdisjoint(QUANTIZED) and not isinstance(through, float)
    for index, sample in enumerate(samples):
        where = f"golden sample {index} of {len(samples)}"
        try:
            got = dict(zip((info.name for info in engine.outputs), engine.run(sample.inputs), strict=True))
        except ServeError as error:
            raise LoadError(f"{name} cannot run its golden sample", where=where, got=error.got) from error
        for output, expected in sample.outputs.items():
            if output not in got:
                raise LoadError(
                    f"{name} has a golden sample for an output that it does not have", where=where, got=output
                )
            difference = compare(got[output], expected, through)
            if not difference.ok:
                raise LoadError(
                    f"{name} does not compute its golden outputs",
                    where=f"{where}, output '{output}'",
                    expected=f"max |Δ| ≤ {difference.allowed:.1e}",
                    got=f"max |Δ| {difference.max_abs:.1e}",
                    hint=AFTERWARDS if quantized else "export the model again; the file or its runtime has changed",
                )


def prove(
    engine: Engine, samples: Sequence[Sample], max_rows: int, through: Through = None, unwanted: str = "max_rows is 1"
) -> Proof:
    """Decides by running whether requests may share a batch of up to `max_rows`; warms every bucket on the way. That
    their interface and their graph allow it has been found out before.

    `unwanted` is why `max_rows` is 0 or 1, if it is.
    """
    scarce: list[str] = []
    tried = rows(engine, samples, min(max(2, max_rows), MAX_TRIES), scarce)
    row = tried[0][0] if tried else None
    why = unwanted if max_rows < 2 else None
    if why is None and len(tried) < 2:
        why = scarce[0] if scarce else "no valid inputs to try it with; export with golden samples"
    why = why or _try(engine.run, tried, max_rows, through)
    del tried  # outputs of the rows hold memory of runs
    return Proof(1 if why else max_rows, why, row, _time(engine.run, row, engine.now) if row else float("inf"))


def promise(inputs: Sequence[TensorInfo], outputs: Sequence[TensorInfo], asked: bool = False) -> str | None:
    """Why the interface rules batching out, None if it promises it.

    `asked`: the settings enable batches; then first dimensions need not share a name.
    """
    for kind, infos in (("input", inputs), ("output", outputs)):
        for info in infos:
            if not info.dims or isinstance(info.dims[0], int):
                first = f"the fixed first dimension {info.dims[0]}" if info.dims else "no dimensions"
                return f"{kind} '{info.name}' has {first}"
    if not inputs:
        return "it has no inputs"
    names = {info.dims[0] for info in inputs}
    if not asked and (len(names) > 1 or (len(inputs) > 1 and None in names)):
        return "the inputs do not share one named first dimension"
    twice = next((dim for info in inputs for dim in info.dims[1:] if dim in names and dim is not None), None)
    return None if twice is None else f"'{twice}' is more than the first dimension"


def _try(run: Run, tried: Sequence[SingleRun], max_rows: int, through: Through) -> str | None:
    """Why batches cannot be trusted, None if every row came out of every batch as it does alone."""
    feeds, alone = zip(*tried, strict=True)
    try:
        if any(output.ndim == 0 or output.shape[0] != 1 for outputs in alone for output in outputs):
            return "one sample in does not give one sample out"
        if not any(_rows_differ(position) for position in zip(*alone, strict=True)):
            return "the outputs do not depend on the inputs tried"
        # Every small size, because powers of two alone would let pass what pairs up rows; each begins at another row.
        for size in sorted({*buckets(max_rows), *range(2, min(8, max_rows) + 1)} - {1}):
            order = [(size + place) % len(feeds) for place in range(size)]
            outputs = run({name: np.concatenate([feeds[index][name] for index in order]) for name in feeds[0]})
            for output, *expected in zip(outputs, *(alone[index] for index in order), strict=True):
                if output.shape[:1] != (size,):
                    return f"{size} samples in do not give {size} samples out"
                for place, value in enumerate(expected):
                    difference = compare(output[place : place + 1], value, through)
                    if not difference.ok:
                        return f"a sample in a batch of {size} differs from it alone by {difference.max_abs:.1e}"
    except ServeError as error:
        return _memory_error(error) if error.status in MEMORY else f"the samples do not run in a batch ({error.got})"
    return None


def _rows_differ(values: Sequence[Array]) -> bool:
    """Whether these rows' outputs differ from one another: equal ones would hide a mix-up."""
    first = values[0]
    return any(not compare(value, first).ok for value in values[1:]) and (
        first.dtype.kind != "f" or any(bool(np.isfinite(value).any()) for value in values)
    )


def _memory_error(error: ServeError) -> str:
    error.__traceback__ = None  # its frames hold outputs of other rows
    return f"runs have too little memory to try it: {error.got}; expected {error.expected}"


def rows(engine: Engine, samples: Sequence[Sample], count: int, scarce: list[str] | None = None) -> list[SingleRun]:
    """Up to `count` valid rows of one shape, different from one another: golden ones first, then drawn ones. Where
    others fail for lack of memory, `scarce` is called."""
    scarce = [] if scarce is None else scarce
    golden = [sample.inputs for sample in samples[:count] if _shapes(sample.inputs) == _shapes(samples[0].inputs)]
    known = run_each(engine.run, golden, scarce) or []
    for size in SIZES[:1] if golden else SIZES:
        random = np.random.default_rng(0)
        made = [draw(engine.inputs, golden, size, random) for _ in range(count - len(golden))]
        drawn = run_each(engine.run, made, scarce)
        if drawn is not None:
            return known + drawn
    return known


def _shapes(feed: Feed) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in feed.items()}


def run_each(run: Run, rows: Sequence[Feed], scarce: list[str]) -> list[SingleRun] | None:
    """Every row in its own run, None if one of them fails; `scarce` is called if memory is missing."""
    try:
        return [(row, run(row)) for row in rows]
    except ServeError as error:
        if error.status in MEMORY:
            scarce.append(_memory_error(error))
        return None


def draw(
    inputs: Sequence[TensorInfo],
    golden: Sequence[Feed],
    size: int,
    random: np.random.Generator,
    sizes: Mapping[str, int] = NONE,
) -> Feed:
    """One row: within the range of the golden rows; without them normal floats and the integers 0 and 1, which are
    valid indices nearly everywhere. `sizes` are those of dimensions by name, `size` that of others that vary."""
    feed = {}
    for info in inputs:
        known = np.concatenate([row[info.name].ravel() for row in golden]) if golden else np.empty(0)
        dims = [1, *(dim if isinstance(dim, int) else size for dim in info.dims[1:])]
        if info.dims and isinstance(info.dims[0], int):
            dims[0] = info.dims[0]
        free = golden[0][info.name].shape if golden else tuple(dims[: len(info.dims)])
        shape = tuple(
            length if counts_rows(axis, info, inputs[0].dims[:1]) else sizes.get(str(dim), length)
            for axis, (dim, length) in enumerate(zip(info.dims, free, strict=True))
        )
        dtype = DTYPES[info.dtype]
        if info.dtype == "BYTES":
            feed[info.name] = random.choice(np.array(known if known.size else ["a", "b"], object), shape)
        elif info.dtype == "BOOL":
            feed[info.name] = random.integers(0, 2, shape).astype(dtype)
        elif dtype.kind in "iu":
            low, high = (known.min(), known.max()) if known.size else (0, 1)
            feed[info.name] = random.integers(low, high, shape, dtype, endpoint=True)
        elif known.size:
            low, high = float(known.min()), float(known.max())
            feed[info.name] = (low + (high - low) * random.random(shape)).astype(dtype)
        else:
            feed[info.name] = random.standard_normal(shape).astype(dtype)
    return feed


def _time(run: Run, row: Feed, now: Callable[[], float]) -> float:
    """Seconds of one run, the median of up to 20."""
    times: list[float] = []
    while len(times) < 20 and sum(times) < 0.05:
        start = now()
        run(row)
        times.append(now() - start)
    return sorted(times)[len(times) // 2]
