"""`ox.export.save_step`: the file trains as eager ox does, and saving leaves no trace."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from optimizer_cases import CASES, MUON, OWN, Case, ids
from steps_eager import Digits, check_weights, digits, driver, train_eager

import ox
from ox import nn, optim, tolerance

train = driver()
LOSS = nn.CrossEntropyLoss(label_smoothing=0.1)


def batches(steps: int, size: int) -> tuple[np.ndarray, np.ndarray]:
    x, y = digits(steps * size, 1)
    return x.reshape(steps, size, *x.shape[1:]), y.reshape(steps, size)


@pytest.mark.parametrize(
    "optimizer_of",
    [
        lambda p: optim.SGD(p, 0.02, momentum=0.9),
        lambda p: optim.Adam(p, 1e-3, eps=1e-3, weight_decay=0.1),
        lambda p: optim.AdamW(p, 1e-3, eps=1e-3),
    ],
    ids=["SGD", "Adam", "AdamW"],
)
def test_a_hundred_steps_end_at_the_weights_of_eager(tmp_path: Path, optimizer_of: Callable[[Any], Any]) -> None:
    """With dropout, clipping and batch norm, on a driver without ox, at a batch size that was never recorded."""
    ox.manual_seed(0)
    model = Digits(dropout=0.2)
    optimizer = optimizer_of(model.parameters())
    path = tmp_path / "step.onnx"
    report = ox.export.save_step(model, LOSS, optimizer, path, *digits(20), clip=1.0, seed=7)
    assert report.layout.metrics == ("accuracy",) and report.undecided == ()

    trainer = train.Trainer(path)
    data = batches(100, 5)
    ox.manual_seed(7)
    eager = train_eager(model, LOSS, optimizer, data, clip=1.0)
    plain = [trainer(image=x, target=y) for x, y in zip(*data, strict=True)]
    np.testing.assert_allclose([step["loss"] for step in plain], eager, rtol=1e-3)
    check_weights(trainer.state, model)


def test_the_file_is_plain_and_says_what_is_what(tmp_path: Path) -> None:
    model = Digits(dropout=0.5)
    optimizer = optim.AdamW(model.parameters(), 0.01)
    path = tmp_path / "step.onnx"
    report = ox.export.save_step(model, LOSS, optimizer, path, *digits(20), metadata={"author": "me"})
    file = onnx.load(path)
    assert [(i.domain, i.version) for i in file.opset_import] == [("", 21)]
    assert not file.functions and {node.domain for node in file.graph.node} == {""}

    about = {entry.key: entry.value for entry in file.metadata_props}
    assert about["author"] == "me"
    layout = json.loads(about["ox.step"])
    assert layout["batch"] == ["image", "target"] and layout["lr"] == {"lr": 0.01}
    assert (layout["loss"], layout["metrics"], layout["outputs"]) == ("loss", ["accuracy"], ["output"])
    assert (layout["initial"], layout["evaluation"]) == ("step.safetensors", "step.eval.onnx")
    kinds = {kind: [n for n, k in layout["kinds"].items() if k == kind] for kind in layout["kinds"].values()}
    assert kinds["parameter"] == list(dict(model.named_parameters()))
    assert kinds["buffer"] == [f"strokes.1.{n}" for n in ("running_mean", "running_var", "num_batches_tracked")]
    assert [n for n in kinds["optimizer"] if n.startswith("head.2.bias")] == [
        f"head.2.bias.{n}" for n in ("step", "exp_avg", "exp_avg_sq")
    ]
    assert kinds["random"] == ["random.key", "random.counter"]
    ends = [i.name for i in file.graph.input], [o.name for o in file.graph.output]
    assert sorted(ends[0]) == sorted([*layout["batch"], *layout["lr"], *layout["state"]])
    assert sorted(ends[1]) == sorted([layout["loss"], *layout["metrics"], *layout["state"].values()])
    assert not file.graph.initializer

    # the same in the safetensors file, for runtimes that do not show metadata
    state = train.read_state(report.initial)
    assert state.keys() == layout["state"].keys()
    content = report.initial.read_bytes()
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert json.loads(header["__metadata__"]["ox.step"]) == layout
    check_weights(state, model)


def test_nothing_changes(tmp_path: Path) -> None:
    """Not parameters, statistics, gradients, modes, what is trained, the optimizer, nor random numbers."""
    model = Digits(dropout=0.5).eval()
    model.head.train()
    optimizer = optim.Adam(model.parameters(), 0.01)
    model(ox.from_numpy(digits(3)[0])).sum().backward()
    gradients = [p.grad.numpy().copy() for p in model.parameters()]
    before = {name: t.numpy().copy() for name, t in model.state_dict().items()}
    versions = [p.version for p in model.parameters()]
    random = ox.random.get_state()
    ox.export.save_step(model, LOSS, optimizer, tmp_path / "a.onnx", *digits(20), freeze="strokes")
    assert not optimizer.state and optimizer.param_groups[0]["lr"] == 0.01
    assert float(optimizer.param_groups[0].tensors["lr"].array) == 0.01
    for p, gradient in zip(model.parameters(), gradients, strict=True):
        assert p.requires_grad
        np.testing.assert_array_equal(p.grad.numpy(), gradient)
    assert [p.version for p in model.parameters()] == versions
    for name, tensor in model.state_dict().items():
        np.testing.assert_array_equal(tensor.numpy(), before[name])
    assert not model.training and model.head.training and not model.strokes[1].training
    assert ox.random.get_state() == random


def test_a_step_goes_on_from_the_state_of_its_optimizer(tmp_path: Path) -> None:
    ox.manual_seed(0)
    model = Digits()
    optimizer = optim.Adam(model.parameters(), 1e-3, eps=1e-3)
    train_eager(model, LOSS, optimizer, batches(3, 4))
    ox.export.save_step(model, LOSS, optimizer, tmp_path / "step.onnx", *digits(20))
    trainer = train.Trainer(tmp_path / "step.onnx")
    assert trainer.state["head.2.weight.step"] == 3
    data = batches(5, 6)
    train_eager(model, LOSS, optimizer, data)
    for x, y in zip(*data, strict=True):
        trainer(image=x, target=y)
    check_weights(trainer.state, model)
    assert trainer.state["head.2.weight.step"] == 8


class Line(nn.Module):
    """Two inputs, a buffer that no step changes, a regression."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(2, 4)
        self.scale: Any
        self.register_buffer("scale", ox.tensor([1.0, 2.0, 3.0, 4.0]))

    def forward(self, a: Any, b: Any) -> Any:
        return ((self.first(a) + self.second(b)).tanh() * self.scale).sum(1)


