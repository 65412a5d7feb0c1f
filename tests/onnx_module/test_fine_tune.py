"""A loaded file on its way to another task: its head, a new one, what learns, and the scores that a loss gets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, DTypeError, LoadError, ShapeError
from ox.onnx_module.fine_tune import FineTuned, find_head

ROWS = np.random.default_rng(0).normal(size=(16, 6)).astype(np.float32)
TARGETS = np.arange(16) % 3


def decomposed(x: Any) -> Any:
    """A Softmax as other exporters write it."""
    powers = (x - x.amax(-1, keepdim=True)).exp()
    return powers / powers.sum(-1, keepdim=True)


class Dense(nn.Module):
    def __init__(self, ends: Any = None) -> None:
        super().__init__()
        self.body, self.head, self.ends = nn.Linear(6, 8), nn.Linear(8, 5), ends

    def forward(self, rows: Any) -> Any:
        scores = self.head(self.body(rows).relu())
        return scores if self.ends is None else self.ends(scores)


class Image(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.drop, self.head = nn.Dropout(0.5), nn.Linear(16, 5)

    def forward(self, image: Any) -> Any:
        return self.head(self.drop(self.stem(image).flatten(1)))


ENDS = {
    "Linear": None,
    "Softmax": nn.Softmax(-1),
    "LogSoftmax": nn.LogSoftmax(-1),
    "written out": decomposed,
    "shaped": lambda x: x.unsqueeze(1).softmax(-1).squeeze(1),
    "power of probabilities": lambda x: (x.softmax(-1) + x.softmax(-1)) * 0.5,
}


def saved(model: nn.Module, path: Path, *example: Any) -> Path:
    ox.export.save(model, path, *example)
    return path


def dense(tmp_path: Path, ends: str = "Linear", seed: int = 0) -> Path:
    ox.manual_seed(seed)
    return saved(Dense(ENDS[ends]), tmp_path / "dense.onnx", ROWS)


def gemm(tmp_path: Path, bias: list[int] | None, transposed: bool = True, opset: int = 13) -> Path:
    """x [n, 6] -> Gemm -> Softmax, y [n, 5]."""
    rng = np.random.default_rng(1)
    weights = {"w": rng.normal(size=(5, 6) if transposed else (6, 5)).astype(np.float32)}
    if bias is not None:
        weights["b"] = rng.normal(size=bias).astype(np.float32)
    nodes = [
        helper.make_node("Gemm", ["x", *weights], ["h"], transB=int(transposed)),
        helper.make_node("Softmax", ["h"], ["y"]),
    ]
    return written(tmp_path / "gemm.onnx", nodes, weights, opset=opset)


def written(path: Path, nodes: list[Any], weights: dict[str, Any], last: int = 5, opset: int = 13) -> Path:
    ends = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", size]) for name, size in (("x", 6), ("y", last))
    ]
    initializers = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializers)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)
    return path


def load(path: Path) -> Any:
    return ox.export.load(path)


def steps(model: FineTuned, rows: Any = ROWS, count: int = 3) -> list[float]:
    optimizer, losses = ox.optim.AdamW(model.parameters(), lr=0.05), []
    for _ in range(count):
        optimizer.zero_grad()
        loss = nn.CrossEntropyLoss()(model(ox.tensor(rows)), ox.tensor(TARGETS))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def state(net: Any) -> dict[str, bytes]:
    return {name: x.detach().numpy().tobytes() for name, x in net.state.items()}


def run(path: Path, rows: Any) -> list[Any]:
    session = pytest.importorskip("onnxruntime").InferenceSession(str(path), providers=["CPUExecutionProvider"])
    return list(session.run(None, {session.get_inputs()[0].name: rows}))


# -- the head ------------------------------------------------------------------------------------------------------


@rows("ends", ENDS)
def test_the_head_is_found_behind_any_end(tmp_path: Path, ends: str) -> None:
    head = find_head(load(dense(tmp_path, ends)))
    assert head.names == ("head.weight", "head.bias")
    assert (head.scores, head.width) == (5, 8)


@rows(
    ("bias", "transposed", "names"),
    [
        ([5], True, ("w", "b")),
        ([5], False, ("w", "b")),
        ([1, 5], True, ("w", "b")),
        ([1], True, ("w",)),  # one number for all scores is none of the head's
        (None, False, ("w",)),
    ],
)
def test_heads_of_gemm(tmp_path: Path, bias: Any, transposed: bool, names: tuple[str, ...]) -> None:
    path = gemm(tmp_path, bias, transposed)
    head = find_head(load(path))
    assert (head.names, head.transposed, head.scores, head.width) == (names, transposed, 5, 6)
    model = FineTuned(load(path), "head", 3, [ROWS[:2]])
    assert model.net.state["w"].shape == ((3, 6) if transposed else (6, 3))
    if "b" in names:
        assert model.net.state["b"].shape == (*(bias or ())[:-1], 3)
    assert model(ox.tensor(ROWS)).shape == (16, 3)
    losses = steps(model, count=20)
    assert losses[-1] < losses[0]


def test_an_image_net_has_a_head(tmp_path: Path) -> None:
    path = saved(Image(), tmp_path / "image.onnx", np.ones((4, 1, 4, 4), np.float32))
    assert find_head(load(path)).names == ("head.weight", "head.bias")


def test_no_head(tmp_path: Path) -> None:
    conv = nn.Sequential(nn.Conv2d(1, 5, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    path = saved(conv, tmp_path / "conv.onnx", np.ones((2, 1, 4, 4), np.float32))
    with pytest.raises(LoadError, match="has no head") as caught:
        find_head(load(path))
    assert "got      Conv with '0.weight'" in str(caught.value)
    plain = written(tmp_path / "plain.onnx", [helper.make_node("Softmax", ["x"], ["y"])], {}, last=6)
    with pytest.raises(LoadError, match="has no head"):
        find_head(load(plain))


def test_an_inner_layer_is_no_head(tmp_path: Path) -> None:
    """A layer before the last one is not taken for it, nor one that only gives a size."""
    nodes = [
        helper.make_node("MatMul", ["x", "inner"], ["h"]),
        helper.make_node("Shape", ["h"], ["s"]),
        helper.make_node("MatMul", ["h", "last"], ["z"]),
        helper.make_node("Slice", ["s", "zero", "one"], ["n"]),
        helper.make_node("Concat", ["n", "five"], ["sizes"], axis=0),
        helper.make_node("Reshape", ["z", "sizes"], ["y"]),
    ]
    numbers = {"zero": np.array([0]), "one": np.array([1]), "five": np.array([5])}
    weights = {"inner": np.ones((6, 4), np.float32), "last": np.ones((4, 5), np.float32)}
    assert find_head(load(written(tmp_path / "inner.onnx", nodes, weights | numbers))).names == ("last",)
    path = written(tmp_path / "baked.onnx", nodes, weights | numbers)
    with pytest.raises(LoadError, match="cannot give other than 5 scores"):
        FineTuned(load(path), "all", 3, [ROWS[:2]])


@rows("formula", ["Add", "Sum", "Mean", "Max", "PRelu"])
def test_what_works_by_element_is_no_layer(tmp_path: Path, formula: str) -> None:
    """Numbers by class after the head, but for the weight of PRelu."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["z"]), helper.make_node(formula, ["z", "prior"], ["y"])]
    weights = {"w": np.ones((6, 5), np.float32), "prior": np.arange(5, dtype=np.float32)}
    net = load(written(tmp_path / "prior.onnx", nodes, weights))
    if formula == "PRelu":
        with pytest.raises(LoadError, match="no head"):
            find_head(net)
    else:
        assert find_head(net).names[0] == "w"


