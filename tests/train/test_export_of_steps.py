"""`ox export --train`: the training step of a run or of a recipe as a file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from command_line import run_main
from steps_eager import driver

import ox
from ox import train

steps = driver()


def layout_of(path: Path) -> dict[str, Any]:
    return json.loads({e.key: e.value for e in onnx.load(path).metadata_props}["ox.step"])


def test_the_step_of_a_run(here: Path, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With its best weights, its clipping and its seed, and a new state of the recipe's optimizer."""
    run = train.train(page, epochs=1, clip=0.5, seed=9, lr=0.02)
    assert run_main("export", "--train", "step.onnx") == 0
    out = capsys.readouterr().out.splitlines()
    assert out[0].startswith(
        "recorded a step of Sequential from runs/points-0001 with AdamW, gradients clipped at 0.5: "
    )
    assert out[1] == "point, target, lr → loss, accuracy · 4 parameters trained, 0 frozen"
    assert out[2].startswith("verified on ONNX Runtime") and "batch 4" in out[2] and "batch 7" in out[3]
    assert out[-1].startswith("step.onnx  ") and "step.safetensors: 18 arrays of state" in out[-1]

    layout = layout_of(here / "step.onnx")
    assert layout["lr"] == {"lr": 0.02} and layout["outputs"] == ["scores"]
    trainer = steps.Trainer(here / "step.onnx")
    assert trainer.state["random.key"] == 9
    _, model = train.restore(run)
    for name, p in model.named_parameters():
        np.testing.assert_array_equal(trainer.state[name], p.detach().numpy())

    # one step is what the recipe's loss and optimizer give
    x = np.random.default_rng(0).standard_normal((6, 2)).astype(np.float32)
    y = np.arange(6) % 2
    result = trainer(point=x, target=y)
    ox.manual_seed(9)
    optimizer = ox.optim.AdamW(model.train().parameters(), 0.02)
    loss = ox.nn.CrossEntropyLoss()(model(ox.from_numpy(x)), ox.from_numpy(y))
    loss.backward()
    ox.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    np.testing.assert_allclose(result["loss"], loss.item(), rtol=1e-5)
    for name, p in model.named_parameters():
        np.testing.assert_allclose(trainer.state[name], p.detach().numpy(), atol=1e-5)


