"""ox train --ray, Ray Datasets and ox sweep --ray, on a Ray cluster in the memory of this machine."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import ox

RECIPE = '''
"""One weight that should become 3."""

import ox
from ox import nn
from ox.data import TensorDataset

defaults = {"epochs": 3, "batch_size": 8, "lr": 0.3}
loss = nn.MSELoss()


def data():
    x = ox.arange(32).reshape(32, 1) / 32
    part = TensorDataset(x, 3 * x)
    return part, part


def model():
    return nn.Linear(1, 1, bias=False)


def optimizer(model, lr):
    return ox.optim.SGD(model.parameters(), lr=lr)
'''


@pytest.fixture(scope="module")
def results(run_script: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("local")
    (folder / "weight.py").write_text(RECIPE)
    lines = run_script("local_runs.py", folder)
    return {line["name"]: line for line in lines} | {"folder": folder}


@pytest.mark.slow
def test_a_recipe(results: dict[str, Any]) -> None:
    """Its run folder is that of ox train: two ranks, the result, and no storage of Ray's."""
    folder: Path = results["folder"] / results["recipe"]["folder"]
    assert results["recipe"]["result"]["epochs"] == 1
    assert not (folder / "ray").exists()
    run = ox.train.find(folder)
    assert run.config["machine"]["processes"] == 2 and run.options.epochs == 1
    assert run.config["run"]["command"] == "local_runs.py"  # not that of Ray's worker
    recipe, model = ox.train.restore(folder)
    assert recipe.name == "weight" and model.weight.shape == (1, 1)


@pytest.mark.slow
def test_a_dataset(results: dict[str, Any]) -> None:
    """Each row goes to one worker, in every epoch."""
    epochs = results["dataset"]["epochs"]
    for shares in epochs:
        assert len(shares) == 2 and all(shares)
        assert sorted([*shares[0], *shares[1]]) == [2.0 * row for row in range(40)]
    dataset, column = results["dataset"]["problems"]
    assert "no dataset 'other'" in dataset and "no column 'z'" in column and "expected 'x', 'y'" in column


@pytest.mark.slow
def test_a_sweep(results: dict[str, Any]) -> None:
    sweep = results["sweep"]
    assert sweep["states"].count("complete") >= 1 and set(sweep["states"]) <= {"complete", "pruned"}
    run = ox.train.find(results["folder"] / sweep["best"])
    assert run.result is not None and run.options.lr == sweep["lr"] == 0.3
    assert run.config["run"]["command"] == "local_runs.py"


@pytest.mark.parametrize("command", [["train", "digits"], ["sweep", "digits", "lr=1,2"]])
def test_nobody_listens(command: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """One clear error, at once, and nothing is written."""
    pytest.importorskip("ray.train", reason='Ray is not installed: pip install "ox-onnx[ray]"')
    from ox_cli.main import main

    assert main([*command, "--out", str(tmp_path / "out"), "--ray", "127.0.0.1:1"]) == 1
    assert "nobody answers at 127.0.0.1:1 (time limit 10 s)" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()