# -- a new head ----------------------------------------------------------------------------------------------------


def test_a_new_head(tmp_path: Path) -> None:
    path = tmp_path / "labelled.onnx"
    ox.export.save(Dense(), path, ROWS, output_names=["scores"], labels="vwxyz")
    before = state(load(path))
    ox.manual_seed(3)
    model = FineTuned(load(path), "all", 3, [ROWS[:2]])
    new = {name: x.detach().numpy() for name, x in model.net.state.items()}
    assert sorted(new["head.weight"].shape) == [3, 8]
    assert new["head.bias"].shape == (3,)
    assert np.abs(new["head.weight"]).max() <= 1 / np.sqrt(8)
    assert {name for name in before if before[name] != new[name].tobytes()} == {"head.weight", "head.bias"}
    assert model.net.graph.outputs[0].dims == ("batch", 3)
    assert model.net.contract.outputs[0].dims == ("batch", 3)
    assert model.net.contract.outputs[0].labels is None, "the labels were those of the old head"
    ox.manual_seed(3)
    assert state(FineTuned(load(path), "all", 3, [ROWS[:2]]).net) == state(model.net)


def test_the_files_own_head_stays(tmp_path: Path) -> None:
    path = dense(tmp_path)
    assert state(FineTuned(load(path), "all", None, [ROWS[:2]]).net) == state(load(path))


