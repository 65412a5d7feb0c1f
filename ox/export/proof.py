"""Verification of an exported file: checked, inferred, run on ONNX Runtime, and compared with the model."""

from __future__ import annotations

import json
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from ox import tolerance
from ox.autograd.grad_mode import no_grad
from ox.core.operator import make_tensor
from ox.dtypes import DType, is_floating
from ox.errors import ArgumentError, ExportError, first_line
from ox.export.amplification import amplified
from ox.export.files import Written
from ox.export.large_weights import to_run
from ox.export.quantization.rounding import rounding_tolerance
from ox.export.runtimes import Runtime, open_runtime, refuse_aborting
from ox.graph.contract import PROOF
from ox.graph.ir import Array, Graph, Node
from ox.graph.replay import values
from ox.graph.writer.workarounds import types_of
from ox.graph.writer.write import to_model


@dataclass(frozen=True)
class Case:
    """One input and the outputs of the eager model. `rows` is the batch size, None where no size varies; `in_report`:
    whether the report has a line for it; `sizes`: the other sizes that vary."""

    rows: int | None
    inputs: Mapping[str, Array]
    outputs: Mapping[str, Array]
    in_report: bool = True
    sizes: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """A line of the proof: how far the runtime was from eager, and how far it may be."""

    batch: int | None
    max_abs: float
    allowed: float
    runtime: str
    sizes: Mapping[str, int] = field(default_factory=dict)  # the others that vary

    @property
    def at(self) -> str:
        """``batch 2``, ``batch 2, length 17``, ``the example``."""
        named = [f"batch {self.batch}"] if self.batch is not None else []
        return ", ".join([*named, *(f"{dim} {size}" for dim, size in self.sizes.items())]) or "the example"


@dataclass(frozen=True)
class Proof:
    rows: tuple[Row, ...]
    runtime: str
    note: str | None
    failed: tuple[str, ...] = ()  # what was further off than allowed, where that only warns

    def to_metadata(self) -> dict[str, str]:
        """The entry of `metadata_props` that says what was proven, and how."""
        rows = [
            {"batch": r.batch, "sizes": dict(r.sizes), "max_abs": r.max_abs, "allowed": r.allowed} for r in self.rows
        ]
        return {PROOF: json.dumps({"runtime": self.runtime, "rows": rows, "failed": list(self.failed)})}


@dataclass(frozen=True)
class ProofOptions:
    """What the user wants of a proof, ``proof={"rtol": 1e-3, "sizes": [{"length": 512}], "warn": True}``.

    Attributes:
        atol, rtol: the largest difference that is allowed, absolute and relative to the largest value of an output;
            what is not given is that of `ox.tolerance`.
        sizes: further sizes at which the file is run.
        warn: an output that is too far off is a warning, and the file is written.

    Raises:
        ArgumentError: another key, or a value of another kind.
    """

    atol: float | None = None
    rtol: float | None = None
    sizes: Sequence[Mapping[str, int]] = ()
    warn: bool = False

    @classmethod
    def read(cls, given: Any) -> ProofOptions:
        """From what `ox.export.save` takes: None, ``"warn"`` or a dict."""
        if given is None or given == "warn":
            return cls(warn=given == "warn")
        known = {"atol", "rtol", "sizes", "warn"}
        if not isinstance(given, Mapping) or not set(given) <= known:
            raise ArgumentError(
                "there is no such proof", expected=f"'warn', or a dict of {', '.join(sorted(known))}", got=str(given)
            )
        options = cls(**given)
        sizes = options.sizes if isinstance(options.sizes, (list, tuple)) else [options.sizes]
        each_is = [isinstance(one, Mapping) and all(type(n) is int and n > 0 for n in one.values()) for one in sizes]
        if not all(each_is) or sizes is not options.sizes:
            raise ArgumentError(
                "the sizes of a proof are a list of dicts of whole numbers from 1 on",
                expected="[{'length': 512}, ...]",
                got=str(options.sizes),
            )
        for each in (options.atol, options.rtol):
            if each is not None and not (isinstance(each, (int, float)) and each >= 0):
                raise ArgumentError("a tolerance is a number from 0 on", got=repr(each))
        return options

    @property
    def strict(self) -> bool:
        """Whether the user has said what is allowed."""
        return self.atol is not None or self.rtol is not None

    def judged(self, difference: tolerance.Difference, expected: Array) -> tolerance.Difference:
        """The difference, with what is allowed here."""
        if not self.strict or expected.dtype not in tolerance.TABLE:
            return difference
        finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
        usual = tolerance.rule(expected.dtype)
        absolute = usual[0] if self.atol is None else self.atol
        relative = usual[1] if self.rtol is None else self.rtol
        return replace(difference, allowed=absolute + relative * float(finite.max(initial=0.0)))


USUAL = ProofOptions()


def prove(written: Written, graph: Graph, opset: int, cases: Sequence[Case], options: ProofOptions = USUAL) -> Proof:
    """Check a file and run it.

    Raises:
        ExportError: the checker refuses it, the runtime refuses it, or an output is further from eager's than
            `ox.tolerance` allows; then names the first operator whose values part, and the user's line.
    """
    with to_run(written, graph) as (path, weights):
        _check(path, graph)
        runtime = open_runtime(path, graph, opset, weights)
    through = allowance(graph, cases)
    rows, failed = [], []
    for case in cases:
        refuse_aborting(graph, case.inputs)
        got = _run(runtime, case)
        difference, name = _worst(got, case.outputs, through, options)
        if not difference.ok and not options.strict:
            difference, name = _worst_amplified(graph, case, got, through)
        if not difference.ok:
            mismatch = _mismatch(graph, opset, case, difference, name, runtime)
            if not options.warn:
                raise mismatch
            warnings.warn(str(mismatch), stacklevel=4)
            failed.append(f"{mismatch.what}: {mismatch.got}")
        if case.in_report:
            rows.append(Row(case.rows, difference.max_abs, difference.allowed, runtime.name, case.sizes))
    return Proof(tuple(rows), runtime.name, runtime.note, tuple(failed))


