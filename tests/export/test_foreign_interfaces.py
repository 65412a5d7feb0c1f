"""Files of other tools: names, shapes and empty inputs that ox would not write, and subgraphs in an older opset."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper, numpy_helper

import ox
from ox.errors import ExportError

R = np.random.default_rng(0)
node = helper.make_node


def info(name: str, shape: Sequence[Any] | None = ("n", 3), kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def normal(*shape: int) -> Any:
    return R.standard_normal(shape).astype(np.float32)


def write(path: Path, nodes: Any, inputs: Any, outputs: Any, stored: dict[str, Any], opset: int = 17) -> None:
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", inputs, outputs, tensors)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8), path)


def run(path: Path, **feed: Any) -> list[Any]:
    return list(ort.InferenceSession(str(path)).run(None, feed))


@pytest.mark.parametrize(
    "name", ["training", "training.weight", "..", ".", "a..b", "forward", "graph", "_parameters", ""]
)
def test_names_that_no_attribute_can_have(name: str, tmp_path: Path) -> None:
    """They are the file's after it is loaded, trained and saved."""
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    name = name or " "
    write(before, [node("MatMul", ["x", name], ["y"])], [info("x")], [info("y", ("n", 2))], {name: normal(3, 2)})
    net = ox.export.load(before)
    assert [key for key, _ in net.named_parameters()] == [name] == list(net.state_dict())
    assert net.train().training and not net.eval().training
    ox.export.save(net, after, normal(2, 3))
    assert [t.name for t in onnx.load(after).graph.initializer] == [name]
    x = normal(2, 3)
    assert np.array_equal(*(run(path, x=x)[0] for path in (before, after)))


@pytest.mark.parametrize("kind", ["input", "initializer"])
@pytest.mark.parametrize("optimize", [None, "inference"])
def test_an_output_that_is_an_input_or_initializer(kind: str, optimize: str | None, tmp_path: Path) -> None:
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    further = info("x") if kind == "input" else info("W", (3, 2))
    nodes = [node("MatMul", ["x", "W"], ["y"])]
    write(before, nodes, [info("x")], [info("y", ("n", 2)), further], {"W": normal(3, 2)})
    ox.export.save(ox.export.load(before), after, normal(2, 3), optimize=optimize)
    assert [o.name for o in onnx.load(after).graph.output] == ["y", further.name]
    x = normal(4, 3)
    for y, z in zip(run(before, x=x), run(after, x=x), strict=True):
        assert np.allclose(y, z, atol=1e-6)


def test_an_input_without_a_declared_shape(tmp_path: Path) -> None:
    before, after = tmp_path / "a.onnx", tmp_path / "b.onnx"
    write(before, [node("MatMul", ["x", "W"], ["y"])], [info("x", None)], [info("y", None)], {"W": normal(3, 2)})
    assert str(ox.export.inspect(before).inputs[0]) == "x FP32 [...]"
    assert ox.export.save(ox.export.load(before), after, normal(2, 3)).dims == "x [batch, 3] → y [batch, 2]"
    report, proof = ox.export.convert(before, after)
    assert report.contract.inputs[0].dims[1] == 3 and {row.batch for row in proof.rows} >= {1, 2}
    assert ox.export.prove(before).rows
    write(before, [node("Conv", ["x", "W"], ["y"])], [info("x", None)], [info("y", None)], {"W": normal(2, 3, 3, 3)})
    assert len(ox.export.convert(before, after)[0].contract.inputs[0].dims) == 4


def test_clip_without_limits_before_opset_11(tmp_path: Path) -> None:
    """Its limits are the largest numbers of float32, so that an infinity becomes a number, as in ONNX Runtime."""
    x = np.array([[np.inf, -np.inf, 1.0]], np.float32)
    for attributes in ({}, {"min": 0.0}, {"max": 5.0}):
        write(tmp_path / "a.onnx", [node("Clip", ["x"], ["y"], **attributes)], [info("x")], [info("y")], {}, opset=7)
        got = ox.export.load(tmp_path / "a.onnx")(ox.from_numpy(x)).numpy()
        assert np.array_equal(got, run(tmp_path / "a.onnx", x=x)[0])
    half = [info(name, ("n", 3), TensorProto.FLOAT16) for name in "xy"]  # for which ONNX Runtime has no old Clip
    write(tmp_path / "a.onnx", [node("Clip", ["x"], ["y"])], half[:1], half[1:], {}, opset=7)
    assert ox.export.load(tmp_path / "a.onnx")(ox.from_numpy(x.astype(np.float16))).isinf().sum() == 2


def test_an_opset_that_lacks_grid_sample(tmp_path: Path) -> None:
    ends = [info("x", (2, 3, 5, 5)), info("g", (2, 4, 4, 2))]
    write(tmp_path / "a.onnx", [node("GridSample", ["x", "g"], ["y"], mode="nearest")], ends, [info("y", None)], {})
    with pytest.raises(ExportError, match=r"GridSample does not exist in opset 13"):
        ox.export.convert(tmp_path / "a.onnx", tmp_path / "b.onnx", opset=13)
    ox.export.convert(tmp_path / "a.onnx", tmp_path / "b.onnx", opset=16)


