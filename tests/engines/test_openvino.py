"""What only the engine OpenVINO does."""

from __future__ import annotations

import builtins
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from recorded_steps import Step

import ox
from ox import ops, tolerance
from ox.dtypes import bfloat16
from ox.engines import find
from ox.engines.engine import Task
from ox.errors import ArgumentError, BoundsError, DeviceError
from ox.graph.record.recording import record
from ox.graph.replay import replay
from ox.installation import install_command

pytest.importorskip("openvino", reason="openvino is not installed")


def test_bfloat16_where_asked() -> None:
    """The step in bfloat16 stays near the one in float32, and the state float32."""
    step = Step("LeNet", "SGD with momentum")
    run = find("openvino", precision="bfloat16").build(Task(step.graph, step.updates()))
    assert "in bfloat16" in run.explain()[0]
    state = {key: t.array.copy() for key, t in step.state.items()}
    for _ in range(3):
        x, y = step.arrays()
        loss = run([x, y, *state.values()])[0]
        eager = step.eager(ox.from_numpy(x), ox.from_numpy(y)).detach().numpy()
        assert tolerance.compare(loss, eager, bfloat16).ok
    assert {a.dtype for a in state.values()} == {t.array.dtype for t in step.state.values()}


SIGNALLED = """
import gc, os, signal, sys, threading
import numpy as np, ox
from ox.engines.openvino import open_file

held = [open_file(sys.argv[1])[1]]
held[0]({"x": np.ones((2, 3), np.float32)})
thread = threading.Thread(target=lambda: (held.clear(), gc.collect()))  # the last who knows of it
thread.start()
thread.join()
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
"""


def test_a_signal_after_another_thread_has_let_go(tmp_path: Path) -> None:
    """OpenVINO frees the stack on which signals run with its last Core."""
    ox.export.save(ox.nn.Linear(3, 2), tmp_path / "m.onnx", np.ones((2, 3), np.float32), input_names=["x"])
    command = [sys.executable, "-c", SIGNALLED, tmp_path / "m.onnx"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


def test_dropout_draws_the_masks_of_eager_code() -> None:
    """In a whole step, whose counter moves by the size of what comes before the dropout."""
    model = ox.nn.Sequential(ox.nn.Linear(6, 5), ox.nn.Dropout(0.4), ox.nn.ReLU(), ox.nn.Linear(5, 2))
    optimizer = ox.optim.SGD(model.parameters(), 0.1)
    x, kept = ox.randn(4, 6), {name: value.clone() for name, value in model.state_dict().items()}

    def step() -> ox.Tensor:
        optimizer.zero_grad()
        loss: ox.Tensor = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    losses = []
    for run in (step, ox.compile(step, backend="openvino", fullgraph=True)):
        model.load_state_dict(kept)
        ox.manual_seed(0)
        losses.append([float(run()) for _ in range(5)])
    np.testing.assert_allclose(losses[1], losses[0], rtol=1e-5)


@pytest.mark.parametrize("layer", [ox.nn.Dropout(0.5), ox.nn.LSTM(6, 5, 2, dropout=0.5)])
def test_layers_with_dropout_run(layer: Any) -> None:
    compiled = ox.compile(layer, backend="openvino", fullgraph=True)
    x = ox.randn(3, 2, 6)
    compiled(x)
    ox.manual_seed(0)
    got = compiled(x)
    ox.manual_seed(0)
    for a, b in zip(*(y if isinstance(y, tuple) else (y,) for y in (got, layer(x))), strict=True):
        if not isinstance(a, tuple):
            assert tolerance.compare(a.detach().numpy(), b.detach().numpy()).ok


def test_float32_is_float32() -> None:
    """Also on processors that have a faster bfloat16."""
    x = ox.randn(64, 64)
    run = find("openvino").build(Task(record(lambda x: x @ x, {"x": x})))
    np.testing.assert_allclose(run([x.array])[0], x.numpy() @ x.numpy(), rtol=1e-4, atol=1e-4)


def test_another_precision_is_refused() -> None:
    with pytest.raises(ArgumentError, match="no precision 'int8'"):
        find("openvino", precision="int8")


REFUSED: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "float64": (lambda x: x - 1, ox.ones(2).double()),
    "uint64": (lambda x: ops.Add(x, x), ox.from_numpy(np.ones(2, np.uint64))),
    "int8": (lambda x: ops.Add(x, x), ox.ones(2).to(ox.int8)),
}


@pytest.mark.parametrize("dtype", REFUSED)
def test_types_that_it_would_get_wrong_are_refused(dtype: str) -> None:
    function, x = REFUSED[dtype]
    with pytest.raises(DeviceError, match=f"does not compute .* right in {dtype}") as caught:
        find("openvino").build(Task(record(function, {"x": x})))
    assert "test_openvino.py" in str(caught.value) and "another engine" in str(caught.value)


def test_norms_are_refused() -> None:
    """It adds 1e-7 to their squares: of a norm of 1e-3 the result is wrong by a seventh."""
    x = ox.tensor([[3e-4, -4e-4]])
    compiled = ox.compile(lambda x: ox.ops.LpNormalization(x, axis=-1), backend="openvino")
    for _ in range(2):
        np.testing.assert_allclose(compiled(x).numpy(), [[0.6, -0.8]], rtol=1e-5)
    assert "where the norm is small" in str(compiled.explain())


def test_large_integers_are_refused() -> None:
    run = find("openvino").build(Task(record(lambda x: x + 1, {"x": ox.tensor([1, 2])})))
    assert run([np.array([3, -4])])[0].tolist() == [4, -3]
    with pytest.raises(BoundsError, match="more than 32 bits"):
        run([np.array([1 << 40, 0])])


@pytest.mark.parametrize("function", [lambda x: x.prod(), lambda x: x.cumprod(0)[-1], lambda x: (x**3)[0]])
def test_products_that_leave_32_bits_are_eager(function: Callable[[Any], Any]) -> None:
    compiled, x = ox.compile(function, backend="openvino"), ox.tensor([100_000, 40_000])
    for _ in range(2):
        assert compiled(x).item() == function(x).item() > 1 << 31
    assert "in int64, which it computes in 32 bits" in str(compiled.explain())


def test_without_openvino_the_error_has_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def missing(name: str, *rest: Any) -> Any:
        if name == "openvino":
            raise ModuleNotFoundError("No module named 'openvino'")
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", missing)
    with pytest.raises(DeviceError, match="OpenVINO is not installed") as caught:
        find("openvino").build(Task(record(lambda x: x + 1, {"x": ox.ones(2)})))
    assert install_command("openvino") in str(caught.value)


@pytest.mark.parametrize("dtype", [np.int8, np.uint16])
def test_small_integers_move(dtype: Any) -> None:
    """It computes them in larger types, but what only moves them is right."""
    move = {"x": ox.from_numpy(np.arange(200, 232).astype(dtype).reshape(2, 4, 2, 2))}
    graph = record(lambda x: ops.Tile(ops.DepthToSpace(x, blocksize=2), ox.tensor([1, 1, 2, 1])), move)
    expected = replay(graph, list(move.values()))[0].numpy()
    np.testing.assert_array_equal(find("openvino").build(Task(graph))([move["x"].numpy()])[0], expected)