def test_other_outputs_keep_their_sizes(tmp_path: Path) -> None:
    class Two(Dense):
        def forward(self, rows: Any) -> Any:
            features = self.body(rows)[:, :5]
            return {"scores": self.head(self.body(rows).relu()), "features": features}

    model = FineTuned(load(saved(Two(), tmp_path / "two.onnx", ROWS)), "head", 3, [ROWS[:2]])
    assert [info.dims for info in model.net.contract.outputs] == [("batch", 3), ("batch", 5)]
    steps(model)
    report = ox.export.save(model.exported(), tmp_path / "again.onnx", ROWS)
    assert report.dims == "rows [batch, 6] → scores [batch, 3], features [batch, 5]"


@rows("ends", ENDS)
def test_what_is_exported_ends_as_the_file_did(tmp_path: Path, ends: str) -> None:
    path = dense(tmp_path, ends)
    model = FineTuned(load(path), "all", 3, [ROWS[:2]])
    steps(model)
    again = tmp_path / "again.onnx"
    ox.export.save(model.exported(), again, ROWS)
    old, new = onnx.load(path).graph, onnx.load(again).graph
    assert [node.op_type for node in new.node] == [node.op_type for node in old.node]
    assert {t.name for t in new.initializer} == {t.name for t in old.initializer}
    assert [v.name for v in [*new.input, *new.output]] == [v.name for v in [*old.input, *old.output]]
    (given,) = run(again, ROWS)
    with ox.no_grad():
        scores = model.eval()(ox.tensor(ROWS)).numpy()
    assert given.shape == (16, 3)
    if ends == "Linear":
        np.testing.assert_allclose(given, scores, atol=1e-5)
    else:
        probabilities = np.exp(given) if ends == "LogSoftmax" else given
        np.testing.assert_allclose(probabilities.sum(1), 1, atol=1e-5)
        np.testing.assert_allclose(probabilities, ox.tensor(scores).softmax(-1).numpy(), atol=1e-5)


# -- scores for the loss -------------------------------------------------------------------------------------------


@rows("ends", ENDS)
def test_the_loss_is_that_of_the_logits(tmp_path: Path, ends: str) -> None:
    """Whatever the file ends in, the loss and its gradients are those of the file that ends in logits."""
    losses, gradients = [], []
    for name in ("Linear", ends):
        model = FineTuned(load(dense(tmp_path, name)), "all", None, [ROWS[:2]])
        model.train()
        loss = nn.CrossEntropyLoss()(model(ox.tensor(ROWS)), ox.tensor(TARGETS))
        loss.backward()
        losses.append(loss.item())
        gradients.append(model.net.state["body.weight"].grad.numpy())
    assert losses[1] == pytest.approx(losses[0], rel=1e-5)
    np.testing.assert_allclose(gradients[1], gradients[0], atol=1e-6)


@pytest.mark.parametrize("ends", ["Softmax", "written out", "shaped"])
def test_a_sure_and_wrong_answer_still_learns(tmp_path: Path, ends: str) -> None:
    """Probabilities of 0 would have no gradient; scores before them have."""
    model = FineTuned(load(dense(tmp_path, ends)), "all", None, [ROWS[:2]])
    weight = model.net.state["head.weight"]
    weight.array = weight.array * 1e4
    loss = nn.CrossEntropyLoss()(model(ox.tensor(ROWS)), ox.tensor(TARGETS))
    loss.backward()
    assert loss.item() > 100
    assert np.abs(model.net.state["head.bias"].grad.numpy()).max() > 0.05


