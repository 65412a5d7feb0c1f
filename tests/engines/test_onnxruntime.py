"""What only the engine ONNX Runtime does."""

from __future__ import annotations

import numpy as np
import pytest

import ox
from ox import ops
from ox.core.operator import OPS
from ox.devices.onnxruntime import node_session
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


@pytest.mark.parametrize(("name", "gates"), [("RNN", 1), ("GRU", 3), ("LSTM", 4)])
def test_softplus_in_recurrent_operators_is_refused(name: str, gates: int) -> None:
    """Its exponential overflows above 88: infinity, where ONNX's formula gives the number itself."""
    x, w, r = ox.ones(3, 1, 2), ox.ones(1, gates * 2, 2), ox.ones(1, gates * 2, 2)
    own = {1: ["Softplus"], 3: ["Sigmoid", "Softplus"], 4: ["Sigmoid", "Tanh", "Softplus"]}[gates]
    graph = record(lambda x: OPS[name](x, w, r, hidden_size=2, activations=own)[0], {"x": x})
    with pytest.raises(DeviceError, match="with Softplus, whose exponential overflows above 88"):
        find("onnxruntime").build(Task(graph))
