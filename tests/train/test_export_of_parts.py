"""Runs whose model is not what is exported, or does not take the samples of its data."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from ox_cli.main import main

GAN = """
import numpy as np
import ox
from ox import nn
from ox.data import TensorDataset
from ox.optim import SGD

defaults = {"epochs": 1, "batch_size": 16, "lr": 0.01}
criterion = nn.BCEWithLogitsLoss()


def model():
    generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    return nn.ModuleDict({"generator": generator, "critic": nn.Linear(2, 1)})


def data():
    return TensorDataset(np.random.RandomState(0).randn(80, 2).astype(np.float32) + 3), None


def optimizer(model, lr):
    return SGD(model["generator"].parameters(), lr=lr), SGD(model["critic"].parameters(), lr=lr)


def step(model, batch, optimizers):
    (real,), (generator, critic) = batch, optimizers
    ones = ox.ones(len(real), 1)
    fake = model["generator"](ox.randn(len(real), 4))
    critic.zero_grad()
    (criterion(model["critic"](real), ones) + criterion(model["critic"](fake.detach()), 1 - ones)).backward()
    critic.step()
    generator.zero_grad()
    loss = criterion(model["critic"](fake), ones)
    loss.backward()
    generator.step()
    return loss, None
"""
EXPORT = """
def export(model):
    return model["generator"]
"""
INPUTS = """
def example_inputs(count):
    return {given}
"""
AUTOENCODER = """
import numpy as np
from ox import nn
from ox.data import TensorDataset

defaults = {"epochs": 1, "batch_size": 16, "lr": 0.01}


def model():
    return nn.Sequential(nn.Linear(6, 2), nn.ReLU(), nn.Linear(2, 6))


def data():
    x = np.random.RandomState(0).randn(80, 6).astype(np.float32)
    return TensorDataset(x[:60]), TensorDataset(x[60:])


def step(model, batch):
    (x,) = batch
    return nn.functional.mse_loss(model(x), x), None
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def trained(capsys: pytest.CaptureFixture[str], text: str) -> str:
    Path("page.py").write_text(text)
    assert main(["train", "page.py"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    "given", ["ox.randn(count, 4)", "[np.zeros((count, 4), np.float32)]", '{"noise": ox.ones(count, 4)}']
)
def test_a_generator_is_exported_and_answers(here: Path, capsys: pytest.CaptureFixture[str], given: str) -> None:
    pytest.importorskip("onnxruntime")
    shown = trained(capsys, GAN + EXPORT + INPUTS.format(given=given))
    assert shown.splitlines()[-1] == "next: ox export model.onnx"
    assert main(["export", "model.onnx"]) == 0
    np.save("noise.npy", np.ones((3, 4), np.float32))
    capsys.readouterr()
    answers = []
    for source in ("model.onnx", "runs/page-0001"):
        assert main(["predict", source, "noise.npy", "--json"]) == 0
        answers.append([json.loads(line) for line in capsys.readouterr().out.splitlines()])
    assert len(answers[0]) == 3
    assert [sorted(a) for a in answers[0]] == [sorted(a) for a in answers[1]]
    if "noise" in given:
        from ox.graph.reader.source import read_model

        assert [value.name for value in read_model("model.onnx").graph.input] == ["noise"]


def test_inputs_by_name_come_in_the_order_of_forward(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    wrapped = """
class Conditional(nn.Module):
    def __init__(self, generator):
        super().__init__()
        self.generator = generator

    def forward(self, noise, shift):
        return self.generator(noise) + shift


def export(model):
    return Conditional(model["generator"])


def example_inputs(count):
    return {"shift": ox.ones(count, 2), "noise": ox.ones(count, 4)}
"""
    trained(capsys, GAN + wrapped)
    assert main(["export", "model.onnx"]) == 0
    from ox.graph.reader.source import read_model

    assert [value.name for value in read_model("model.onnx").graph.input] == ["noise", "shift"]
    np.savez("in.npz", shift=np.zeros((2, 2), np.float32), noise=np.zeros((2, 4), np.float32))
    assert main(["predict", "runs/page-0001", "in.npz"]) == 0


@pytest.mark.parametrize(
    ("text", "lacks"),
    [
        (GAN, "example_inputs(count) that returns the arguments of forward"),
        (GAN + EXPORT, "example_inputs(count) that returns the arguments of forward"),
        (GAN + INPUTS.format(given="ox.randn(count, 4)"), "and export(model), where only a part"),
        (GAN + EXPORT + INPUTS.format(given="ox.randn(count, 9)"), "cannot be called with example_inputs()"),
        (GAN + EXPORT.replace("return ", "return 1 #") + INPUTS.format(given="ox.randn(count, 4)"), "a module"),
    ],
)
def test_what_the_page_lacks_is_said(here: Path, capsys: pytest.CaptureFixture[str], text: str, lacks: str) -> None:
    shown = trained(capsys, text)
    assert "next: ox export" not in shown
    assert "this run cannot be exported yet: " in shown
    assert main(["export", "model.onnx"]) == 1
    error = capsys.readouterr().err
    assert lacks in error
    assert "page.py" in error or "recipe.py:" in error
    assert not Path("model.onnx").exists()


def test_a_page_that_learns_to_export_afterwards(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    shown = trained(capsys, GAN)
    page = Path("page.py").resolve()
    assert shown.splitlines()[-1] == f"then: ox export model.onnx --recipe {page}"
    page.write_text(GAN + EXPORT + INPUTS.format(given="ox.randn(count, 4)"))
    assert main(["export", "model.onnx", "--recipe", "page.py"]) == 0
    page.write_text(GAN.replace("Linear(4, 8)", "Linear(5, 8)") + EXPORT + INPUTS.format(given="ox.randn(count, 5)"))
    capsys.readouterr()
    assert main(["export", "other.onnx", "--recipe", "page.py"]) == 1
    assert "the checkpoint is of another architecture" in capsys.readouterr().err


def test_a_step_that_only_trains_has_nothing_to_measure(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trained(capsys, GAN)
    for command in ("eval", "runs report"):
        assert main(command.split()) == 1
        assert "validate(model, batch) in the recipe file" in capsys.readouterr().err, command


def test_samples_without_a_target(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxruntime")
    assert trained(capsys, AUTOENCODER).splitlines()[-1] == "next: ox export model.onnx"
    for command in ("export model.onnx", "eval --json", "runs report", "predict runs/page-0001 validation:2"):
        assert main(command.split()) == 0, (command, capsys.readouterr().err)
        shown = capsys.readouterr().out
        if command.startswith("eval"):
            row = json.loads(Path("runs/page-0001/result.json").read_text())["best"]
            assert json.loads(shown)["loss"] == pytest.approx(row["validation_loss"])
