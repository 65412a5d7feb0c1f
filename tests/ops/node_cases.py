"""ONNX's own node cases, as calls of ox operators, and the reasons why some are not run."""

from __future__ import annotations

import os
import pickle
import platform
import re
import tempfile
import warnings
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import onnx
from known import DRAWN, ROUNDED, reason
from onnx import numpy_helper

from ox.cache_folder import cache_folder
from ox.core.operator import OPS
from ox.dtypes import ALL, NARROW
from ox.errors import LoadError, OxError
from ox.graph.backend import prepare
from ox.graph.reader.read import from_model
from ox.tensors.tensor import Tensor, make_tensor
from ox.tolerance import compare

if TYPE_CHECKING:
    from onnx.backend.test.case.test_case import TestCase

COMPUTED = frozenset((*ALL, *NARROW))


@dataclass(frozen=True)
class Case:
    """One call with its right answer: inputs in schema order (None where left out), outputs (None where not asked)."""

    name: str
    op: str
    inputs: tuple[Any, ...]
    attributes: dict[str, Any]
    outputs: tuple[Any, ...]

    def call(self, inputs: Any = None) -> tuple[Any, ...]:
        given = self.inputs if inputs is None else inputs
        tensors = [x if x is None or isinstance(x, Tensor) else make_tensor(x) for x in given]
        result = OPS[self.op](*tensors, outputs=len(self.outputs), **self.attributes)
        return result if isinstance(result, tuple) else (result,)


@dataclass(frozen=True)
class Whole:
    """A case with sequences, optionals or graphs: its model, read and replayed."""

    name: str
    op: str
    model: Any
    inputs: tuple[Any, ...]
    outputs: tuple[Any, ...]

    def call(self) -> tuple[Any, ...]:
        return prepare(self.model).run(self.inputs)


@dataclass(frozen=True)
class Skip:
    """A case that is not run, and why."""

    name: str
    op: str
    reason: str


def operators() -> list[str]:
    """Every ONNX operator that ox has."""
    return sorted(name for name, op in OPS.items() if not op.domain)


@cache
def collected(op: str) -> list[TestCase]:
    """onnx's cases of one node of this operator.

    onnx computes the answers of a case when the module with the case is imported (all: 14 s of CPU, most of it for
    pools). So only the modules that name the operator are imported, and the cases are kept in ox's cache.
    """
    versions = f"onnx-{onnx.__version__}-numpy-{np.__version__}-python-{platform.python_version()}"
    file = cache_folder("tests") / "node_cases" / versions / f"{op}.pickle"
    try:
        stored: list[TestCase] = pickle.loads(file.read_bytes())
    except (OSError, EOFError, pickle.UnpicklingError):
        stored = _computed(op)
        with suppress(OSError):
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as whole:
                whole.write(pickle.dumps(stored))
            os.replace(whole.name, file)
    return [case for case in stored if case.name not in DRAWN]


def _computed(op: str) -> list[TestCase]:
    from onnx.backend.test.case import node

    for path in sorted(Path(node.__file__).parent.glob("*.py")):
        if path.name != "__init__.py" and re.search(rf"\b{op}\b", path.read_text()):
            with warnings.catch_warnings(), np.errstate(all="ignore"):
                warnings.simplefilter("ignore")
                import_module(f"{node.__name__}.{path.stem}")
    return [
        case
        for case in node._NodeTestCases
        # An expanded case is the same again, in other operators, which have cases of their own.
        if "_expanded" not in case.name and len(case.model.graph.node) == 1
        if case.model.graph.node[0].op_type == op and case.model.graph.node[0].domain in ("", "ai.onnx")
    ]


@cache
def cases(op: str) -> tuple[tuple[Case, ...], tuple[Skip, ...]]:
    """The cases of an operator that ox can be asked, and those that it cannot."""
    taken, skipped = [], []
    for case in collected(op):
        for inputs, outputs in case.data_sets:
            made = _read(case, inputs, outputs)
            (skipped if isinstance(made, Skip) else taken).append(made)
    whole = {case.name for case in wholes(op)}
    return tuple(taken), tuple(skip for skip in skipped if skip.name not in whole)


@cache
def wholes(op: str) -> tuple[Whole, ...]:
    """The cases of an operator that are whole models to ox."""
    found = []
    for case in collected(op):
        for inputs, outputs in case.data_sets:
            if isinstance(_read(case, inputs, outputs), Skip):
                try:
                    from_model(case.model)
                except LoadError as error:
                    if "no tensor that ox computes with" in error.what or "does not compute with" in error.what:
                        continue  # of another element type, which is skipped with that reason
                given = tuple(map(_value, inputs))
                found.append(Whole(case.name, op, case.model, given, tuple(map(_value, outputs))))
    return tuple(found)


