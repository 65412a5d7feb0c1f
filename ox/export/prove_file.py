"""`ox.export.prove`: does a file give the numbers that it should, in a runtime?"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ox import tolerance
from ox.autograd.grad_mode import no_grad
from ox.errors import ArgumentError, ExportError, first_line
from ox.export.drawn_inputs import Feed, runnable
from ox.export.input_file import read_inputs
from ox.export.model_runtimes import Run, open_model
from ox.export.proof import Row, check_finite
from ox.export.summary import inspect
from ox.functions.creation import tensor
from ox.graph.contract import Array, Contract
from ox.graph.reader.model_file import metadata_of, parse


@dataclass(frozen=True)
class FileProof:
    """What was compared: a file in a runtime, with what, and how far they were apart at each batch size."""

    path: Path
    runtime: str
    against: str
    rows: tuple[Row, ...]

    def __str__(self) -> str:
        lines = [f"{self.path} in {self.runtime}, against {self.against}"]
        return "\n".join([*lines, *(f"  {r.at}: max |Δ| {r.max_abs:.1e}, at most {r.allowed:.1e}" for r in self.rows)])


def prove(
    path: str | os.PathLike[str],
    against: str | os.PathLike[str] | Callable[..., Any] | None = None,
    *,
    runtime: str = "onnxruntime",
    inputs: Any = None,
) -> FileProof:
    """Run a file and compare its outputs within `ox.tolerance`.

    Args:
        path: the file.
        against: another file, which runs in ONNX Runtime; a module or function of tensors with the inputs of the file
            in their order; or None for the golden samples in the file, and where there are none for ox's own operators.
        inputs: what to run with, in place of golden samples and random numbers: arrays by input name, the path of an
            .npz file of them, or one array for the only input.
        runtime: ``onnxruntime``, ``openvino``, ``reference`` (onnx.reference) or ``ox``.

    Raises:
        ExportError: the outputs are further apart than allowed, a runtime refuses the file, or an output has no finite
            number in any run.
        ArgumentError: there is no such runtime, or the inputs are not those of the file.
        LoadError: a file is missing or damaged.
    """
    path = Path(path)
    summary = inspect(path)
    contract = Contract.from_metadata(metadata_of(parse(path)))
    name, run = open_model(path, runtime)
    rows: list[Row] = []
    runs: list[dict[str, Array]] = []
    given = None if inputs is None else read_inputs(inputs, summary.inputs)
    if against is None and contract.samples and given is None:
        shown = f"its {len(contract.samples)} golden samples"
        pairs: Iterator[tuple[int | None, Feed, dict[str, Array]]] = (
            (1, dict(s.inputs), dict(s.outputs)) for s in contract.samples
        )
    else:
        shown, expected = _expected(against, path, summary.inputs, [o.name for o in summary.outputs])
        pairs = runnable(summary.inputs, contract, expected) if given is None else _given(given, path, expected)
    through = contract.through
    for batch, feed, outputs in pairs:
        try:
            got = run(feed)
        except Exception as error:  # runtimes share no base class of exceptions
            if against is None and batch == 1 and not contract.samples and given is None:
                continue  # ox reflects one row alone, and ONNX Runtime does not; what fails always fails at others, too
            raise ExportError(f"{name} cannot run {path}", got=first_line(error)) from error
        for output, y in outputs.items():
            if output not in got:
                raise ExportError(f"{path} has no output '{output}'", expected=", ".join(outputs), got=", ".join(got))
            difference = tolerance.compare(np.asarray(got[output]), y, through)
            if not difference.ok:
                raise ExportError(
                    f"{path} in {name} gives another '{output}' than {shown}",
                    expected=f"max |Δ| at most {difference.allowed:.1e}",
                    got=f"{difference.max_abs:.1e}" + ("" if batch is None else f" at batch {batch}"),
                )
        worst = max((tolerance.compare(got[o], y, through) for o, y in outputs.items()), key=lambda d: d.max_abs)
        runs.append(outputs)
        rows.append(Row(batch, worst.max_abs, worst.allowed, name))
    check_finite(runs, hint="inputs of numbers that the model is for: inputs=..., --inputs FILE.npz")
    return FileProof(path, name, shown, tuple(rows))


def _given(feed: Feed, path: Path, run: Run) -> Iterator[tuple[int | None, Feed, dict[str, Array]]]:
    """One run with these inputs; its batch is their first size, where that is one."""
    first = {x.shape[0] if x.ndim else None for x in feed.values()}
    try:
        yield first.pop() if len(first) == 1 else None, feed, run(feed)
    except Exception as error:  # runtimes share no base class
        raise ArgumentError(f"{path} cannot run with these inputs", got=first_line(error)) from error


def _expected(against: Any, path: Path, inputs: Any, outputs: list[str]) -> tuple[str, Run]:
    """What to compare with, and what gives its outputs by the names of the file."""
    if against is None:
        return "ox's own operators", open_model(path, "ox")[1]
    names = [info.name for info in inputs]
    if isinstance(against, (str, os.PathLike)):
        other = inspect(against)
        if {i.name for i in other.inputs} != set(names):
            raise ArgumentError(
                "the files take other inputs", expected=", ".join(names), got=", ".join(i.name for i in other.inputs)
            )
        return str(against), open_model(Path(against))[1]
    if not callable(against):
        raise ArgumentError("against is a file, or a module or function", got=type(against).__name__)

    def run(feed: Feed) -> dict[str, Array]:
        with no_grad():
            result = against(*(tensor(feed[name]) for name in names))
        several = list(result.values()) if isinstance(result, dict) else result
        several = several if isinstance(several, (tuple, list)) else [several]
        return {name: np.asarray(x.numpy()) for name, x in zip(outputs, several, strict=True)}

    return type(against).__name__, run
