"""The proof of a training step: several steps on ONNX Runtime end where the eager steps end.

Some numbers of a step are not determined by float32: the gradient of a bias before a normalization is nothing but
rounding, and Adam makes a whole step of it; single weights meet a gradient near 0 by chance. Two correct runtimes
differ there. So eager runs again with parameters that differ in their last digits, and what that changes is allowed on
top of the table of tolerances: for the largest difference of an array, and for the mean, which single weights do not
loosen.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import ml_dtypes
import numpy as np
import onnx

from ox import tolerance
from ox.core.operator import make_tensor
from ox.dtypes import is_floating
from ox.errors import ExportError, first_line
from ox.export.declared_dims import Sizes
from ox.export.example_inputs import Example, recording_sizes
from ox.export.proof import narrowest
from ox.export.runtimes import Runtime, open_runtime
from ox.export.training_step.layout import following
from ox.export.training_step.step import Step
from ox.graph.ir import Array, Graph

STEPS = 4
ROWS = (4, 7)  # batch sizes that were not recorded; more than one row, as batch normalization needs
UNITS = 32  # in the last place: by how much the parameters of the eager runs differ
OTHERS = 3  # eager runs that differ so
FACTOR = 4  # times what eager itself differs by

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Spread:
    """By how much eager itself differs where its parameters differ in their last digits."""

    max_abs: float = 0.0
    mean_abs: float = 0.0

    def widened(self, one: Array, other: Array) -> Spread:
        """The larger of this and the difference of two arrays."""
        largest = tolerance.compare(one, other).max_abs
        return Spread(max(self.max_abs, largest), max(self.mean_abs, mean_abs(one, other)))


def mean_abs(one: Array, other: Array) -> float:
    """The mean difference; infinite where one is not finite and the other is."""
    if one.dtype not in tolerance.TABLE or not one.size:
        return 0.0
    a, b = one.astype(np.float64), other.astype(np.float64)
    with np.errstate(invalid="ignore"):
        delta = np.where((a == b) | (np.isnan(a) & np.isnan(b)), 0.0, np.abs(a - b))
    return float(np.where(np.isnan(delta), np.inf, delta).mean())


@dataclass(frozen=True)
class Chain:
    """Steps from the initial state: what is fed in each, and what eager gave.

    Attributes:
        feeds: batch and learning rates of each step.
        results: loss and metrics of each step; with the first and the last one, the state after it, too.
        spread: of each of them.
    """

    rows: int | None
    feeds: list[Arrays]
    results: list[Arrays]
    spread: list[dict[str, Spread]]

    @property
    def undecided(self) -> list[str]:
        """The arrays that rounding decides: on average, eager itself differs beyond the table."""
        last = zip(self.results[-1].items(), self.spread[-1].values(), strict=True)
        return [name for (name, x), spread in last if spread.mean_abs > tolerance.allowed(x)]


@dataclass(frozen=True)
class StepRow:
    """A line of the proof: the furthest of all results and arrays of the state that rounding does not decide."""

    batch: int | None
    steps: int  # that were taken before it was seen
    name: str
    max_abs: float
    allowed: float
    runtime: str


def proof_sizes(example: Example) -> list[tuple[int | None, Sizes]]:
    """The batch sizes of the proof, with all sizes that may vary: those of the example, then those of the second
    recording. One entry if none may vary."""
    own, other = example.sizes, recording_sizes(example)[1]
    if example.batch is None:
        return [(None, own), (None, other)] if own else [(None, own)]
    return [(rows, {**sizes, example.batch: rows}) for rows, sizes in zip(ROWS, (own, other), strict=True)]


def run_chains(step: Step, example: Example, before: Mapping[str, Array]) -> list[Chain]:
    """Eager steps at two batch sizes, each from the initial state, at learning rates that fall."""
    chains = []
    for rows, sizes in proof_sizes(example):
        feeds = []
        for i in range(STEPS):
            rates = {n: np.asarray(before[n] * (1 - i / (2 * STEPS)), np.float32) for n in step.state.rates}
            feeds.append({**example.cut(sizes, i * (rows or 0)), **rates})
        results = _run(step, feeds, before)
        spread = [dict.fromkeys(each, Spread()) for each in results]
        for seed in range(OTHERS):
            for i, other in enumerate(_run(step, feeds, _last_digits(step, before, seed))):
                spread[i] = {name: spread[i][name].widened(x, results[i][name]) for name, x in other.items()}
        chains.append(Chain(rows, feeds, results, spread))
    return chains


def _run(step: Step, feeds: Sequence[Arrays], before: Mapping[str, Array]) -> list[Arrays]:
    state: Mapping[str, Array] = before
    results: list[Arrays] = []
    for i, feed in enumerate(feeds):
        step.state.load({**state, **feed})
        made = step.run([make_tensor(np.array(feed[name])) for name in step.batch])
        state = step.state.arrays()
        results.append({name: np.array(value.array) for name, value in made.items()})
        if i in (0, len(feeds) - 1):
            results[-1] |= state
    return results


def _last_digits(step: Step, before: Mapping[str, Array], seed: int) -> Arrays:
    """The state with parameters that are moved by up to `UNITS` in their last place."""
    random = np.random.default_rng(seed)
    moved = dict(before)
    for name in step.state.parameters:
        array = before[name]
        if is_floating(array.dtype):
            unit = float(ml_dtypes.finfo(array.dtype).eps)  # type: ignore[no-untyped-call]
            factors = 1 + UNITS * unit * random.uniform(-1, 1, array.shape)
            moved[name] = np.asarray(array * factors).astype(array.dtype)
    return moved


def prove_step(
    path: Path, graph: Graph, opset: int, chains: Sequence[Chain], before: Mapping[str, Array]
) -> tuple[list[StepRow], list[str]]:
    """Check a file and run it. Returns the lines of the proof, and the names of the state that rounding decides.

    Raises:
        ExportError: the checker or ONNX Runtime refuses it, or a result is further from eager's than it may be.
    """
    try:
        onnx.checker.check_model(path, full_check=not any(node.op_type == "If" for node in graph.all_nodes()))
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError("onnx.checker refuses the file", got=str(error).strip()) from error
    runtime = open_runtime(path, graph, opset)
    if runtime.note is not None and runtime.name.startswith("onnx.reference"):
        raise _no_kernel(graph, runtime.note)
    rows = [_prove_chain(runtime, graph, chain, before) for chain in chains]
    # in each chain, for a ReLU at 0 or two equal maxima may part one of them
    return rows, [name for name in chains[0].undecided if all(name in chain.undecided for chain in chains)]


def _prove_chain(runtime: Runtime, graph: Graph, chain: Chain, before: Mapping[str, Array]) -> StepRow:
    through = narrowest(graph)
    fed = [v.name for v in graph.inputs]
    state: dict[str, Array] = dict(before)
    worst: StepRow | None = None
    for i, (feed, expected, spreads) in enumerate(zip(chain.feeds, chain.results, chain.spread, strict=True)):
        try:
            got = runtime.run({name: {**state, **feed}[name] for name in fed})
        except Exception as error:  # runtimes share no base class of exceptions
            at = "" if chain.rows is None else f" at batch {chain.rows}"
            raise ExportError(f"{runtime.name} cannot run the step{at}", got=first_line(error)) from error
        state |= {name: got[following(name)] for name in state if following(name) in got}
        now = {**got, **state}
        for name, array in expected.items():
            mine, spread = now[name], spreads[name]
            difference = tolerance.compare(mine, array, through)
            room = difference.allowed + FACTOR * spread.max_abs
            row = StepRow(chain.rows, i + 1, name, difference.max_abs, room, runtime.name)
            average, most = mean_abs(mine, array), difference.allowed + FACTOR * spread.mean_abs
            if not (row.max_abs <= room and average <= most):
                raise _mismatch(row, ("max", row.max_abs, room) if row.max_abs > room else ("mean", average, most))
            decided = spread.max_abs <= difference.allowed
            if worst is None or (decided and row.max_abs / (room or 1) > worst.max_abs / (worst.allowed or 1)):
                worst = row
    assert worst is not None
    return worst


def _mismatch(row: StepRow, found: tuple[str, float, float]) -> ExportError:
    kind, value, limit = found
    steps = f"{row.steps} step" + "s" * (row.steps != 1)
    return ExportError(
        f"{row.runtime} gives another '{row.name}' than eager after {steps}",
        expected=f"{kind} |Δ| at most {limit:.1e}",
        got=f"{value:.1e} at batch {row.batch}",
        hint="no state besides parameters, buffers, the optimizer's and ox's random numbers: what else changes with a "
        "step is a constant in a graph. If nothing does, report it to the runtime",
    )


def _no_kernel(graph: Graph, note: str) -> ExportError:
    found = re.search(r"node with name '([^']*)'", note)
    node = next((n for n in graph.all_nodes() if found and n.name and found[1].endswith(n.name)), None)
    return ExportError(
        "ONNX Runtime cannot train this model: it lacks a kernel of the step",
        where=(node.place if node else "") or None, got=note, hint="a float32 model",
    )  # fmt: skip