def test_the_step_of_an_untrained_model(here: Path, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without a run: the weights that a run of the recipe begins with."""
    assert run_main("export", "--train", "--recipe", page, "--freeze", "0", "step.onnx") == 0
    assert "the untrained model" in capsys.readouterr().out
    ox.manual_seed(0)
    first = train.load(page).model()
    state = steps.Trainer(here / "step.onnx").state
    np.testing.assert_array_equal(state["3.weight"], first[3].weight.detach().numpy())
    assert layout_of(here / "step.onnx")["frozen"] == ["0.weight", "0.bias"]


def test_inspect_shows_it_in_a_few_lines(here: Path, page: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run_main("export", "--train", "--recipe", page, "--freeze", "0", "step.onnx")
    capsys.readouterr()
    assert run_main("inspect", "step.onnx") == 0
    lines = dict(line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert lines["step"] == "AdamW, 10 arrays of state, which begin in step.safetensors"
    assert lines["frozen"] == "0.weight, 0.bias"
    assert "ox.step" not in lines and "golden" not in lines


def test_the_batch_is_what_augmentation_makes(here: Path, page: Path) -> None:
    """Points that are stored as bytes, and become floats there."""
    text = page.read_text().replace("points.astype(np.float32)", "(20 * points + 80).astype(np.uint8)")
    text = text.replace("return points + 0.1 *", "points = points.to(ox.float32) / 20 - 4\n    return points + 0.1 *")
    (here / "bytes.py").write_text(text)
    assert run_main("export", "--train", "--recipe", "bytes.py", "step.onnx") == 0
    inputs = ort.InferenceSession(here / "step.onnx", providers=["CPUExecutionProvider"]).get_inputs()
    assert (inputs[0].name, inputs[0].type) == ("point", "tensor(float)")


DICTS = """
import numpy as np
from ox import nn, ops
from ox.data import Dataset

defaults = {"epochs": 1, "batch_size": 8, "lr": 0.01}


class Pairs(Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, i):
        return {"left": np.full(3, i, np.float32) / 40, "right": np.ones(2, np.float32), "weight": np.float32(1)}


def data():
    return Pairs(), Pairs()


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(3, 1), nn.Linear(2, 1)


def model():
    return Net()


def step(model, batch):
    y = model.a(batch["left"]) + model.b(batch["right"])
    return ((y[:, 0] - 1) ** 2 * batch["weight"]).mean(), None
"""


def test_a_step_of_ones_own_on_dicts(here: Path) -> None:
    """Its loss is the recipe's step(); there is no target and no output."""
    (here / "pairs.py").write_text(DICTS)
    assert run_main("export", "--train", "--recipe", "pairs.py", "step.onnx") == 0
    layout = layout_of(here / "step.onnx")
    assert layout["batch"] == ["left", "right", "weight"]
    assert layout["metrics"] == [] and layout["outputs"] == []
    trainer = steps.Trainer(here / "step.onnx")
    batch = {
        "left": np.ones((5, 3), np.float32),
        "right": np.ones((5, 2), np.float32),
        "weight": np.ones(5, np.float32),
    }
    losses = [float(trainer(**batch)["loss"]) for _ in range(20)]
    assert losses[-1] < losses[0]
    assert (
        ort.InferenceSession(here / "step.onnx", providers=["CPUExecutionProvider"]).get_inputs()[0].shape[0] == "batch"
    )


GAN = """
def step(model, batch, optimizers):
    loss = nn.CrossEntropyLoss()(model(batch[0]), batch[1])
    return loss, None
"""
SEVERAL = """
def optimizer(model, lr):
    return ox.optim.SGD(model[0].parameters(), lr), ox.optim.SGD(model[3].parameters(), lr)
"""
LAZY = """
def optimizer(model, lr):
    return ox.optim.LBFGS(model.parameters())
"""


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (["--freeze", "0", "a.onnx"], 2, "UsageError: --freeze belongs to --train"),
        (["--train", "--golden", "none", "a.onnx"], 2, "UsageError: a training step has no golden samples"),
        (["--train", "--recipe", "points.py", "--freeze", "x*", "a.onnx"], 1, "freeze 'x*' fits no parameter"),
        (["--train", "--recipe", "points.py", "--freeze", "*", "a.onnx"], 1, "leaves no parameter to train"),
        (["--train", "--recipe", "points.py", "--opset", "13", "a.onnx"], 1, "in opset 13"),
        (["--train", "--recipe", "points.py", "no/a.onnx"], 1, "there is no folder no"),
        (["--train", "--recipe", "points.py", "a.pb"], 1, "does not end in .onnx"),
        (["--train", "--recipe", "gan.py", "a.onnx"], 1, "updates by itself, which no file can do"),
        (["--train", "--recipe", "several.py", "a.onnx"], 1, "optimizer() of several.py returns several"),
        (["--train", "--recipe", "lbfgs.py", "a.onnx"], 1, "a step of LBFGS depends on values"),
        (["--train", "a.onnx"], 1, "there is no trained run"),
    ],
)
def test_refusals(
    here: Path, page: Path, arguments: list[str], code: int, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = page.read_text()
    for name, more in (("gan", GAN), ("several", SEVERAL), ("lbfgs", LAZY)):
        (here / f"{name}.py").write_text(text + more)
    assert run_main("export", *arguments) == code
    assert told in capsys.readouterr().err
    assert not list(here.glob("*.onnx")) and not list(here.glob("*.safetensors"))
