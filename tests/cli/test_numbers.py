"""ox eval and ox predict where answers are numbers and no classes."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import ox
from ox import train
from ox_cli.main import main

PAGE = """
import numpy as np
from ox import nn
from ox.data import TensorDataset

x = np.linspace(-1, 1, 60, dtype=np.float32)[:, None]
defaults = {"epochs": 1}
loss = nn.MSELoss()
#metrics

def data():
    parts = [x[i::3] for i in range(3)]
    return tuple(TensorDataset(part, np.concatenate([2 * part, 3 * part], 1)) for part in parts)

def model():
    return nn.Linear(1, 2, bias=False)
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> train.Run:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "line.py").write_text(PAGE.replace("#metrics", "metrics = ['mae', 'r2']"))
    return train.train("line.py")


def test_what_the_page_asks_is_measured(run: train.Run, capsys: pytest.CaptureFixture[str]) -> None:
    _, model = train.restore(run)
    x = np.linspace(-1, 1, 60, dtype=np.float32)[2::3, None]
    with ox.no_grad():
        off = np.abs(model(ox.from_numpy(x)).numpy() - np.concatenate([2 * x, 3 * x], 1)).mean()
    capsys.readouterr()
    assert main(["eval", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert list(found) == ["model", "recipe", "part", "loss", "count", "mae", "r2"]
    assert found["mae"] == pytest.approx(off, rel=1e-5)
    assert main(["eval"]) == 0
    scores = f"loss {found['loss']:.4g}, mae {off:.4g}, r2 {found['r2']:.4g}"
    assert capsys.readouterr().out == f"runs/line-0001 · line, test set: {scores}\n"


def test_an_answer_is_shown_beside_the_truth(run: train.Run, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    assert main(["predict", str(run.folder), "held-back:19", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["truth"] == [2, 3]
    assert len(found["output"]) == 2
    assert main(["predict", str(run.folder), "held-back:19"]) == 0
    assert capsys.readouterr().out.endswith(" · target: [2. 3.]\n")


def test_a_page_that_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "line.py").write_text(PAGE)
    train.train("line.py")
    assert main(["eval", "--json"]) == 0
    found = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert list(found) == ["model", "recipe", "part", "loss", "count", "mae", "rmse", "r2"]
    assert found["count"] == 20 and found["rmse"] == pytest.approx(found["loss"] ** 0.5, rel=1e-5)
