"""Runs that fail: whose fault it is, and what the client is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper
from rows import rows

from ox.errors import ServeError
from ox.serve.runtime.runtime_error import reason, run_failure
from ox.serve.runtime.session import Engine
from ox.serve.runtime.source import read

F, INT, S = TensorProto.FLOAT, TensorProto.INT64, TensorProto.STRING
WORDS = ("onnxruntime", "ONNXRuntimeError", "::", ".cc", ".h:", "Status Message", " was false")
X, V = np.zeros(3, np.float32), {"x": (F, [None]), "s": (INT, [None])}
BODY = helper.make_graph(
    [helper.make_node("ConstantOfShape", ["s"], ["o"])], "body", [], [helper.make_tensor_value_info("o", F, None)]
)
ENDS: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "ConstantOfShape": ("ConstantOfShape", {"s": (INT, [None])}, {}),
    "Range": ("Range", {"a": (INT, []), "b": (INT, []), "c": (INT, [])}, {}),
    "Expand": ("Expand", V, {}),
    "Reshape": ("Reshape", V, {}),
    "Pad": ("Pad", V, {}),
    "OneHot": ("OneHot", {"i": (INT, [1]), "n": (INT, [1]), "v": (F, [2])}, {}),
    "If": ("If", {"c": (TensorProto.BOOL, []), "s": (INT, [None])}, {"then_branch": BODY, "else_branch": BODY}),
    "Cast": ("Cast", {"t": (S, [None])}, {"to": F}),
    "Add": ("Add", {"x": (F, [None]), "z": (F, [None])}, {}),
    "TopK": ("TopK", {"x": (F, [None]), "k": (INT, [1])}, {}),
    "Squeeze": ("Squeeze", V, {}),
}


def sizes(*numbers: int) -> dict[str, Any]:
    return {"s": np.array(numbers)}


def ranged(start: int, end: int, step: int) -> dict[str, Any]:
    return {"a": np.array(start), "b": np.array(end), "c": np.array(step)}


TOO_MUCH, NEGATIVE, CANNOT = "needs more memory", "a negative size", "cannot run on this input"
CASES: list[tuple[str, dict[str, Any], int, str, str]] = [
    ("ConstantOfShape", sizes(-1, 3), 400, NEGATIVE, "a negative one for ConstantOfShape"),
    ("ConstantOfShape", sizes(-1, -3), 400, NEGATIVE, "a negative one for ConstantOfShape"),
    ("ConstantOfShape", sizes(2**31, 2**31), 413, TOO_MUCH, "more for ConstantOfShape"),
    ("ConstantOfShape", sizes(2**62, 1), 413, TOO_MUCH, "more for ConstantOfShape"),
    ("ConstantOfShape", sizes(0, 2**62), 413, TOO_MUCH, "more"),
    ("Range", ranged(0, 2**62, 1), 413, TOO_MUCH, "more for Range"),
    ("Range", ranged(-(2**62), 2**62, 1), 413, TOO_MUCH, "more for Range"),
    ("Range", ranged(0, 9, 0), 400, CANNOT, "Range: delta in Range operator can not be zero!"),
    ("Expand", {"x": X, **sizes(-1, 3)}, 400, NEGATIVE, "a negative one for Expand"),
    ("Expand", {"x": X[:1], **sizes(2**62, 1)}, 413, TOO_MUCH, "more for Expand"),
    ("Pad", {"x": X, **sizes(-5, 0)}, 400, NEGATIVE, "a negative one for Pad"),
    ("Pad", {"x": X, **sizes(1)}, 400, CANNOT, "Pad: Pads tensor size should be equal to twice the input dimension"),
    ("OneHot", {"i": np.array([0]), "n": np.array([2**62]), "v": X[:2]}, 413, TOO_MUCH, "more for OneHot"),
    ("If", {"c": np.array(True), **sizes(-3)}, 400, NEGATIVE, "a negative one for ConstantOfShape"),
    ("If", {"c": np.array(True), **sizes(2**62)}, 413, TOO_MUCH, "more for ConstantOfShape"),
    ("Reshape", {"x": X, **sizes(-1, -1)}, 400, CANNOT, "Reshape: At most one dimension can be -1."),
    ("Cast", {"t": np.array(["three"], object)}, 400, CANNOT, "Cast: stod"),
    ("TopK", {"x": X, "k": np.array([5])}, 400, CANNOT, "TopK: k argument [5] should not be greater"),
    ("Add", {"x": X, "z": X[:2]}, 400, CANNOT, "Add: Attempting to broadcast an axis"),
    ("Squeeze", {"x": X, **sizes(0)}, 400, CANNOT, "Squeeze: Dimension of input 0 must be 1 instead of 3"),
]  # fmt: skip


@pytest.fixture(scope="module")
def engines(build: Any) -> dict[str, Engine]:
    made = {}
    for name, (operator, inputs, attributes) in ENDS.items():
        names = ["c"] if operator == "If" else [*inputs]
        outputs = ["y", "i"] if operator == "TopK" else ["y"]
        kind = INT if operator == "Range" else F
        path = build(name, [(operator, names, outputs, attributes)], inputs, {"y": (kind, None)})
        made[name] = Engine(read(path), "cpu", 1, 1)
    return made


@rows(("model", "feed", "status", "what", "got"), CASES)
def test_what_an_operator_refuses_is_the_requests_fault(
    engines: dict[str, Engine], model: str, feed: dict[str, Any], status: int, what: str, got: str
) -> None:
    with pytest.raises(ServeError, match=what) as caught:
        engines[model].run(feed)
    error = caught.value
    assert error.status == status and error.got is not None and error.got.startswith(got)
    assert error.hint and (error.expected or what == CANNOT)
    assert not any(word in error.one_line() for word in WORDS)


class Fail(Exception):
    """As ONNX Runtime's."""


NODE = (
    "[ONNXRuntimeError] : 1 : FAIL : Non-zero status code returned while running Conv node. Name:'c' Status Message: "
)


@pytest.mark.parametrize(
    "text",
    [
        NODE + "CUDNN failure 5000: CUDNN_STATUS_EXECUTION_FAILED ; GPU=0",
        NODE + "CUDA error cudaErrorLaunchFailure: unspecified launch failure",
        NODE + "Exiting due to terminate flag being set to true.",
        "[ONNXRuntimeError] : 1 : FAIL : the thread pool is gone",
    ],
)
def test_what_fails_here_is_our_fault(text: str) -> None:
    assert run_failure(Fail(text)).status == 500


def test_the_reason_of_a_file_that_is_refused() -> None:
    text = (
        "[ONNXRuntimeError] : 1 : FAIL : Load model from /tmp/a.onnx failed:/onnxruntime_src/onnxruntime/core/graph/"
        "model.cc:215 onnxruntime::Model::Model(onnx::ModelProto&&, const onnxruntime::PathString&, const "
        "onnxruntime::ModelOptions&) Unknown model file format version."
    )
    assert reason(text) == "Unknown model file format version."
    assert reason("/onnxruntime_src/onnxruntime/core/a.cc:3 It is wrong (very)") == "It is wrong (very)"
    assert reason("Load model from a failed: no such file\nmore") == "no such file"
    assert (
        reason("CUDA failure 1: invalid argument ; GPU=0 ; hostname=host ; expr=f(x)")
        == "CUDA failure 1: invalid argument"
    )


def test_a_string_of_bytes_is_named() -> None:
    """ONNX Runtime cannot hand it over, in JSON or as binary data."""
    error = run_failure(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "invalid start byte"))
    assert error.status == 400 and "a string that is not UTF-8" in error.what and "0xff" in str(error.got)
