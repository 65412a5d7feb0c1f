"""`ox.export.load`: a file is a living model, and a hostile one is a clear error."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, DTypeError, LoadError, ShapeError


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.out = nn.Linear(64, 10)
        self.register_buffer("shift", ox.tensor([0.5]))

    def forward(self, image: Any) -> Any:
        x = self.stem(image + self.shift)
        return {"logits": self.out(x.flatten(1)) * 0.5, "best": self.out(x.flatten(1)).argmax(1)}


def images(n: int) -> Any:
    return ox.from_numpy(np.random.default_rng(n).random((n, 1, 8, 8), dtype=np.float32))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    ox.manual_seed(0)
    net = Net()
    net(images(8))
    ox.export.save(
        net, tmp_path / "m.onnx", images(9), labels={"logits": "0123456789"}, meaning={"image": "ink"}, run="r"
    )
    return tmp_path / "m.onnx"


def run(path: Path, n: int = 5) -> list[np.ndarray]:
    options = ort.SessionOptions()
    options.use_per_session_threads = False
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    return session.run(None, {"image": images(n).numpy()})  # type: ignore[no-any-return]


def test_names_are_the_files(path: Path) -> None:
    net = ox.export.load(path)
    file = onnx.load(path)
    assert set(net.state_dict()) == {t.name for t in file.graph.initializer}
    trained = {name for name, _ in net.named_parameters()}
    assert trained == {"stem.0.weight", "stem.0.bias", "stem.1.weight", "stem.1.bias", "out.weight", "out.bias"}
    assert {name for name, _ in net.named_buffers()} == {"shift", "stem.1.running_mean", "stem.1.running_var"}
    assert net.get_parameter("stem.0.weight").requires_grad


def test_saving_again_is_a_fixed_point(path: Path, tmp_path: Path) -> None:
    again, third = tmp_path / "again.onnx", tmp_path / "third.onnx"
    ox.export.save(ox.export.load(path), again, images(9))
    ox.export.save(ox.export.load(again), third, images(9))
    a, b, c = (onnx.load(p) for p in (path, again, third))
    assert a.graph == b.graph == c.graph, "names, places, weights and all"
    assert [p.key for p in a.metadata_props] == [p.key for p in b.metadata_props]
    kept = [p for p in a.metadata_props if p.key != "ox.golden"]
    assert kept == [p for p in b.metadata_props if p.key != "ox.golden"]
    for x, y in zip(run(path), run(again), strict=True):
        np.testing.assert_array_equal(x, y)


def test_it_computes_what_the_file_computes(path: Path) -> None:
    net = ox.export.load(path).eval()
    for got, expected in zip(net(images(5)), run(path), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-5)
    by_name = net(image=images(5))
    np.testing.assert_array_equal(by_name[0].detach().numpy(), net(images(5))[0].detach().numpy())


def test_it_rests_in_eval_mode(path: Path) -> None:
    net = ox.export.load(path)
    assert not any(module.training for module in net.modules())
    mean = net.get_buffer("stem.1.running_mean").numpy().copy()
    for got, expected in zip(net(images(5)), run(path), strict=True):
        np.testing.assert_allclose(got.detach().numpy(), expected, atol=1e-5)
    np.testing.assert_array_equal(net.get_buffer("stem.1.running_mean").numpy(), mean)
    net.train()(images(5))
    assert not np.array_equal(net.get_buffer("stem.1.running_mean").numpy(), mean)


@pytest.mark.parametrize("path", [None, b"m.onnx", 3])
def test_no_path(path: Any) -> None:
    with pytest.raises(ArgumentError, match="the path is none"):
        ox.export.load(path)


def test_it_trains(path: Path, tmp_path: Path) -> None:
    net = ox.export.load(path).train()
    optimizer, loss_of = ox.optim.SGD(net.parameters(), lr=0.1), nn.CrossEntropyLoss()
    x, y = images(16), ox.tensor(np.arange(16) % 10)
    mean = net.get_buffer("stem.1.running_mean").numpy().copy()
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        loss = loss_of(net(x)[0], y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.7 * losses[0]
    assert not np.array_equal(net.get_buffer("stem.1.running_mean").numpy(), mean), "train mode moves the statistics"
    settled = net.eval().get_buffer("stem.1.running_mean").numpy().copy()
    expected = [t.detach().numpy() for t in net(images(5))]
    np.testing.assert_array_equal(net.get_buffer("stem.1.running_mean").numpy(), settled)
    report = ox.export.save(net, tmp_path / "mine.onnx", images(9))
    assert report.dims == "image [batch, 1, 8, 8] → logits [batch, 10], best [batch]"
    assert report.contract.outputs[0].labels == tuple("0123456789") and report.contract.run == "r"
    np.testing.assert_allclose(run(tmp_path / "mine.onnx")[0], expected[0], atol=1e-4)


def test_state_moves_between_a_file_and_its_class(path: Path) -> None:
    file, own = ox.export.load(path), Net()
    own.load_state_dict({**file.state_dict(), "stem.1.num_batches_tracked": np.zeros((), np.int64)})
    np.testing.assert_allclose(
        own.eval()(images(3))["logits"].detach().numpy(), file.eval()(images(3))[0].detach().numpy(), atol=1e-6
    )


def test_wrong_inputs(path: Path) -> None:
    net = ox.export.load(path)
    with pytest.raises(ArgumentError, match="inputs are not those"):
        net()
    with pytest.raises(ArgumentError, match="inputs are not those"):
        net(picture=images(2))
    with pytest.raises(DTypeError, match="'image'"):
        net(images(2).double())
    with pytest.raises(ShapeError, match="'image'") as caught:
        net(images(2).reshape(2, 64))
    assert "[batch, 1, 8, 8]" in str(caught.value)


def test_functions_are_written_out(tmp_path: Path) -> None:
    def model(x: Any) -> Any:
        return x + ox.rand(x.shape[0], 3, generator=ox.Generator(3)) + ox.rand(3, generator=ox.Generator(4))

    ox.export.save(model, tmp_path / "a.onnx", np.ones((2, 3), np.float32))
    net = ox.export.load(tmp_path / "a.onnx")
    x = np.ones((5, 3), np.float32)
    np.testing.assert_array_equal(net(x).numpy(), model(ox.tensor(x)).numpy())
    ox.export.save(net, tmp_path / "b.onnx", np.ones((2, 3), np.float32))
    assert not onnx.load(tmp_path / "b.onnx").functions


# -- files that are damaged or hostile ---------------------------------------------------------------------------


def tiny(nodes: list[Any] | None = None, weights: list[Any] | None = None, **changes: Any) -> onnx.ModelProto:
    nodes = nodes if nodes is not None else [helper.make_node("Add", ["x", "w"], ["y"], name="add")]
    weights = weights if weights is not None else [helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])]
    ends = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", 2]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", changes.pop("inputs", [ends[0]]), changes.pop("outputs", [ends[1]]), weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", changes.pop("opset", 21))], **changes)


def test_a_strangers_file(tmp_path: Path) -> None:
    weights = [
        helper.make_tensor("model/dense.kernel", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("model/dense", TensorProto.FLOAT, [2], [1.0, 2.0]),
        helper.make_tensor("forward", TensorProto.INT64, [2], [-1, 2]),
    ]
    nodes = [
        helper.make_node("Mul", ["x", "model/dense.kernel"], ["a"]),
        helper.make_node("Add", ["a", "model/dense"], ["b"]),
        helper.make_node("Reshape", ["b", "forward"], ["y"]),
    ]
    onnx.save(tiny(nodes, weights), tmp_path / "theirs.onnx")
    net = ox.export.load(tmp_path / "theirs.onnx")
    assert set(net.state_dict()) == {"model/dense.kernel", "model/dense", "forward"}
    np.testing.assert_array_equal(net(np.ones((3, 2), np.float32)).detach().numpy(), [[2, 4]] * 3)
    report = ox.export.save(net, tmp_path / "mine.onnx", np.ones((3, 2), np.float32))
    assert report.dims == "x [n, 2] → y [n, 2]"
    assert {t.name for t in onnx.load(tmp_path / "mine.onnx").graph.initializer} == set(net.state_dict())


def external(location: str, **entries: Any) -> Any:
    tensor = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], data_location=TensorProto.EXTERNAL)
    for key, value in {"location": location, **entries}.items():
        tensor.external_data.add(key=key, value=str(value))
    return tensor


def add(a: str, b: str, y: str) -> Any:
    return helper.make_node("Add", [a, b], [y], name=f"make_{y}")


def bomb() -> onnx.ModelProto:
    """Functions that call the one before twice: 2^40 nodes when written out."""
    model = tiny([helper.make_node("f39", ["x"], ["y"], domain="b")], [])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("b", 1)]
    previous, domain = "Neg", ""
    for i in range(40):
        nodes = [
            helper.make_node(previous, ["a"], ["b"], domain=domain),
            helper.make_node(previous, ["b"], ["c"], domain=domain),
        ]
        model.functions.append(helper.make_function("b", f"f{i}", ["a"], ["c"], nodes, opsets))
        previous, domain = f"f{i}", "b"
    return model


def recursive() -> onnx.ModelProto:
    model = tiny([helper.make_node("f", ["x"], ["y"], domain="b")], [])
    node = helper.make_node("f", ["a"], ["c"], domain="b")
    model.functions.append(helper.make_function("b", "f", ["a"], ["c"], [node], [helper.make_opsetid("b", 1)]))
    return model


W = [helper.make_tensor("w", TensorProto.FLOAT, [2], [1.0, 2.0])]
SHORT = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=[2], raw_data=b"1234567")
STRING = helper.make_tensor("w", TensorProto.STRING, [1], [b"a"])
HOSTILE: dict[str, tuple[Callable[[], onnx.ModelProto], str]] = {
    "absolute": (lambda: tiny(weights=[external("/etc/passwd")]), "outside its folder"),
    "parent": (lambda: tiny(weights=[external("../secret")]), "outside its folder"),
    "parent inside": (lambda: tiny(weights=[external("a/../../secret")]), "outside its folder"),
    "symbolic link": (lambda: tiny(weights=[external("link")]), "outside its folder"),
    "no location": (lambda: tiny(weights=[external("")]), "outside its folder"),
    "a place with a zero byte": (lambda: tiny(weights=[external("a\0b")]), "what is no file"),
    "a place without end": (lambda: tiny(weights=[external("a" * 5000)]), "what is no file"),
    "a name without end": (lambda: tiny([add("x", "w" * 10**6, "y")]), "nothing before it makes"),
    "missing data": (lambda: tiny(weights=[external("gone")]), "lacks its external data"),
    "beyond the data": (lambda: tiny(weights=[external("short", offset=4, length=8)]), "does not hold the data"),
    "negative offset": (lambda: tiny(weights=[external("short", offset=-8, length=8)]), "does not hold the data"),
    "offset of words": (lambda: tiny(weights=[external("short", offset="a")]), "does not hold the data"),
    "huge length": (lambda: tiny(weights=[external("short", length=1 << 60)]), "does not hold the data"),
    "data of another size": (lambda: tiny(weights=[external("short")]), "damaged"),
    "short weight": (lambda: tiny(weights=[SHORT]), "damaged"),
    "strings": (lambda: tiny(weights=[STRING]), "does not compute with"),
    "unknown operator": (lambda: tiny([helper.make_node("Frobnicate", ["x"], ["y"])], []), "no operator Frobnicate"),
    "unknown domain": (lambda: tiny([helper.make_node("A", ["x"], ["y"], domain="z")], []), "no operator z.A"),
    "unknown attribute": (lambda: tiny([helper.make_node("Relu", ["x"], ["y"], alpha=1)], []), "no attribute 'alpha'"),
    "cycle": (lambda: tiny([add("x", "b", "a"), add("a", "x", "b"), add("a", "b", "y")]), "nothing before it makes"),
    "itself": (lambda: tiny([add("y", "w", "y")]), "nothing before it makes"),
    "made twice": (lambda: tiny([add("x", "w", "y"), add("x", "x", "y")]), "made twice"),
    "writes an input": (lambda: tiny([add("x", "w", "x"), add("x", "w", "y")]), "made twice"),
    "two initializers": (lambda: tiny(weights=W * 2), "made twice"),
    "output of nobody": (lambda: tiny([add("x", "w", "z")]), "made by no node"),
    "opset 6": (lambda: tiny(opset=6), "opset 6"),
    "opset 99": (lambda: tiny(opset=99), "opset 99"),
    "a bomb of functions": (bomb, "nodes when its functions"),
    "recursion": (recursive, "calls itself"),
}


@rows("name", HOSTILE)
def test_hostile_files(name: str, tmp_path: Path) -> None:
    make, says = HOSTILE[name]
    folder = tmp_path / "inside"
    folder.mkdir()
    (tmp_path / "secret").write_bytes(b"12345678")
    (folder / "short").write_bytes(b"123456")
    os.symlink(tmp_path / "secret", folder / "link")
    (folder / "m.onnx").write_bytes(make().SerializeToString())
    with pytest.raises(LoadError, match=says) as caught:
        ox.export.load(folder / "m.onnx")
    assert "m.onnx" in str(caught.value)
    assert len(str(caught.value)) < 2500


def test_damaged_files(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    target = tmp_path / "damaged.onnx"
    for content in (b"", b"not a model", b"\x00" * 100, whole[: len(whole) // 2], whole[:-1][: len(whole) - 40]):
        target.write_bytes(content)
        with pytest.raises(LoadError):
            ox.export.load(target)
    for place in (tmp_path / "gone.onnx", tmp_path, "a\0b.onnx", tmp_path / ("a" * 5000)):
        with pytest.raises(LoadError):
            ox.export.load(place)


def test_every_truncation_is_an_error_or_a_model(path: Path, tmp_path: Path) -> None:
    whole = path.read_bytes()
    target = tmp_path / "cut.onnx"
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        target.write_bytes(whole[:length])
        with pytest.raises(LoadError):
            ox.export.load(target)
