"""Models with branches and loops as files: written, proven, read, written again, trained."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rows import rows

import ox
from ox import nn
from ox.autograd import grad
from ox.errors import ExportError
from ox.graph.record.recording import record
from ox.graph.replay import replay


def random_rows(count: int, *sizes: int) -> Any:
    return np.random.default_rng(count).standard_normal((count, *sizes)).astype(np.float32)


class Reader(nn.Module):
    """An LSTMCell over the steps, one of two heads, and a loop that scales what comes out."""

    def __init__(self) -> None:
        super().__init__()
        self.cell, self.norm = nn.LSTMCell(4, 5), nn.BatchNorm1d(5)
        self.left, self.right = nn.Linear(5, 2), nn.Linear(5, 2)

    def forward(self, x: Any) -> Any:
        def step(state: Any, row: Any) -> Any:
            state = self.cell(row, state)
            return state, state[0]

        start = ox.zeros(x.shape[0], 5)
        (h, _), steps = ox.scan(step, (start, start), x, dim=1)
        y = ox.cond(x.mean() > 0, lambda: self.left(self.norm(h)), lambda: self.right(h).tanh())
        count, y = ox.while_loop(lambda n, y: (y * y).sum() < 5, lambda n, y: (n + 1, y * 1.5), (0, y))
        return y, steps.transpose(0, 1), count


CALLS = (random_rows(4, 3, 4), -abs(random_rows(3, 2, 4)), abs(random_rows(2, 1, 4)))
DIMS = {"x": ["n", "t", 4]}


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> tuple[Reader, Path]:
    ox.manual_seed(0)  # where training makes the loop turn once more, what comes out jumps, and with it the loss
    model = Reader()
    path = tmp_path_factory.mktemp("control") / "reader.onnx"
    report = ox.export.save(model, path, random_rows(8, 3, 4), dims=DIMS)
    assert str(report.dims) == "x [n, t, 4] → output_0 [n, 2], output_1 [n, t, 5], output_2 []"
    return model.eval(), path


def test_saved_again_it_is_the_same_file(file: tuple[Reader, Path], tmp_path: Path) -> None:
    ox.export.save(ox.export.load(file[1]), tmp_path / "again.onnx", random_rows(8, 3, 4), dims=DIMS)
    assert onnx.load(tmp_path / "again.onnx").graph == onnx.load(file[1]).graph


def _gradients(model: Any, x: Any) -> dict[str, Any]:
    x = x.detach().requires_grad_()
    names, parameters = zip(*model.named_parameters(), strict=True)
    y, steps, count = model(x)
    found = grad((y * y).sum() + steps.sum(), [x, *parameters], materialize_grads=True)
    return {"y": y.detach(), "count": count, **{f"d {n}": g for n, g in zip(("x", *names), found, strict=True)}}


def test_a_loaded_file_has_the_gradients_of_the_model(file: tuple[Reader, Path]) -> None:
    model, loaded = file[0], ox.export.load(file[1])
    constants = dict([*loaded.named_parameters(), *loaded.named_buffers()])
    step = record(
        lambda x: _gradients(loaded, x), {"x": ox.from_numpy(CALLS[0])}, dims={"x": ["n", "t", 4]}, constants=constants
    )
    for call in CALLS:
        expected = _gradients(model, ox.from_numpy(call))
        recorded = dict(zip([v.name for v in step.outputs], replay(step, [ox.from_numpy(call)]), strict=True))
        for got in (_gradients(loaded, ox.from_numpy(call)), recorded):
            for name, value in expected.items():
                np.testing.assert_allclose(got[name].numpy(), value.numpy(), rtol=1e-4, atol=1e-4, err_msg=name)


def test_a_loaded_file_trains(file: tuple[Reader, Path], tmp_path: Path) -> None:
    loaded = ox.export.load(file[1]).train()
    optimizer = ox.optim.SGD(loaded.parameters(), lr=0.05)
    x, losses = ox.from_numpy(abs(random_rows(16, 3, 4))), []
    for _ in range(4):
        loss = (loaded(x)[0] - 1).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses == sorted(losses, reverse=True)
    ox.export.save(loaded.eval(), tmp_path / "trained.onnx", random_rows(8, 3, 4), dims=DIMS)


def _many(x: Any) -> Any:
    y = x * 2
    return ox.cond(x.sum() > 0, lambda: (y, y, x), lambda: (x, x * 3, x))


def _dicts(x: Any) -> Any:
    def step(d: Any) -> Any:  # the entries in another order than they came in
        return ({"h": (d["h"][0] * 2, [d["h"][1][0] + 1]), "count": d["count"] + 1},)

    (d,) = ox.while_loop(lambda d: d["count"] < 3, step, ({"count": 0, "h": (x, [x * 2])},))
    return d["h"][0] + d["h"][1][0]


def _written(x: Any) -> Any:
    def branch() -> Any:
        y = x * 1
        y[:, 1] += 2
        return y.mul_(2)

    return ox.cond(x.sum() > 0, branch, lambda: x)


@rows(
    "function",
    [
        lambda x: ox.cond(x.sum() > 0, lambda: x, lambda: x),
        lambda x: ox.cond(x.sum() > 0, lambda: ox.ones(3), lambda: ox.zeros(3)),
        lambda x: x * ox.cond(x.sum() > 0, lambda: 2.0, lambda: 3.0),
        _many,
        lambda x: ox.cond(x.sum() > 0, lambda a, b: a * b, lambda a, b: a + b, (x, 2)),
        lambda x: ox.cond(x.sum() > 0, lambda d: d["a"] * d["b"][0], lambda d: d["a"], ({"a": x, "b": (x, 1)},)),
        _dicts,
        _written,
        lambda x: x + ox.ops.Loop(x.shape[0], None, x[0] * 0, body=lambda i, go, h: (go, h + x[i]))[0],
        lambda x: ox.while_loop(lambda i, h: i < x.shape[0], lambda i, h: (i + 1, h + x[i]), (0, x[0] * 0))[1] + x,
        lambda x: ox.while_loop(lambda i, h: i > 0, lambda i, h: (i - 1, h + 1), (x.shape[0], x))[1],
    ],
)
def test_what_can_be_exported(function: Callable[..., Any], tmp_path: Path) -> None:
    ox.export.save(function, tmp_path / "m.onnx", random_rows(8, 4))


def test_random_numbers_inside_are_refused(tmp_path: Path) -> None:
    generator = ox.Generator(1)
    draws = (lambda: ox.rand(4), lambda: ox.randn(4, generator=generator), lambda: nn.functional.dropout(ox.ones(4)))
    for draw in draws:
        with pytest.raises(ExportError, match="random numbers drawn inside") as caught:
            ox.export.save(
                lambda x, d=draw: ox.cond(x.sum() > 0, lambda: x * d(), lambda: x), tmp_path / "m", random_rows(8, 4)
            )
        assert "test_control_flow.py" in (caught.value.where or "")