def _value(value: Any) -> Any:
    """An input or output: an array, a list of them, None for an absent optional."""
    if isinstance(value, onnx.SequenceProto):
        return numpy_helper.to_list(value)
    if isinstance(value, onnx.OptionalProto):
        return numpy_helper.to_optional(value)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    return value


def _read(case: Any, inputs: Any, outputs: Any) -> Case | Skip:
    node, graph = case.model.graph.node[0], case.model.graph
    values: dict[str, Any] = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
    for infos, data in ((graph.input, inputs), (graph.output, outputs)):
        for info, value in zip(infos, data, strict=True):
            array = _array(value)
            if array is None:
                kind = info.type.WhichOneof("value").replace("_type", "").replace("sparse_tensor", "sparse tensor")
                return Skip(case.name, node.op_type, f"{kind} values")
            values[info.name] = array
    for value in values.values():
        if value.dtype not in COMPUTED:
            return Skip(case.name, node.op_type, f"element type {_type_name(value.dtype)}")
    try:
        attributes = {a.name: _attribute(a) for a in node.attribute}
    except TypeError as error:
        return Skip(case.name, node.op_type, str(error))
    given = [values[name] if name else None for name in node.input]
    names = [p.name for p in OPS[node.op_type].schema.inputs] if node.op_type in OPS else []
    for name in [name for name in attributes if name in names]:  # what was an attribute at an older opset
        given += [None] * (names.index(name) + 1 - len(given))
        given[names.index(name)] = np.array(attributes.pop(name), np.int64)
    return Case(
        case.name,
        node.op_type,
        tuple(given),
        attributes,
        tuple(values[name] if name else None for name in node.output),
    )


def _array(value: Any) -> np.ndarray[Any, Any] | None:
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, (np.ndarray, np.generic)):
        return np.asarray(value)
    return None


def _type_name(dtype: Any) -> str:
    return "string" if dtype.kind in "OUS" else re.sub(r"(fnuz|fnu|fn)$", "", str(dtype))


def _attribute(a: onnx.AttributeProto) -> Any:
    value = onnx.helper.get_attribute_value(a)
    if isinstance(value, onnx.TensorProto):
        return numpy_helper.to_array(value)
    if isinstance(value, onnx.GraphProto) or a.type == onnx.AttributeProto.GRAPHS:
        raise TypeError("a graph as attribute")
    if isinstance(value, bytes):
        return value.decode()
    if isinstance(value, list):
        return [v.decode() if isinstance(v, bytes) else v for v in value]
    return value


def wrong(case: Case | Whole, got: tuple[Any, ...]) -> str | None:
    """What is wrong with the outputs of a case; None when they are right by the one tolerance table."""
    for i, expected in enumerate(case.outputs):
        if expected is None:
            continue
        if isinstance(expected, list):
            parts = zip(got[i], expected, strict=False)
            if len(got[i]) != len(expected) or not all(compare(np.asarray(g), np.asarray(e)).ok for g, e in parts):
                return f"output {i} is another sequence"
            continue
        array = got[i].array if isinstance(got[i], Tensor) else np.asarray(got[i])
        if array.dtype != expected.dtype or array.shape != expected.shape:
            return f"output {i} is {array.dtype} {list(array.shape)}, not {expected.dtype} {list(expected.shape)}"
        difference = compare(array, expected)
        if case.name in ROUNDED and difference.max_abs <= 1e-3 * float(np.abs(expected).max()):
            continue
        if not difference.ok:
            return f"output {i} is off by {difference.max_abs:.3g}, allowed {difference.allowed:.3g}"
    return None


def failures(
    op: str, known: dict[str, str], refusal: type[Exception] | None = None
) -> tuple[list[str], int, list[Skip]]:
    """Run every case of an operator under the executor that is on now: what failed, how many ran, what was skipped.

    Args:
        known: cases that the executor itself gets wrong or refuses, with the reason.
        refusal: the exception by which the executor says that it has no kernel.
    """
    taken, skips = cases(op)
    bad, ran, skipped = [], 0, list(skips)
    for case in [*taken, *wholes(op)]:
        if (why := reason(known, case.name)) is not None:
            skipped.append(Skip(case.name, op, why))
            continue
        try:
            problem = wrong(case, case.call())
        except OxError as error:
            if refusal is not None and isinstance(error, refusal):
                skipped.append(Skip(case.name, op, "ONNX Runtime has no kernel"))
                continue
            problem = error.one_line()
        ran += 1
        if problem:
            bad.append(f"{case.name}: {problem}")
    return bad, ran, skipped
