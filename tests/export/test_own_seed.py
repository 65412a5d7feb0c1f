"""Files that draw a seed of their own at each run."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError

X = np.full((4, 3), 0.5, np.float32)


RECORDED = 4  # calls of `save` before those whose outputs the file must give


def noisy(x: Any) -> Any:
    return x + ox.randn_like(x)


def outputs(path: Path, runs: int, x: Any = X) -> list[Any]:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return [session.run(None, {session.get_inputs()[0].name: x})[0] for _ in range(runs)]


def test_each_run_draws_others(tmp_path: Path) -> None:
    report = ox.export.save(noisy, tmp_path / "m.onnx", X, input_names=["x"], seed=True)
    assert report.dims == "x [batch, 3] → output [batch, 3]"
    assert [row.max_abs < 1e-5 for row in report.rows] == [True] * len(report.rows) != []
    assert report.contract.samples == ()
    onnx.checker.check_model(tmp_path / "m.onnx", full_check=True)
    drawn = [y - 0.5 for y in outputs(tmp_path / "m.onnx", 20, np.full((2000, 3), 0.5, np.float32))]
    assert len({y.tobytes() for y in drawn}) == 20
    assert abs(np.mean(drawn)) < 0.02 and abs(np.std(drawn) - 1) < 0.02
    assert sorted(path.name for path in tmp_path.iterdir()) == ["m.onnx"]


def test_so_does_each_process(tmp_path: Path) -> None:
    ox.export.save(noisy, tmp_path / "m.onnx", X, input_names=["x"], seed=True)
    script = (
        "import onnxruntime as o, numpy as n; print(o.InferenceSession('m.onnx').run(None, {'x': n.ones((1, 3), 'f')}))"
    )
    said = [subprocess.run([sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=True)
            for _ in range(2)]  # fmt: skip
    assert said[0].stdout != said[1].stdout


@pytest.mark.parametrize("external_above", [100, 10**9])
def test_with_weights(tmp_path: Path, external_above: int) -> None:
    class Sampler(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Linear(3, 300)

        def forward(self, x: Any) -> Any:
            return self.mean(x) + ox.rand(1)

    model = Sampler()
    report = ox.export.save(model, tmp_path / "m.onnx", X, seed=True, external_above=external_above)
    assert (report.data is None) == (external_above > 100)
    first, second = (y - model.mean(ox.tensor(X)).detach().numpy() for y in outputs(tmp_path / "m.onnx", 2))
    assert np.ptp(first) < 1e-5 and 0 <= first[0, 0] < 1 and abs(first[0, 0] - second[0, 0]) > 1e-6
    loaded = ox.export.load(tmp_path / "m.onnx")
    assert not np.array_equal(loaded(X).detach().numpy(), loaded(X).detach().numpy())


def test_an_input_and_values_that_have_its_names(tmp_path: Path) -> None:
    def model(seed: Any, seed_drawn: Any) -> Any:
        return seed + seed_drawn * ox.rand_like(seed)

    report = ox.export.save(model, tmp_path / "m.onnx", (X, X), seed=True, output_names=["seed__drawn"])
    assert report.dims.startswith("seed [batch, 3], seed_drawn [batch, 3] → ")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    first, second = (session.run(None, {"seed": X, "seed_drawn": X})[0] for _ in range(2))
    assert not np.array_equal(first, second)


def test_it_is_still_proven(tmp_path: Path) -> None:
    calls = []

    def changes(x: Any) -> Any:
        calls.append(x)
        return x + ox.rand_like(x) + float(len(calls) > RECORDED)

    with pytest.raises(ExportError, match="gives another"):
        ox.export.save(changes, tmp_path / "m.onnx", X, seed=True)
    assert not list(tmp_path.iterdir())


def test_a_model_that_draws_nothing(tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match="draws no random numbers"):
        ox.export.save(nn.Linear(3, 2), tmp_path / "m.onnx", X, seed=True)