@pytest.mark.parametrize("opset", [11, 13])
def test_a_softmax_of_any_opset(tmp_path: Path, opset: int) -> None:
    """Before opset 13 a Softmax is flattened, taken and shaped back."""
    model = FineTuned(load(gemm(tmp_path, [5], opset=opset)), "all", None, [ROWS[:2]])
    scores = model(ox.tensor(ROWS)).detach().numpy()
    np.testing.assert_allclose(np.exp(scores).sum(1), 1, atol=1e-5)
    np.testing.assert_allclose(np.exp(scores), run(tmp_path / "gemm.onnx", ROWS)[0], atol=1e-5)


# -- what learns ---------------------------------------------------------------------------------------------------


def test_only_the_head_learns(tmp_path: Path) -> None:
    """Weights, biases and running statistics of all else keep every bit, and no Dropout drops."""
    ox.manual_seed(0)
    images = np.random.default_rng(2).normal(size=(16, 1, 4, 4)).astype(np.float32)
    net = Image()
    net(ox.tensor(images))
    path = saved(net, tmp_path / "image.onnx", images)
    model = FineTuned(load(path), "head", None, [images[:2]])
    model.train()
    once, twice = (model(ox.tensor(images)).detach().numpy() for _ in range(2))
    np.testing.assert_array_equal(once, twice)
    before = state(model.net)
    steps(model, images)
    after = state(model.net)
    assert {name for name in before if before[name] != after[name]} == {"head.weight", "head.bias"}

    everything = FineTuned(load(path), "all", None, [images[:2]])
    assert state(everything.net) == before, "to try a file changes nothing"
    everything.train()
    steps(everything, images)
    after = state(everything.net)
    assert not {name for name in before if before[name] == after[name]}
    everything.eval()
    once, twice = (everything(ox.tensor(images)).detach().numpy() for _ in range(2))
    np.testing.assert_array_equal(once, twice)


def test_numbers_of_a_formula_never_learn(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "b"], ["scores"]),
        helper.make_node("Mul", ["scores", "half"], ["z"]),
        helper.make_node("Add", ["z", "epsilon"], ["y"]),
    ]
    weights = {
        "w": np.ones((6, 5), np.float32),
        "b": np.zeros(5, np.float32),
        "half": np.array(0.5, np.float32),
        "epsilon": np.array([1e-6], np.float32),
    }
    path = written(tmp_path / "formula.onnx", nodes, weights)
    assert find_head(load(path)).names == ("w", "b")
    model = FineTuned(load(path), "all", None, [ROWS[:2]])
    assert {name for name, p in model.net.named_parameters() if p.requires_grad} == {"w", "b"}
    steps(model)
    assert model.net.state["half"].item() == 0.5
    assert model.net.state["epsilon"].item() == np.float32(1e-6)


def test_a_head_of_one_score_learns(tmp_path: Path) -> None:
    path = written(
        tmp_path / "one.onnx",
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Add", ["h", "b"], ["y"])],
        {"w": np.ones((6, 1), np.float32), "b": np.ones(1, np.float32)},
        last=1,
    )
    for layers in ("head", "all"):
        model = FineTuned(load(path), layers, None, [ROWS[:2]])
        assert {name for name, p in model.net.named_parameters() if p.requires_grad} == {"w", "b"}, layers


# -- what cannot be ------------------------------------------------------------------------------------------------


def test_refused(tmp_path: Path) -> None:
    path = dense(tmp_path)
    with pytest.raises(ArgumentError, match="no layers 'some'"):
        FineTuned(load(path), "some", None, [ROWS[:2]])
    with pytest.raises(ShapeError, match="input 'rows'"):
        FineTuned(load(path), "all", None, [ROWS[:2, :3]])
    with pytest.raises(DTypeError, match="input 'rows'"):
        FineTuned(load(path), "all", None, [ROWS[:2].astype(np.float64)])
    with pytest.raises(ArgumentError, match="not those of the file"):
        FineTuned(load(path), "all", None, [ROWS[:2], ROWS[:2]])

    class Answer(Dense):
        def forward(self, rows: Any) -> Any:
            return super().forward(rows).argmax(1)

    with pytest.raises(LoadError, match="cannot learn") as caught:
        FineTuned(load(saved(Answer(), tmp_path / "answer.onnx", ROWS)), "all", None, [ROWS[:2]])
    assert "int64" in str(caught.value)
