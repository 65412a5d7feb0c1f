"""What no file can do: clear errors, and files that were there stay as they are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from steps_eager import Digits, digits

import ox
from ox import nn, optim
from ox.errors import ArgumentError, ExportError, GradientError, OxError

LOSS = nn.CrossEntropyLoss()


def save(path: Path, model: Any = None, loss: Any = LOSS, optimizer: Any = None, **options: Any) -> Any:
    model = model or Digits()
    optimizer = optimizer or optim.SGD(model.parameters(), 0.1)
    inputs, target = options.pop("inputs", digits(20)[0]), options.pop("target", digits(20)[1])
    return ox.export.save_step(model, loss, optimizer, path / "step.onnx", inputs, target, **options)


def refused(error: type[OxError], path: Path, *told: str, **options: Any) -> str:
    """The text of the error, which has each of `told`; nothing was written."""
    with pytest.raises(error) as caught:
        save(path, **options)
    text = str(caught.value)
    for each in told:
        assert each in text, text
    assert list(path.iterdir()) == []
    return text


def test_optimizers_that_depend_on_values(tmp_path: Path) -> None:
    model = Digits()
    refused(ExportError, tmp_path, "LBFGS depends on values", "Adam", model=model,
            optimizer=optim.LBFGS(model.parameters()))  # fmt: skip
    refused(ExportError, tmp_path, "SparseAdam takes sparse gradients", "sparse=False", model=model,
            optimizer=optim.SparseAdam(model.parameters()))  # fmt: skip
    momentum = optim.SGD(model.parameters(), 0.1, momentum=0.9, dampening=0.5)
    refused(ExportError, tmp_path, "first step of SGD with dampening", "one step before save_step", model=model,
            optimizer=momentum)  # fmt: skip


def test_sparse_gradients(tmp_path: Path) -> None:
    """They are dense in a graph; what eager refuses stays refused."""
    model = nn.Sequential(nn.Embedding(11, 4, sparse=True), nn.Flatten())
    text, target = np.arange(40).reshape(20, 2) % 11, np.arange(20) % 4
    refused(GradientError, tmp_path, "Adam does not take sparse gradients", "sparse=False", model=model, inputs=text,
            target=target, optimizer=optim.Adam(model.parameters()))  # fmt: skip
    assert save(tmp_path, model, inputs=text, target=target).rows


def test_dampening_after_a_step(tmp_path: Path) -> None:
    model = Digits()
    optimizer = optim.SGD(model.parameters(), 0.01, momentum=0.9, dampening=0.5)
    x, y = map(ox.from_numpy, digits(4))
    LOSS(model(x), y).backward()
    optimizer.step()
    assert save(tmp_path, model, optimizer=optimizer).rows


class Counting(optim.Optimizer):
    """As in PyTorch: state that is made in the first step."""

    def __init__(self, params: Any, number: bool) -> None:
        self.number = number
        super().__init__(params, {"lr": 0.1})

    def step(self, closure: Any = None) -> None:
        with ox.no_grad():
            for p in self.param_groups[0]["params"]:
                state = self.state[p]
                if not state:
                    state["count"] = 0 if self.number else ox.zeros(())
                state["count"] += 1
                p.sub_(p.grad, alpha=0.1)


@pytest.mark.parametrize(("number", "told"), [(True, "as a Python value"), (False, "")])
def test_an_optimizer_that_makes_its_state_in_its_step(tmp_path: Path, number: bool, told: str) -> None:
    model = nn.Linear(3, 2)
    x, y = np.ones((8, 3), np.float32), np.arange(8) % 2
    optimizer = Counting(model.parameters(), number)
    refused(ExportError, tmp_path, "makes its state in its first step", "one step before save_step", model=model,
            optimizer=optimizer, inputs=x, target=y)  # fmt: skip
    assert not optimizer.state
    LOSS(model(ox.from_numpy(x)), ox.from_numpy(y)).backward()
    optimizer.step()
    if told:
        refused(
            ExportError, tmp_path, told, "'count' of 'weight'", model=model, optimizer=optimizer, inputs=x, target=y
        )


def test_losses_that_are_no_number(tmp_path: Path) -> None:
    refused(
        ArgumentError, tmp_path, "no single number", "float32 [4]", "mean", loss=nn.CrossEntropyLoss(reduction="none")
    )
    refused(ArgumentError, tmp_path, "no single number", "float", loss=lambda y, t: LOSS(y, t).item())
    refused(ArgumentError, tmp_path, "the loss is no function", loss=0.5)
    refused(ExportError, tmp_path, "not finite", "nan", loss=lambda y, t: LOSS(y, t) * float("nan"))
    refused(
        ExportError, tmp_path, "no parameter receives a gradient", loss=lambda y, t: y.detach().mean().requires_grad_()
    )


def test_patterns_that_fit_nothing_or_everything(tmp_path: Path) -> None:
    text = refused(ArgumentError, tmp_path, "freeze 'body' fits no parameter", freeze="body")
    assert "strokes.0.weight" in text
    refused(ArgumentError, tmp_path, "leaves no parameter to train", "strokes, head", freeze=["strokes", "head"])
    refused(ArgumentError, tmp_path, "leaves no parameter to train", freeze="*")
    model = Digits()
    model.requires_grad_(False)
    refused(ArgumentError, tmp_path, "trains no parameter", model=model)


def test_examples_that_do_not_fit(tmp_path: Path) -> None:
    x, y = digits(20)
    refused(ArgumentError, tmp_path, "the size 'batch' has two values", "20", "7", target=y[:7])
    refused(ArgumentError, tmp_path, "an input is called 'target'", input_names=["target"])
    refused(ArgumentError, tmp_path, "does not fit the arguments", inputs=(x, x))
    refused(
        ArgumentError, tmp_path, "the model is no module", model=lambda x: x, optimizer=optim.SGD([ox.ones(1)], 0.1)
    )
    refused(ArgumentError, tmp_path, "a parameter that the model does not have",
            optimizer=optim.SGD([ox.ones(3, requires_grad=True)], 0.1))  # fmt: skip
    refused(ArgumentError, tmp_path, "this is no optimizer", optimizer="SGD")
    refused(ArgumentError, tmp_path, "the metric 'a' is no tensor", metrics={"a": lambda y, t: 1.0})


def test_half_precision_and_clipping(tmp_path: Path) -> None:
    for half in (ox.float16, ox.bfloat16):
        refused(
            ArgumentError, tmp_path, f"'strokes.0.weight' is {np.dtype(half)}", "ox.autocast", model=Digits().to(half)
        )
    refused(ArgumentError, tmp_path, "clip must be a number above 0", "-1", clip=-1)


def test_names_that_are_taken(tmp_path: Path) -> None:
    model = nn.Linear(4, 2)
    model.lr = nn.Parameter(ox.ones(()))
    x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
    refused(ArgumentError, tmp_path, "would be called 'lr'", "input_names", model=model, inputs=x, target=y)
    refused(ArgumentError, tmp_path, "would be called 'loss'", metrics={"loss": lambda y, t: y.mean()})
    refused(ArgumentError, tmp_path, "would be called 'loss'", input_names=["loss"])


def test_models_that_depend_on_the_batch_size(tmp_path: Path) -> None:
    class Halves(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            return self.linear(x) / int(x.shape[0])

    x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
    text = refused(ExportError, tmp_path, "the batch size is baked into the model", model=Halves(), inputs=x, target=y)
    assert "return self.linear(x) / int(x.shape[0])" in text


def test_python_that_counts_steps(tmp_path: Path) -> None:
    """Eager changes with each step, and a graph does not: the proof finds it."""

    class Warm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.calls = nn.Linear(4, 2), 0

        def forward(self, x: Any) -> Any:
            self.calls += 1
            return self.linear(x) * (1.0 + self.calls)

    x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
    refused(ExportError, tmp_path, "step.onnx was not written", model=Warm(), inputs=x, target=y)


@pytest.mark.parametrize("wrong", ["rate", "decay", "beta", "step"])
def test_the_proof_finds_a_wrong_update(tmp_path: Path, wrong: str) -> None:
    """Recorded otherwise than eager runs it, by as little as 2 % of the rate; Adam's rounding hides none of it."""

    class Wrong(optim.AdamW):
        def _full_update(self, xp: Any, p: Any, g: Any, s: Any, n: Any, group: Any) -> Any:
            if wrong == "rate":
                n.rate = n.rate * 1.02
            elif wrong == "beta":
                n.beta2 = n.beta2 * 0.99
            elif wrong == "step":
                s["exp_avg"] = s["exp_avg"] * 0.98
            elif wrong == "decay":
                group = {**group, "weight_decay": 0.0}
            return super()._full_update(xp, p, g, s, n, group)

    ox.manual_seed(0)
    model = Digits()
    optimizer = Wrong(model.parameters(), 0.01, weight_decay=0.1)
    refused(ExportError, tmp_path, "ONNX Runtime", "than eager after", "|Δ| at most", model=model, optimizer=optimizer)