def line(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    random = np.random.default_rng(3)
    a, b = (random.standard_normal((count, n)).astype(np.float32) for n in (3, 2))
    return {"a": a, "b": b}, a.sum(1)


@pytest.mark.slow_after(3)
@pytest.mark.parametrize("case", [c for c in [*CASES, *OWN, *MUON] if "dampening" not in c[1]], ids=ids)
def test_every_optimizer(tmp_path: Path, case: Case) -> None:
    """The proof takes four steps at falling rates, from a state that the optimizer has not made yet."""
    name, options = case
    ox.manual_seed(1)
    model = nn.Sequential(nn.Linear(3, 4, bias=False), nn.Tanh(), nn.Linear(4, 2, bias=False))
    optimizer = getattr(optim, name)(model.parameters(), **options)
    x = np.random.default_rng(0).standard_normal((20, 3)).astype(np.float32)
    report = ox.export.save_step(model, LOSS, optimizer, tmp_path / "step.onnx", x, np.arange(20) % 2)
    assert [row.batch for row in report.rows] == [4, 7]
    assert not optimizer.state


def test_inputs_by_name_metrics_and_groups(tmp_path: Path) -> None:
    ox.manual_seed(0)
    model = Line()
    groups = [{"params": model.first.parameters(), "lr": 0.1}, {"params": model.second.parameters(), "lr": 0.01}]
    optimizer = optim.SGD(groups)
    inputs, target = line(20)
    report = ox.export.save_step(
        model,
        nn.MSELoss(),
        optimizer,
        tmp_path / "step.onnx",
        inputs,
        target,
        metrics={"worst": lambda y, t: (y - t).abs().amax()},
        output_names=["sum"],
    )
    layout = report.layout
    assert layout.batch == ("a", "b", "target") and layout.lr == {"lr.0": 0.1, "lr.1": 0.01}
    assert layout.metrics == ("worst",) and layout.outputs == ("sum",)
    assert "scale" not in layout.state, "an initializer, for no step changes it"
    assert [t.name for t in onnx.load(report.path).graph.initializer] == ["scale"]
    trainer = train.Trainer(report.path)
    trainer.lr["lr.1"] = np.float32(0)
    before = trainer.state
    result = trainer(**inputs, target=target)
    assert result["worst"].shape == () and result["worst"] > 0
    np.testing.assert_array_equal(trainer.state["second.weight"], before["second.weight"])
    assert not np.array_equal(trainer.state["first.weight"], before["first.weight"])


def test_freezing_all_but_a_head(tmp_path: Path) -> None:
    """Frozen modules are in eval mode: their statistics stay, and they drop nothing."""
    ox.manual_seed(0)
    model = Digits(dropout=0.3)
    model.strokes.append(nn.Dropout(0.9))
    model(ox.from_numpy(digits(30)[0]))  # statistics of its own
    optimizer = optim.SGD(model.parameters(), 0.1, momentum=0.9)
    report = ox.export.save_step(
        model, LOSS, optimizer, tmp_path / "head.onnx", *digits(20), freeze=["strokes.*", "head.2.bias"], seed=3
    )
    layout = report.layout
    assert list(layout.state) == ["head.2.weight", "head.2.weight.momentum_buffer", "random.key", "random.counter"]
    assert layout.frozen == ("strokes.0.weight", "strokes.1.weight", "strokes.1.bias", "head.2.bias")
    kept = {t.name for t in onnx.load(report.path).graph.initializer}
    assert {"strokes.1.running_mean", *layout.frozen} <= kept

    trainer = train.Trainer(report.path)
    data = batches(10, 5)
    for name, p in model.named_parameters():
        p.requires_grad_(name == "head.2.weight")
    model.strokes.eval()
    ox.manual_seed(3)
    train_eager(model, LOSS, optimizer, data)
    for x, y in zip(*data, strict=True):
        trainer(image=x, target=y)
    check_weights(trainer.state, model)


def test_parameters_that_are_not_trained_are_initializers(tmp_path: Path) -> None:
    """Those without requires_grad, those that the optimizer does not have, those without a gradient."""
    model = Digits()
    model.strokes[0].weight.requires_grad_(False)
    model.spare = nn.Linear(2, 2)
    some = [p for name, p in model.named_parameters() if name != "head.2.bias"]
    report = ox.export.save_step(model, LOSS, optim.SGD(some, 0.1), tmp_path / "step.onnx", *digits(20))
    parameters = [name for name, kind in report.layout.kinds.items() if kind == "parameter"]
    assert parameters == ["strokes.1.weight", "strokes.1.bias", "head.2.weight"]
    assert set(report.layout.frozen) == {"strokes.0.weight", "head.2.bias", "spare.weight", "spare.bias"}


def test_a_loss_with_parameters_of_its_own(tmp_path: Path) -> None:
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(ox.ones(1))

        def forward(self, y: Any, t: Any) -> Any:
            return nn.functional.cross_entropy(y * self.scale, t)

    model, loss = Digits(), Scaled()
    optimizer = optim.SGD([*model.parameters(), *loss.parameters()], 0.1)
    report = ox.export.save_step(model, loss, optimizer, tmp_path / "step.onnx", *digits(20))
    assert report.layout.kinds["loss.scale"] == "parameter"


class Words(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.layer = nn.TransformerEncoderLayer(8, 2, 12, 0.1, batch_first=True)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens: Any) -> Any:
        return self.head(self.layer(self.embed(tokens)))


def test_a_transformer_at_any_length(tmp_path: Path) -> None:
    """The gradient of a key's bias is rounding alone: the report names what that decides, and the rest is proven."""
    ox.manual_seed(0)
    model = Words()
    text = np.random.default_rng(0).integers(0, 11, (20, 6))

    def loss(y: Any, t: Any) -> Any:
        return nn.functional.cross_entropy(y.reshape(-1, 11), t.reshape(-1))

    report = ox.export.save_step(
        model,
        loss,
        optim.Adam(model.parameters(), 1e-3),
        tmp_path / "step.onnx",
        text,
        (text + 1) % 11,
        dims={"tokens": ["batch", "length"], "target": ["batch", "length"]},
    )
    assert "layer.self_attn.in_proj_bias" in report.undecided
    assert report.layout.metrics == ()
    session = ort.InferenceSession(report.path, providers=["CPUExecutionProvider"])
    trainer = train.Trainer(report.path)
    longer = np.arange(18).reshape(2, 9) % 11
    assert np.isfinite(trainer(tokens=longer, target=longer)["loss"])
    assert session.get_inputs()[0].shape == ["batch", "length"]


class Listening(nn.Module):
    """A parameter of which a forward pass makes a view."""

    def __init__(self) -> None:
        super().__init__()
        self.token, self.head = nn.Parameter(ox.zeros(1, 1, 4)), nn.Linear(4, 3)

    def forward(self, x: Any) -> Any:
        return self.head(ox.cat([self.token.expand(x.shape[0], -1, -1), x], dim=1).tanh().mean(1))


def test_views_of_earlier_runs_do_not_matter(tmp_path: Path) -> None:
    model = Listening()
    x, y = np.random.default_rng(0).standard_normal((9, 2, 4)).astype(np.float32), np.arange(9) % 3
    views = [model.token.expand(2, -1, -1)]
    views.append(views)  # type: ignore[arg-type]  # a circle, which only the garbage collector finds
    del views
    report = ox.export.save_step(model, LOSS, optim.SGD(model.parameters(), 0.1), tmp_path / "step.onnx", x, y)
    assert report.layout.kinds["token"] == "parameter"


def test_sizes_that_are_no_batch(tmp_path: Path) -> None:
    """Time before batch, as recurrent layers have it; and a model with more outputs than tensors."""

    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.head = nn.GRU(3, 4), nn.Linear(4, 2)

        def forward(self, x: Any) -> Any:
            y, state = self.layer(x)
            return self.head(y[-1]), (state,), "a note"

    ox.manual_seed(0)
    model = Recurrent()
    x, y = np.random.default_rng(0).standard_normal((5, 6, 3)).astype(np.float32), np.arange(6) % 2
    report = ox.export.save_step(
        model,
        lambda outputs, target: nn.functional.cross_entropy(outputs[0], target),
        optim.SGD(model.parameters(), 0.1),
        tmp_path / "step.onnx",
        x,
        y,
        dims={"x": ["time", "batch", 3]},
    )
    assert [row.batch for row in report.rows] == [None, None] and report.layout.outputs == ("output",)
    trainer = train.Trainer(report.path)
    assert np.isfinite(trainer(x=np.ones((9, 2, 3), np.float32), target=np.arange(2))["loss"])


@pytest.mark.filterwarnings("ignore:autocast to b?float16")
def test_autocast_and_float64(tmp_path: Path) -> None:
    class Cast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))

        def forward(self, x: Any) -> Any:
            with ox.autocast("cpu", dtype=ox.bfloat16):
                return self.layers(x)

    x, y = np.random.default_rng(0).standard_normal((9, 3)).astype(np.float32), np.arange(9) % 2
    model = Cast()
    report = ox.export.save_step(model, LOSS, optim.SGD(model.parameters(), 0.1), tmp_path / "a.onnx", x, y)
    assert "BFLOAT16" in {onnx.TensorProto.DataType.Name(n.attribute[0].i) for n in onnx.load(report.path).graph.node
                          if n.op_type == "Cast"}  # fmt: skip
    double = nn.Linear(3, 2).double()
    x = x.astype(np.float64)
    report = ox.export.save_step(double, LOSS, optim.Adam(double.parameters()), tmp_path / "b.onnx", x, y)
    assert train.read_state(report.initial)["weight"].dtype == np.float64


