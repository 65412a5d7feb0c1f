"""Files whose exporter stored equal tensors once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper

import ox
from ox import nn

X = np.random.default_rng(0).normal(size=(4, 3, 5, 5)).astype(np.float32)


def file(folder: Path, nodes: list[onnx.NodeProto], weights: dict[str, Any], shape: tuple[int, ...]) -> Path:
    ends = [helper.make_tensor_value_info(name, 1, dims) for name, dims in (("x", shape), ("y", None))]
    tensors = [numpy_helper.from_array(np.asarray(array, np.float32), name) for name, array in weights.items()]
    graph = helper.make_graph(nodes, "merged", ends[:1], ends[1:], tensors)
    path = folder / "merged.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10), path)
    return path


def norm(x: str, y: str, *weights: str) -> onnx.NodeProto:
    return helper.make_node("BatchNormalization", [x, *weights], [y])


@pytest.fixture
def untrained(tmp_path: Path) -> Path:
    """norm, convolution, norm of PyTorch before training, as its exporter writes them."""
    kernel = np.random.default_rng(1).normal(size=(3, 3, 3, 3))
    conv = helper.make_node("Conv", ["a", "kernel"], ["b"], pads=[1, 1, 1, 1])
    nodes = [norm("x", "a", "w", "b0", "b0", "w"), conv, norm("b", "y", "w", "b0", "b0", "w")]
    return file(tmp_path, nodes, {"w": np.ones(3), "b0": np.zeros(3), "kernel": kernel}, (None, 3, 5, 5))


def test_a_forward_in_train_mode_moves_statistics_alone(untrained: Path) -> None:
    model = ox.export.load(untrained)
    before = {name: t.detach().numpy().copy() for name, t in model.named_parameters()}
    assert len(before) == 5 and len(dict(model.named_buffers())) == 4
    model.train()(ox.from_numpy(X))
    for name, t in model.named_parameters():
        np.testing.assert_array_equal(t.detach().numpy(), before[name])
    moved = [name for name, t in model.named_buffers() if not np.isin(t.numpy(), (0, 1)).all()]
    assert len(moved) == 4


def test_each_norm_trains_its_own(untrained: Path) -> None:
    model = ox.export.load(untrained).train()
    optimizer = ox.optim.SGD(model.parameters(), lr=0.1)
    model(ox.from_numpy(X)).pow(3).mean().backward()
    assert all(p.grad is not None for p in model.parameters())
    optimizer.step()
    vectors = [p.detach().numpy() for p in model.parameters() if p.ndim == 1]
    assert len({v.tobytes() for v in vectors}) == len(vectors) == 4


def test_the_file_means_what_it_did(untrained: Path, tmp_path: Path) -> None:
    import onnxruntime

    wanted = onnxruntime.InferenceSession(untrained, providers=["CPUExecutionProvider"]).run(None, {"x": X})[0]
    model = ox.export.load(untrained)
    np.testing.assert_allclose(model(ox.from_numpy(X)).detach().numpy(), wanted, rtol=1e-5, atol=1e-5)
    ox.export.save(model, tmp_path / "again.onnx", X)
    again = ox.export.load(tmp_path / "again.onnx")
    assert again.state_dict().keys() == model.state_dict().keys()


def test_layers_that_share_on_purpose_share(tmp_path: Path) -> None:
    dice = np.random.default_rng(2)
    pair = {"scale": dice.normal(size=6), "bias": dice.normal(size=6)}
    twice = [helper.make_node("LayerNormalization", [x, "scale", "bias"], [y]) for x, y in (("x", "a"), ("a", "y"))]
    assert len(dict(ox.export.load(file(tmp_path, twice, pair, (None, 6))).named_parameters())) == 2

    kernel = {"kernel": dice.normal(size=(6, 6)), "bias": np.zeros(6)}
    twice = [helper.make_node("Gemm", [x, "kernel", "bias"], [y]) for x, y in (("x", "a"), ("a", "y"))]
    assert len(dict(ox.export.load(file(tmp_path, twice, kernel, (None, 6))).named_parameters())) == 2


def test_layers_that_share_by_accident(tmp_path: Path) -> None:
    dice = np.random.default_rng(3)
    pair = {"scale": np.ones(6), "bias": np.zeros(6)}
    nodes = [helper.make_node("LayerNormalization", [x, "scale", "bias"], [y]) for x, y in (("x", "a"), ("a", "y"))]
    assert set(dict(ox.export.load(file(tmp_path, nodes, pair, (None, 6))).named_parameters())) == {
        "scale", "bias", "scale_2", "bias_2",
    }  # fmt: skip
    kernels = {"first": dice.normal(size=(6, 6)), "second": dice.normal(size=(6, 6)), "bias": np.zeros(6)}
    nodes = [helper.make_node("Gemm", [x, w, "bias"], [y]) for x, w, y in (("x", "first", "a"), ("a", "second", "y"))]
    model = ox.export.load(file(tmp_path, nodes, kernels, (None, 6)))
    assert set(dict(model.named_parameters())) == {"first", "second", "bias", "bias_2"}


def test_a_file_of_ox_shares_what_the_model_shares(tmp_path: Path) -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(6)

        def forward(self, x: Any) -> Any:
            return self.norm(self.norm(x).exp())

    ox.export.save(Twice(), tmp_path / "twice.onnx", np.ones((2, 6), np.float32))
    assert len(dict(ox.export.load(tmp_path / "twice.onnx").named_parameters())) == 2


def test_biases_that_are_added(tmp_path: Path) -> None:
    """As exporters write a linear layer of inputs with three dimensions."""
    dice = np.random.default_rng(2)
    weights = {"v": dice.normal(size=(6, 6)), "w": dice.normal(size=(6, 6)), "zeros": np.zeros(6)}
    nodes = [
        helper.make_node("MatMul", ["x", "v"], ["a"]), helper.make_node("Add", ["a", "zeros"], ["b"]),
        helper.make_node("MatMul", ["b", "w"], ["c"]), helper.make_node("Add", ["zeros", "c"], ["d"]),
        helper.make_node("MatMul", ["d", "w"], ["e"]), helper.make_node("Add", ["e", "zeros"], ["y"]),
    ]  # fmt: skip
    model = ox.export.load(file(tmp_path, nodes, weights, (None, 4, 6)))
    assert {name for name, _ in model.named_parameters()} == {"v", "w", "zeros", "zeros_2"}
    assert model.shared_weights == {"w": 2, "zeros_2": 2}  # of the layer that is called twice


def test_what_is_shared_is_said(untrained: Path, tmp_path: Path) -> None:
    assert ox.export.load(untrained).shared_weights == {}
    dice = np.random.default_rng(2)
    nodes = [helper.make_node("MatMul", [x, "w"], [y]) for x, y in (("x", "a"), ("a", "y"))]
    nodes.append(helper.make_node("Shape", ["w"], ["sizes"]))
    path = file(tmp_path, nodes, {"w": dice.normal(size=(6, 6))}, (None, 6))
    model = ox.export.load(path)
    assert model.shared_weights == {"w": 2}
    ox.export.save(model, tmp_path / "ours.onnx", dice.normal(size=(4, 6)).astype(np.float32))
    assert ox.export.load(tmp_path / "ours.onnx").shared_weights == {}  # which stores nothing once by accident