def check_finite(runs: Sequence[Mapping[str, Array]], hint: str) -> None:
    """Raise ExportError where an output has no finite number in any run: every file would be found equal to it."""
    for name, first in runs[0].items() if runs else ():
        every = [run[name] for run in runs]
        if is_floating(first.dtype) and first.size and not any(np.isfinite(output).any() for output in every):
            kind = "NaN" if all(np.isnan(output).all() for output in every) else "NaN or infinite"
            raise ExportError(f"'{name}' is {kind} for every example, so nothing can be proven", hint=hint)


def _check(path: Path, graph: Graph) -> None:
    # the branch of an If that the sizes never take may contradict them, which the full check does not forgive
    branches = any(node.op_type == "If" for node in graph.all_nodes())
    try:
        onnx.checker.check_model(path, full_check=not branches)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError("onnx.checker refuses the file", got=str(error).strip()) from error


def allowance(graph: Graph, cases: Sequence[Case]) -> tolerance.Through:
    """What the outputs of a graph came through: integers, or the narrowest of several types."""
    rounding = rounding_tolerance(graph, [(case.inputs, case.outputs) for case in cases])
    return narrowest(graph) if rounding is None else rounding


def _run(runtime: Runtime, case: Case) -> dict[str, Array]:
    try:
        return runtime.run(case.inputs)
    except Exception as error:  # runtimes share no base class of exceptions
        raise ExportError(f"{runtime.name} cannot run the file at batch {case.rows}", got=first_line(error)) from error


def narrowest(graph: Graph) -> DType | None:
    """The narrowest type that values of the graph have, where there are several floating ones; else None."""
    types = types_of(graph) & tolerance.TABLE.keys()
    return max(types, key=tolerance.TABLE.__getitem__) if len(types) > 1 else None


def _worst(
    got: Mapping[str, Array], expected: Mapping[str, Array], through: tolerance.Through, options: ProofOptions = USUAL
) -> tuple[tolerance.Difference, str]:
    """The output that is furthest beyond, or nearest to, what is allowed."""
    found = [(options.judged(tolerance.compare(got[name], y, through), y), name) for name, y in expected.items()]
    return max(found, key=lambda pair: (not pair[0].ok, pair[0].max_abs))


def _worst_amplified(
    graph: Graph, case: Case, got: Mapping[str, Array], through: tolerance.Through
) -> tuple[tolerance.Difference, str]:
    """The same, where each element may be off as far as the graph amplifies rounding."""
    moved = amplified(graph, case.inputs)
    found = [
        (
            tolerance.compare(got[name], y, through)
            if name not in moved or got[name].shape != y.shape or got[name].dtype != y.dtype
            else tolerance.compare_amplified(got[name], y, moved[name], through),
            name,
        )
        for name, y in case.outputs.items()
    ]
    return max(found, key=lambda pair: (not pair[0].ok, pair[0].max_abs))


def _mismatch(
    graph: Graph, opset: int, case: Case, difference: tolerance.Difference, name: str, runtime: Runtime
) -> ExportError:
    what = f"{runtime.name} gives another '{name}' than the model"
    expected, got = f"max |Δ| at most {difference.allowed:.1e}", f"{difference.max_abs:.1e} at batch {case.rows}"
    node, far = first_difference(graph, opset, case)
    if node is not None:
        return ExportError(
            what,
            where=node.place or None,
            expected=expected,
            got=f"{got}; the values part first at {node.op_type} ({node.name}), by {far:.1e}",
            hint="a float64 model separates rounding from defects; a defect of an operator is ox's or the runtime's",
        )
    with no_grad():
        known = values(graph, [make_tensor(case.inputs[v.name]) for v in graph.inputs])
    replayed, _ = _worst({v.name: known[v].array for v in graph.outputs}, case.outputs, narrowest(graph))
    if not replayed.ok:
        hint = "the same outputs for the same inputs: no state that changes with a call, no number that is read from "
        hint += "an input (.array, NumPy), and no randomness in eval mode, but with save(..., seed='seed')"
        return ExportError(what, expected=expected, got=f"{got}; the recorded graph gives another too", hint=hint)
    hint = "report it to the runtime: its fused operators part where its single ones do not"
    return ExportError(what, expected=expected, got=f"{got}; no single operator parts", hint=hint)


LARGEST_BISECT = 1 << 30  # bytes of weights; above, the search would need them twice more in memory


def first_difference(graph: Graph, opset: int, case: Case) -> tuple[Node | None, float]:
    """The first node whose values on the runtime part from ox's own, and by how much; None when none does."""
    if sum(a.nbytes for a in graph.constants.values()) > LARGEST_BISECT:
        return None, 0.0
    seen = Graph(graph.inputs, [], graph.nodes, graph.constants, graph.owned, graph.name)
    # in the order in which they run; an input or constant needs no output
    seen.outputs = [v for node in graph.nodes for v in node.outputs if v.name and v.dtype is not None]
    runtime = open_runtime(to_model(seen, opset=opset).SerializeToString(), seen, opset)
    got = _run(runtime, case)
    with no_grad():
        known = values(graph, [make_tensor(case.inputs[v.name]) for v in graph.inputs])
    for node in graph.nodes:
        for v in node.outputs:
            if v.name in got:
                difference = tolerance.compare(got[v.name], known[v].array, narrowest(graph))
                if not difference.ok:
                    return node, difference.max_abs
    return None, 0.0
