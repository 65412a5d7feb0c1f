"""What a file of an opset that lacks an operator holds in its place: older operators that give the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from rows import rows
from samples import Sample, samples

from ox.core.operator import OPS, as_input
from ox.dtypes import float32, float64
from ox.errors import ExportError
from ox.graph.reader.read import from_model
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.graph.writer.write import to_model
from ox.tolerance import compare

EXPANDED = sorted(name for name, op in OPS.items() if op.expanded is not None)


def written(name: str, sample: Sample, opset: int | None) -> tuple[Any, dict[str, Any], list[Any]]:
    """A call with every size open as a file, its inputs, and what eager gives."""
    schema = OPS[name].schema
    arrays = [x.astype(float32) if x is not None and x.dtype == float64 else x for x in sample.inputs]
    given = {f"in{i}": x for i, x in enumerate(arrays) if x is not None and not schema.input_at(i).host}

    def step(*inputs: Any) -> list[Any]:
        moved = iter(inputs)
        own = [next(moved) if f"in{i}" in given else None if x is None else as_input(x) for i, x in enumerate(arrays)]
        result = OPS[name](*own, outputs=sample.outputs, **sample.attributes)
        return list(result) if isinstance(result, tuple) else [result]

    tensors = {k: as_input(x) for k, x in given.items()}
    dims = {k: [f"{k}_{axis}" for axis in range(x.ndim)] for k, x in given.items()}
    eager = [y.array for y in step(*tensors.values())]
    return to_model(record(step, tensors, dims=dims), opset=opset), given, eager


@rows("opset", [16, 21, None])
@rows("name", EXPANDED)
def test_onnxruntime_and_reading_give_what_the_operator_gives(name: str, opset: int | None) -> None:
    for sample in samples(name):
        if any(x is not None and x.dtype not in (float32, float64, np.int64) for x in sample.inputs):
            continue  # ONNX Runtime has few kernels for the rest
        model, given, eager = written(name, sample, opset)
        assert model.opset_import[0].version == (opset or model.opset_import[0].version)
        session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
        again = replay(from_model(model), [as_input(x) for x in given.values()])
        for got in (session.run(None, given), [y.array for y in again]):
            for a, b in zip(got, eager, strict=True):
                assert compare(a, b).ok, f"{name} {sample.name} {sample.attributes}: {compare(a, b)}"


def test_an_opset_that_has_it_gets_the_operator_itself() -> None:
    sample = samples("CumProd")[0]
    assert not written("CumProd", sample, 26)[0].functions
    assert not written("CumProd", sample, None)[0].functions
    assert [f.name for f in written("CumProd", sample, 25)[0].functions] == ["OxCumProd"]


def test_two_axes_are_two_functions() -> None:
    def step(x: Any) -> Any:
        return OPS["CumProd"](OPS["CumProd"](x, np.array(0)), np.array(1))

    x = as_input(np.arange(1, 7, dtype=float32).reshape(2, 3))
    model = to_model(record(step, {"x": x}), opset=21)
    assert len(model.functions) == 2
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    assert np.allclose(session.run(None, {"x": x.array})[0], x.array.cumprod(0).cumprod(1))


def test_an_axis_that_is_computed_cannot_be_written_out() -> None:
    def step(x: Any, axis: Any) -> Any:
        return OPS["CumProd"](x, axis)

    inputs = {"x": as_input(np.ones((2, 3), float32)), "axis": as_input(np.array(1))}
    with pytest.raises(ExportError, match="CumProd does not exist in opset 21"):
        to_model(record(step, inputs), opset=21)