@pytest.mark.parametrize("version", [11, 12, 13, 18])
@pytest.mark.parametrize("place", ["initializer", "constant", "branch"])
def test_an_empty_tensor_of_a_resize_is_none(version: int, place: str, tmp_path: Path) -> None:
    """An empty roi, and empty scales beside sizes or empty sizes beside scales; as exporters of opset 11 wrote them."""
    x = normal(1, 3, 4, 4)
    for chosen in ("sizes", "scales"):
        stored = {"roi": np.zeros(0, np.float32), "scales": np.zeros(0, np.float32), "sizes": np.array([1, 3, 8, 8])}
        if chosen == "scales":
            stored.update(scales=np.float32([1, 1, 2, 2]), sizes=np.zeros(0, np.int64))
        inputs = ["x", "roi", "scales", "sizes"][: 4 if chosen == "sizes" else 3]
        nodes = [node("Resize", inputs, ["y"], mode="linear", coordinate_transformation_mode="half_pixel")]
        made = [node("Constant", [], [key], value=numpy_helper.from_array(array)) for key, array in stored.items()]
        if place == "constant":
            nodes = [*made, *nodes]
        if place == "branch":
            body = helper.make_graph(nodes, "then", [], [info("y", None)])
            other = helper.make_graph([node("Neg", ["x"], ["z"])], "else", [], [info("z", None)])
            nodes = [node("If", ["on"], ["y"], then_branch=body, else_branch=other)]
        kept = {} if place == "constant" else {**stored, **({"on": np.bool_(True)} if place == "branch" else {})}
        ends = [info("x", (1, 3, 4, 4))], [info("y", (1, 3, 8, 8) if place != "branch" else None)]
        write(tmp_path / "a.onnx", nodes, *ends, kept, version)
        net = ox.export.load(tmp_path / "a.onnx")
        expected = run(tmp_path / "a.onnx", x=x)[0]
        assert np.allclose(net(ox.from_numpy(x)).numpy(), expected, atol=1e-6)
        ox.export.save(net, tmp_path / "b.onnx", x)
        for opset in (13, 17, 21):
            ox.export.convert(tmp_path / "a.onnx", tmp_path / "c.onnx", opset=opset)
            assert np.allclose(run(tmp_path / "c.onnx", x=x)[0], expected, atol=1e-6)


# nodes from r [4] to q, the opset that they are written in, and an older one that says it otherwise
SAID_OTHERWISE = {
    "ReduceSumSquare": ([node("ReduceSumSquare", ["r", "axes"], ["q"], keepdims=0)], 18, 17),
    "ReduceMax": ([node("ReduceMax", ["r", "axes"], ["q"], keepdims=0)], 20, 13),
    "Split in equal parts": (
        [node("Split", ["r"], ["a", "b"], num_outputs=2), node("Sub", ["a", "b"], ["q"])], 18, 13,
    ),
    "Split with a rest": (
        [node("Split", ["r"], ["a", "b", "c"], num_outputs=3), node("Concat", ["a", "c"], ["q"], axis=0)], 18, 17,
    ),
    "Reshape": ([node("Reshape", ["r", "shape"], ["q"], allowzero=1)], 18, 13),
    "Shape": ([node("Shape", ["r"], ["s"], start=0, end=1), node("Cast", ["s"], ["q"], to=1)], 18, 13),
}  # fmt: skip
NUMBERS = {"axes": np.array([0]), "shape": np.array([2, 2])}


@pytest.mark.parametrize("where", ["inside", "outside"])
@pytest.mark.parametrize("kind", ["Scan", "Loop", "If"])
@pytest.mark.parametrize("name", SAID_OTHERWISE)
def test_an_older_opset_inside_a_subgraph(name: str, kind: str, where: str, tmp_path: Path) -> None:
    nodes, opset, older = SAID_OTHERWISE[name]
    stored = {key: array for key, array in NUMBERS.items() if any(key in n.input for n in nodes)}
    inside = [numpy_helper.from_array(a, key) for key, a in stored.items()] if where == "inside" else []
    outside: dict[str, Any] = {} if where == "inside" else dict(stored)
    if kind == "Scan":
        ends = [info("st", []), info("r", [4])], [info("st2", []), info("q", None)]
        body = helper.make_graph([*nodes, node("Identity", ["st"], ["st2"])], "body", *ends, inside)
        outer = [node("Scan", ["zero", "x"], ["last", "y"], body=body, num_scan_inputs=1)]
        outside["zero"] = np.float32(0)
    elif kind == "Loop":  # without a condition, and nothing carried
        ends = (
            [info("i", [], TensorProto.INT64), info("on", [], TensorProto.BOOL)],
            [info("on2", [], TensorProto.BOOL), info("q", None)],
        )
        first = node("Gather", ["x", "i"], ["r"])
        body = helper.make_graph([first, *nodes, node("Identity", ["on"], ["on2"])], "body", *ends, inside)
        outer = [node("Loop", ["two", ""], ["y"], body=body)]
        outside["two"] = np.int64(2)
    else:
        then = helper.make_graph(nodes, "then", [], [info("q", None)], inside)
        other = helper.make_graph([node("Neg", ["r"], ["n"])], "else", [], [info("n", None)])
        outer = [node("Gather", ["x", "first"], ["r"]), node("If", ["on"], ["y"], then_branch=then, else_branch=other)]
        outside |= {"on": np.bool_(True), "first": np.int64(0)}
    write(tmp_path / "a.onnx", outer, [info("x", ("n", 4))], [info("y", None)], outside, opset)
    ox.export.convert(tmp_path / "a.onnx", tmp_path / "b.onnx", opset=older)
    assert onnx.load(tmp_path / "b.onnx").opset_import[0].version == older
    x = normal(3, 4)
    assert np.array_equal(*(run(path, x=x)[0] for path in (tmp_path / "a.onnx", tmp_path / "b.onnx")))
