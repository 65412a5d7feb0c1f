"""Random numbers of a file come from an input of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError

F = nn.functional
X = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)


class Sampler(nn.Module):
    """Draws in evaluation, too."""

    def __init__(self) -> None:
        super().__init__()
        self.mean, self.spread = nn.Linear(4, 3), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        noise = ox.randn_like(self.mean(x))
        z = self.mean(x) + noise * (0.5 * self.spread(x)).exp()
        return F.dropout(z, 0.5, True), ox.rand(x.shape[0], 2)


@pytest.mark.parametrize("named", [False, True])
def test_the_numbers_of_a_seed(tmp_path: Path, named: bool) -> None:
    ox.manual_seed(3)
    model = Sampler().eval()
    before = ox.random.get_state()
    example = {"x": X} if named else X
    report = ox.export.save(model, tmp_path / "m.onnx", example, seed="seed")
    assert report.dims == "x [batch, 4], seed [] → output_0 [batch, 3], output_1 [batch, 2]"
    assert ox.random.get_state() == before
    session, seen = ort.InferenceSession(tmp_path / "m.onnx"), []
    for seed, rows in ((0, 6), (7, 3), (-5, 11)):
        x = np.resize(X, (rows, 4))
        got = session.run(None, {"x": x, "seed": np.array(seed)})
        ox.manual_seed(seed)
        for a, b in zip(got, model(ox.from_numpy(x)), strict=True):
            np.testing.assert_allclose(a, b.detach().numpy(), atol=1e-5)
        seen.append(got[1][0].tolist())
    assert seen[0] != seen[1] != seen[2]


def test_with_gradients_and_further_examples(tmp_path: Path) -> None:
    def energy(x: Any) -> Any:
        return (x * ox.rand_like(x)).square().sum(-1)

    further = [np.concatenate([X, X])]
    ox.export.save(energy, tmp_path / "m.onnx", X, examples=further, gradient="x", seed="draw")
    _, gradient = ort.InferenceSession(tmp_path / "m.onnx").run(None, {"x": X, "draw": np.array(4)})
    ox.manual_seed(4)
    np.testing.assert_allclose(gradient, 2 * X * ox.rand(6, 4).numpy() ** 2, atol=1e-5)


def test_a_model_that_draws_without_it_says_so(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="draws random numbers") as caught:
        ox.export.save(Sampler(), tmp_path / "m.onnx", X)
    assert 'seed="seed"' in str(caught.value.hint)


@pytest.mark.parametrize(
    ("name", "says"), [("x", "an input is called 'x' already"), ("", "name of an input"), (3, "name of an input")]
)
def test_names(tmp_path: Path, name: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says):
        ox.export.save(Sampler(), tmp_path / "m.onnx", X, seed=name)