def test_a_fixed_size(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    x, y = np.ones((6, 3), np.float32), np.arange(6) % 2
    report = ox.export.save_step(
        model,
        LOSS,
        optim.SGD(model.parameters(), 0.1),
        tmp_path / "step.onnx",
        x,
        y,
        dims={"input": [6, 3], "target": [6]},
    )
    assert len(report.rows) == 1
    assert "the example, step" in str(report)


def test_a_file_as_the_source(tmp_path: Path) -> None:
    """As `generate_artifacts` of onnxruntime-training: an ONNX file becomes one that trains it."""
    ox.manual_seed(0)
    ox.export.save(Digits(), tmp_path / "model.onnx", digits(20)[0], output_names=["logits"])
    net = ox.export.load(tmp_path / "model.onnx")
    optimizer = optim.SGD(net.parameters(), 0.1)
    report = ox.export.save_step(
        net, LOSS, optimizer, tmp_path / "step.onnx", *digits(20), freeze="strokes.0.weight", metrics={}
    )
    assert not net.training and report.layout.batch == ("image", "target") and report.layout.metrics == ()
    assert report.layout.outputs == ("logits",)
    trainer = train.Trainer(report.path)
    data = batches(5, 6)
    net.train().get_parameter("strokes.0.weight").requires_grad_(False)
    train_eager(net, LOSS, optimizer, data)
    for x, y in zip(*data, strict=True):
        trainer(image=x, target=y)
    check_weights(trainer.state, net)


def test_the_evaluation_beside_it(tmp_path: Path) -> None:
    """Takes the state of any step, gives what the model gives in eval mode."""
    ox.manual_seed(0)
    model = Digits(dropout=0.5)
    optimizer = optim.SGD(model.parameters(), 0.1)
    report = ox.export.save_step(model, LOSS, optimizer, tmp_path / "step.onnx", *digits(20))
    trainer = train.Trainer(report.path)
    for x, y in zip(*batches(3, 6), strict=True):
        trainer(image=x, target=y)
    model.load_state_dict({name: ox.from_numpy(trainer.state[name].copy()) for name in model.state_dict()})
    x, y = digits(9, 5)
    with ox.no_grad():
        logits = model.eval()(ox.from_numpy(x))
        loss = LOSS(logits, ox.from_numpy(y))
    session = ort.InferenceSession(report.evaluation, providers=["CPUExecutionProvider"])
    feed = {i.name: {**trainer.state, "image": x, "target": y}[i.name] for i in session.get_inputs()}
    got = dict(zip(["output", "loss", "accuracy"], session.run(["output", "loss", "accuracy"], feed), strict=True))
    assert tolerance.compare(got["output"], logits.numpy()).ok and tolerance.compare(got["loss"], loss.numpy()).ok
    assert got["accuracy"] == np.float32((logits.numpy().argmax(1) == y).mean())


def test_the_report_reads_well(tmp_path: Path) -> None:
    model = Digits()
    optimizer = optim.SGD(model.parameters(), 0.1)
    text = str(ox.export.save_step(model, LOSS, optimizer, tmp_path / "step.onnx", *digits(20), freeze="strokes"))
    assert "a step of Digits with SGD" in text and "2 parameters trained, 3 frozen" in text
    assert "batch 4, " in text and "batch 7, " in text and "step.safetensors" in text


def test_weights_above_the_limit_of_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Frozen weights go to a data file, as in `ox.export.save`."""
    monkeypatch.setattr(ox.export.files, "MAX_INLINE_BYTES", 100)
    model = nn.Sequential(nn.Linear(8, 64), nn.Linear(64, 2))
    x, y = np.ones((8, 8), np.float32), np.arange(8) % 2
    report = ox.export.save_step(model, LOSS, optim.SGD(model.parameters(), 0.1), tmp_path / "s.onnx", x, y, freeze="0")
    assert report.data == tmp_path / "s.onnx.data" and report.data.is_file()
    assert (tmp_path / "s.eval.onnx.data").is_file()
    assert np.isfinite(train.Trainer(report.path)(input=x, target=y)["loss"])


def test_products_of_a_column_and_a_row(tmp_path: Path) -> None:
    """Of numbers, which onnx's shape inference takes for two lists of sizes: the gradient of spectral normalization."""
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(6, 3)))
    optimizer = optim.SGD(model.parameters(), 0.1)
    x = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
    y = np.arange(16) % 3
    ox.export.save_step(model, LOSS, optimizer, tmp_path / "step.onnx", x, y)
    trainer = train.Trainer(tmp_path / "step.onnx")
    eager = train_eager(model, LOSS, optimizer, (np.stack([x] * 5), np.stack([y] * 5)))
    np.testing.assert_allclose([trainer(input=x, target=y)["loss"] for _ in range(5)], eager, rtol=1e-4)