def test_operators_that_the_target_lacks(tmp_path: Path) -> None:
    class Doubles(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(1, 2, 3).double()

        def forward(self, x: Any) -> Any:
            return self.conv(x).mean((2, 3))

    x = digits(20)[0].astype(np.float64)
    text = refused(ExportError, tmp_path, "ONNX Runtime cannot train this model", "Conv", model=Doubles(), inputs=x,
                   target=np.arange(20) % 2)  # fmt: skip
    assert "return self.conv(x)" in text
    refused(ExportError, tmp_path, "opset 12 is out of range", opset=12)

    class Sampled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.shift = nn.Parameter(ox.zeros(1, 8, 8, 2))

        def forward(self, x: Any) -> Any:
            grid = (ox.zeros_like(x).reshape(-1, 8, 8, 1) + self.shift).tanh()
            return nn.functional.grid_sample(x, grid, align_corners=False).flatten(1)

    refused(ExportError, tmp_path, "in opset 13", "Sampled, test_refusals.py", "a higher --opset", model=Sampled(),
            opset=13)  # fmt: skip


def test_a_scatter_that_adds(tmp_path: Path) -> None:
    class Adding(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            y = self.linear(x)
            return ox.ops.ScatterND(y * 0, ox.zeros(1, 1, dtype=ox.int64), y[:1], reduction="add") + y

    x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
    refused(ExportError, tmp_path, "a ScatterND that adds", "several threads", model=Adding(), inputs=x, target=y)


def test_files_that_were_there_stay(tmp_path: Path) -> None:
    save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert set(before) == {"step.onnx", "step.eval.onnx", "step.safetensors"}

    class Warm(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear, self.calls = nn.Linear(4, 2), 0.0

        def forward(self, x: Any) -> Any:
            self.calls += 0.5
            return self.linear(x) + ox.tensor(self.calls)

    x, y = np.ones((8, 4), np.float32), np.arange(8) % 2
    with pytest.raises(ExportError, match="is what it was"):
        save(tmp_path, Warm(), loss=nn.MultiMarginLoss(), inputs=x, target=y)
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_proof_that_fails_leaves_all_three_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from ox.export.training_step import proof, step_files

    save(tmp_path)
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def fails(*_: Any) -> Any:
        raise proof._mismatch(proof.StepRow(4, 1, "loss", 1.0, 0.1, "ONNX Runtime"), ("max", 1.0, 0.1))

    monkeypatch.setattr(step_files, "prove_step", fails)
    with pytest.raises(ExportError, match="gives another 'loss' than eager after 1 step"):
        save(tmp_path, Digits())
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_places_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = Digits()
    arguments = (model, LOSS, optim.SGD(model.parameters(), 0.1))
    with pytest.raises(ExportError, match="there is no folder"):
        ox.export.save_step(*arguments, tmp_path / "none" / "step.onnx", *digits(8))
    with pytest.raises(ExportError, match=r"does not end in \.onnx"):
        ox.export.save_step(*arguments, tmp_path / "step.safetensors", *digits(8))
    (tmp_path / "other.safetensors").mkdir()
    with pytest.raises(ExportError, match="is a folder"):
        ox.export.save_step(*arguments, tmp_path / "other.onnx", *digits(8))
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(ExportError, match="no permission to write"):
        ox.export.save_step(*arguments, tmp_path / "step.onnx", *digits(8))
    assert [path.name for path in tmp_path.iterdir()] == ["other.safetensors"]


def test_inside_a_recording(tmp_path: Path) -> None:
    class Inside(nn.Module):
        def forward(self, x: Any) -> Any:
            save(tmp_path)
            return x

    with pytest.raises(ExportError, match="inside a recording"):
        ox.export.save(Inside(), tmp_path / "a.onnx", np.ones((3, 2), np.float32))


class Shifted(nn.Module):
    """In train mode only, a transposed matrix times a vector."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(ox.arange(12.0).reshape(3, 4) / 10)
        self.register_buffer("ones", ox.ones(3))

    def forward(self, x: Any) -> Any:
        y = x @ self.weight
        return y + self.weight.t() @ self.ones if self.training else y


def test_what_the_default_optimizations_of_the_runtime_get_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """ONNX Runtime's fused product mistakes a vector, which files avoid; without that, the proof has to notice it, also
    in a step with float64 numbers, as Adam's has."""
    x, y = np.random.default_rng(0).normal(size=(16, 3)).astype(np.float32), np.ones((16, 4), np.float32)
    model = Shifted()
    of = {"model": model, "loss": nn.MSELoss(), "inputs": x, "target": y}
    assert save(tmp_path, optimizer=optim.Adam(model.parameters()), **of).rows
    for path in tmp_path.iterdir():
        path.unlink()
    monkeypatch.setattr("ox.graph.writer.write.with_columns", lambda graph: graph)
    refused(ExportError, tmp_path, "gives another 'loss'", optimizer=optim.Adam(model.parameters()), **of)


def test_a_step_that_compares_sizes_warns(tmp_path: Path) -> None:
    """Its file cannot say for which sizes it is right."""

    class Branch(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 3)

        def forward(self, x: Any) -> Any:
            return self.layer(x) if x.shape[0] < 100 else self.layer(x * 2)

    model = Branch()
    x, y = np.ones((9, 4), np.float32), np.arange(9) % 3
    with pytest.warns(UserWarning, match=r"right only for batch in 1\.\.99"):
        ox.export.save_step(
            model, nn.CrossEntropyLoss(), ox.optim.SGD(model.parameters(), 0.1), tmp_path / "step.onnx", x, y
        )
