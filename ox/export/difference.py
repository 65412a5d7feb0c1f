"""`ox.export.diff`: how two files differ, in what they say and in the numbers they give."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
from onnx import numpy_helper

from ox import tolerance
from ox.errors import ExportError, OxError, first_line
from ox.export.drawn_inputs import runnable
from ox.export.model_runtimes import open_model
from ox.export.proof import check_finite
from ox.export.summary import Summary, inspect
from ox.graph.contract import Contract, TensorInfo
from ox.graph.reader.model_file import metadata_of
from ox.graph.reader.source import read_model

MOST_SHOWN = 8  # weights that are listed one by one


@dataclass(frozen=True)
class Difference:
    """What differs, a line each: what, in the first file, in the second. `numbers`: how far the outputs are apart, by
    name; None where they could not be compared, and `note` says why."""

    lines: tuple[tuple[str, str, str], ...]
    numbers: Mapping[str, tolerance.Difference] | None
    note: str | None = None

    @property
    def same(self) -> bool:
        """Whether nothing differs, except outputs within `ox.tolerance`."""
        return not self.lines and self.numbers is not None and all(each.ok for each in self.numbers.values())

    def __str__(self) -> str:
        lines = [f"{what}: {first} → {second}" for what, first, second in self.lines]
        for name, each in (self.numbers or {}).items():
            lines.append(f"numbers of {name}: max |Δ| {each.max_abs:.1e}, at most {each.allowed:.1e}")
        return "\n".join([*lines, *([f"numbers not compared: {self.note}"] if self.note else [])])


def diff(a: str | os.PathLike[str], b: str | os.PathLike[str]) -> Difference:
    """Compare two ONNX files: opset, inputs and outputs, operators, weights, metadata, and the outputs in ONNX Runtime
    for the same inputs (drawn at batch 1, 2 and 7).

    Raises:
        LoadError: a file is missing, damaged, or not an ONNX file.
    """
    first, second = inspect(a), inspect(b)
    lines = [("opset", str(first.opset), str(second.opset))] if first.opset != second.opset else []
    for kind in ("inputs", "outputs"):
        lines += _changed(kind[:-1], *({i.name: str(i) for i in getattr(s, kind)} for s in (first, second)))
    counts = [Counter(s.nodes) for s in (first, second)]
    lines += _changed("operator", *({name: str(n) for name, n in each.items()} for each in counts))
    models = [read_model(path) for path in (a, b)]
    lines += _weights(*({t.name: numpy_helper.to_array(t) for t in m.graph.initializer} for m in models))
    entries = [metadata_of(m) for m in models]
    lines += _changed("metadata", *({key: _short(text) for key, text in each.items()} for each in entries))
    numbers, note = _numbers(Path(a), Path(b), first, second, Contract.from_metadata(entries[0]))
    return Difference(tuple(lines), numbers, note)


def _changed(what: str, first: Mapping[str, str], second: Mapping[str, str]) -> list[tuple[str, str, str]]:
    names = dict.fromkeys([*first, *second])
    found = [(name, first.get(name, "none"), second.get(name, "none")) for name in names]
    return [(f"{what} {name}", one, other) for name, one, other in found if one != other]


def _short(text: str) -> str:
    return (
        text if len(text) <= 60 else f"{text[:40]}... ({len(text):,} characters, checksum {crc32(text.encode()):08x})"
    )


def _weights(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    lines = _changed(
        "weight", *({n: f"{x.dtype} {list(x.shape)}" for n, x in each.items()} for each in (first, second))
    )
    for name, x in first.items():
        y = second.get(name)
        if y is None or y.dtype != x.dtype or y.shape != x.shape or np.array_equal(x, y):
            continue
        apart = np.abs(x.astype(np.float64) - y.astype(np.float64)).max()
        lines.append((f"weight {name}", "", f"max |Δ| {apart:.1e}"))
    if len(lines) > MOST_SHOWN:
        lines[MOST_SHOWN:] = [("weights", "", f"{len(lines) - MOST_SHOWN} more differ")]
    return lines


def _narrower(one: TensorInfo, other: TensorInfo) -> TensorInfo:
    """The input with the sizes that either file fixes."""
    dims = zip_longest(one.dims, other.dims)
    return replace(one, dims=tuple(b if isinstance(b, int) else a for a, b in dims))


def _numbers(
    a: Path, b: Path, first: Summary, second: Summary, contract: Contract
) -> tuple[Mapping[str, tolerance.Difference] | None, str | None]:
    if {(i.name, i.dtype) for i in first.inputs} != {(i.name, i.dtype) for i in second.inputs}:
        return None, "the inputs differ"
    worst: dict[str, tolerance.Difference] = {}
    inputs = [_narrower(info, next(i for i in second.inputs if i.name == info.name)) for info in first.inputs]
    try:
        run, other = open_model(a)[1], open_model(b)[1]
        runs = []
        for _, feed, outputs in runnable(inputs, contract, run):
            try:
                others = other(feed)
            except Exception as error:  # runtimes share no base class of exceptions
                sizes = ", ".join(f"{name} {list(x.shape)}" for name, x in feed.items())
                raise ExportError(f"{b} does not take {sizes}, which {a} takes") from error
            for name in outputs.keys() & others.keys():
                found = tolerance.compare(others[name], outputs[name], contract.through)
                if name not in worst or found.max_abs > worst[name].max_abs:
                    worst[name] = found
            runs.append(outputs)
        check_finite(runs, hint="prove(a, b, inputs=...) compares with inputs that the model is for")
    except OxError as error:
        return None, first_line(error)
    return worst, None
