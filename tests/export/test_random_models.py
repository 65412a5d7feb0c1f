"""Models that draw random numbers: refused, or with a seed as an input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest

import ox
from ox import nn
from ox.errors import ArgumentError, ExportError

F = nn.functional
X = np.full((4, 3), 0.5, np.float32)
FIXED = {"x": [4, 3]}  # sizes at which every recording draws the same numbers


class Autoencoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mean, self.spread = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, x: Any) -> Any:
        mean = self.mean(x)
        return mean + ox.randn_like(mean) * self.spread(x).exp()


MODELS: dict[str, Callable[[Any], Any]] = {
    "autoencoder": Autoencoder(),
    "rand": lambda x: x + ox.rand(x.shape[0], 3),
    "dropout": lambda x: F.dropout(x, 0.5, True),
    "two draws": lambda x: ox.randn_like(x) + x * ox.rand_like(x),
    "classes": lambda x: ox.multinomial(x, 2, replacement=True),
    "gumbel": lambda x: F.gumbel_softmax(x),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("dims", [FIXED, None], ids=["fixed", "batch"])
def test_one_draw_is_not_baked_in(tmp_path: Path, name: str, dims: Any) -> None:
    with pytest.raises(ExportError, match="draws random numbers") as caught:
        ox.export.save(MODELS[name], tmp_path / "m.onnx", X, dims=dims and {"x": dims["x"]}, input_names=["x"])
    assert "test_random_models.py" in str(caught.value) and 'seed="seed"' in str(caught.value)
    assert not list(tmp_path.iterdir())


def test_nor_is_an_order(tmp_path: Path) -> None:
    with pytest.raises(ExportError, match="draws random numbers"):
        ox.export.save(lambda x: x[ox.randperm(4)], tmp_path / "m.onnx", X, dims=FIXED)
    with pytest.raises(ExportError, match="baked"):  # it has no form in operators
        ox.export.save(lambda x: x[ox.randperm(4)], tmp_path / "m.onnx", X, dims=FIXED, seed="seed")


def test_a_generator_of_its_own_gives_the_same_numbers_each_time(tmp_path: Path) -> None:
    ox.export.save(lambda x: x + ox.rand(x.shape[0], 3, generator=ox.Generator(3)), tmp_path / "m.onnx", X)
    generator = ox.Generator(3)
    with pytest.raises(ExportError, match="baked"):
        ox.export.save(lambda x: x + ox.rand(4, 3, generator=generator), tmp_path / "m.onnx", X, dims=FIXED)


@pytest.mark.parametrize("name", MODELS)
def test_the_numbers_follow_from_the_seed(tmp_path: Path, name: str) -> None:
    model = MODELS[name]
    state = ox.random.get_state()
    report = ox.export.save(model, tmp_path / "m.onnx", X, input_names=["x"], seed="seed")
    assert ox.random.get_state() == state
    assert report.dims.startswith("x [batch, 3], seed [] → ")
    session = onnxruntime.InferenceSession(tmp_path / "m.onnx", providers=["CPUExecutionProvider"])
    x = X.repeat(5, 0)

    def run(seed: int) -> Any:
        return session.run(None, {"x": x, "seed": np.array(seed)})[0]

    assert np.array_equal(run(5), run(5)) and not np.array_equal(run(5), run(6))
    for seed in (5, -3, 2**40):
        ox.manual_seed(seed)
        with ox.no_grad():
            expected = model(ox.tensor(x)).numpy()
        assert np.allclose(run(seed), expected, atol=1e-5)


def test_a_seed_beside_keywords_and_structures(tmp_path: Path) -> None:
    def noisy(x: Any, pair: Any) -> Any:
        return x + pair[0] * ox.rand_like(pair[1])

    example = {"pair": [X, X], "x": X}
    report = ox.export.save(noisy, tmp_path / "m.onnx", example, seed="key")
    assert [i.name for i in report.contract.inputs] == ["pair_0", "pair_1", "x", "key"]


@pytest.mark.parametrize(("seed", "what"), [("x", "is called 'x' already"), (3, "the name of an input")])
def test_a_wrong_name(tmp_path: Path, seed: Any, what: str) -> None:
    with pytest.raises(ArgumentError, match=what):
        ox.export.save(lambda x: x + ox.rand_like(x), tmp_path / "m.onnx", X, seed=seed)


def test_one_number_as_an_input(tmp_path: Path) -> None:
    """Integers without dimensions; NumPy makes numbers of them, which no runtime takes."""
    ox.export.save(lambda x, n: x * n, tmp_path / "m.onnx", (X, np.array(3)), dims={"x": ["batch", 3], "n": []})
    with pytest.raises(ExportError, match="baked"):
        ox.export.save(lambda x, n: x * float(n.array), tmp_path / "m.onnx", (X, np.array(3)), dims={**FIXED, "n": []})
