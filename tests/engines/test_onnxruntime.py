"""What only the engine ONNX Runtime does."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox import ops
from ox.devices import node_session
from ox.engines import find
from ox.engines.engine import Task
from ox.errors import DeviceError
from ox.graph.record.recording import record

pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")


def test_a_missing_kernel_names_the_operator_and_the_line() -> None:
    kernel = ox.ones(1, 1, 2, 2).double()
    graph = record(lambda x: ops.Conv(x, kernel).sin(), {"x": ox.ones(1, 1, 3, 3).double()})
    with pytest.raises(DeviceError, match="does not take the graph") as caught:
        find("onnxruntime").build(Task(graph))
    assert "Conv" in str(caught.value) and "test_onnxruntime.py" in str(caught.value)


def test_dropout_draws_the_same_numbers() -> None:
    """The generator's counter is state like any other."""
    generator = ox.random.default_generator
    ox.manual_seed(3)
    start = generator.counter.numpy().copy()
    graph = record(
        lambda x, counter: {"y": ox.nn.functional.dropout(x, 0.4), "counter.next": generator.counter},
        {"x": ox.ones(64), "counter": generator.counter},
    )
    run = find("onnxruntime").build(Task(graph, {graph.outputs[1]: graph.inputs[1]}))
    ox.manual_seed(3)
    counter = start.copy()
    for _ in range(3):
        eager = ox.nn.functional.dropout(ox.ones(64), 0.4).numpy()
        np.testing.assert_array_equal(run([np.ones(64, np.float32), counter])[0], eager)
    assert counter == generator.counter.numpy()


def test_float64_keeps_its_digits() -> None:
    graph = record(lambda x: (x.softmax(-1) @ x.t()).tanh(), {"x": ox.randn(4, 4).double()})
    x = np.random.default_rng(0).standard_normal((4, 4))
    e = np.exp(x - x.max(-1, keepdims=True))
    np.testing.assert_allclose(
        find("onnxruntime").build(Task(graph))([x])[0], np.tanh(e / e.sum(-1, keepdims=True) @ x.T), rtol=1e-12
    )


def test_a_forked_child_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    run = find("onnxruntime").build(Task(record(lambda x: x + 1, {"x": ox.ones(2)})))
    monkeypatch.setattr(node_session, "forked", True)
    with pytest.raises(DeviceError, match="forked"):
        run([np.ones(2, np.float32)])
