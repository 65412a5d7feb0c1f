"""Other people's files: functions, subgraphs, weights in odd places, and what training makes of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, LoadError, ShapeError
from ox.graph.reader.read import MOST_NODES

R = np.random.default_rng(1)
X = R.standard_normal((3, 4)).astype(np.float32)
FLOAT = TensorProto.FLOAT


def array(name: str, *shape: int) -> Any:
    return numpy_helper.from_array(np.random.default_rng(len(name)).standard_normal(shape).astype(np.float32), name)


def constant(name: str, *shape: int) -> Any:
    return helper.make_node("Constant", [], [name], value=array(name, *shape))


def info(name: str, *dims: Any) -> Any:
    return helper.make_tensor_value_info(name, FLOAT, list(dims) if dims else None)


def scalar(name: str, dtype: int) -> Any:
    return helper.make_tensor_value_info(name, dtype, [])


def file(nodes: list[Any], weights: Any = (), inputs: Any = (), outputs: Any = ("y",), **more: Any) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "g", [info("x", "n", 4), *inputs], [info(name) for name in outputs], list(weights))
    imports = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    return helper.make_model(graph, opset_imports=imports, ir_version=more.pop("ir_version", 9), **more)


def loaded(model: onnx.ModelProto, folder: Path, **named: Any) -> Any:
    """The module, which gives what ONNX Runtime gives for the file; and again after it was saved."""
    onnx.save(model, folder / "m.onnx")
    net = ox.export.load(folder / "m.onnx").eval()
    check(net, folder / "m.onnx", **named)
    return net


def check(net: Any, path: Path, **named: Any) -> None:
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    feeds = {"x": X, **named}
    got = net(**{k: ox.tensor(v) for k, v in feeds.items()})
    for y, e in zip(got if isinstance(got, tuple) else (got,), session.run(None, feeds), strict=True):
        np.testing.assert_allclose(y.detach().numpy(), e, atol=1e-5)


def branches() -> onnx.ModelProto:
    """An If whose branches hold weights of their own: an initializer, and a Constant under the same name."""
    then = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["t"])], "then", [], [info("t")], [array("w", 4, 2)]
    )
    other = helper.make_graph(
        [constant("w", 2, 4), helper.make_node("Gemm", ["x", "w", "shared"], ["o"], transB=1)], "else", [], [info("o")]
    )
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["r"], keepdims=0),
        helper.make_node("Greater", ["r", "zero"], ["yes"]),
        helper.make_node("If", ["yes"], ["q"], then_branch=then, else_branch=other),
        helper.make_node("Add", ["q", "shared"], ["y"]),
    ]
    return file(nodes, [array("shared", 2), numpy_helper.from_array(np.float32(0), "zero")])


def test_weights_of_branches(tmp_path: Path) -> None:
    net = loaded(branches(), tmp_path)
    assert {n for n, _ in net.named_parameters()} == {"shared", "w", "w_1"}
    assert {n for n, _ in net.named_buffers()} == {"zero"}, "one number of a formula is a setting"
    net(ox.tensor(-X * np.sign(X.sum()))).sum().backward()
    assert net.get_parameter("w_1").grad is not None and net.get_parameter("w").grad is None
    ox.export.save(net, tmp_path / "again.onnx", X)
    again = ox.export.load(tmp_path / "again.onnx")
    check(again, tmp_path / "m.onnx")
    ox.export.save(again, tmp_path / "third.onnx", X)
    assert onnx.load(tmp_path / "again.onnx").graph == onnx.load(tmp_path / "third.onnx").graph


def test_weights_in_constants(tmp_path: Path) -> None:
    """What feeds a product, moved about or not, is a parameter; a number of the code is none."""
    nodes = [
        constant("w", 4, 4),
        constant("b", 4),
        constant("half", 4),
        helper.make_node("Constant", [], ["factor"], value_float=0.5),
        helper.make_node("Transpose", ["w"], ["wt"], perm=[1, 0]),
        helper.make_node("MatMul", ["x", "wt"], ["p"]),
        helper.make_node("Add", ["p", "b"], ["q"]),
        helper.make_node("Mul", ["q", "factor"], ["s"]),
        helper.make_node("Mul", ["s", "half"], ["y"]),
    ]
    assert {n for n, _ in loaded(file(nodes), tmp_path).named_parameters()} == {"w", "b"}
    mine = file(nodes)
    mine.producer_name = "ox"
    assert not dict(loaded(mine, tmp_path).named_parameters()), "ox itself writes its parameters as initializers"


def test_tied_weights_and_statistics(tmp_path: Path) -> None:
    """An Identity of a weight is the weight: running statistics behind one are found, and move; a bias that is stored
    with them is none of them."""
    nodes = [
        helper.make_node("Identity", ["m"], ["mean"]),
        helper.make_node("Identity", ["w"], ["tied"]),
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("MatMul", ["a", "tied"], ["b"]),
        helper.make_node("BatchNormalization", ["b", "s", "m", "mean", "v"], ["y"]),
    ]
    weights = [array("w", 4, 4), array("s", 4), array("m", 4), numpy_helper.from_array(np.ones(4, np.float32), "v")]
    net = loaded(file(nodes, weights), tmp_path)
    assert {n for n, _ in net.named_parameters()} == {"w", "s", "m"}
    before = net.get_buffer("m_2").numpy().copy()
    net.train()(X)
    assert not np.array_equal(net.get_buffer("m_2").numpy(), before)
    np.testing.assert_array_equal(net.m.detach().numpy(), before)
    settled = net.eval()(X).detach().numpy()
    np.testing.assert_array_equal(net(X).detach().numpy(), settled)


def test_dropout_comes_alive(tmp_path: Path) -> None:
    ratio = numpy_helper.from_array(np.float32(0.5), "ratio")
    net = loaded(file([helper.make_node("Dropout", ["x", "ratio"], ["y"])], [ratio]), tmp_path)
    x = np.ones((100, 4), np.float32)
    np.testing.assert_array_equal(net(x).detach().numpy(), x)
    net.train()
    ox.manual_seed(1)
    y = net(x).detach().numpy()
    assert set(np.unique(y)) == {0.0, 2.0} and 100 < (y > 0).sum() < 300
    ox.manual_seed(1)
    np.testing.assert_array_equal(net(x).detach().numpy(), y)


def test_functions_with_attributes(tmp_path: Path) -> None:
    """References to attributes, defaults, a function in a function, an If inside one."""
    factor = helper.make_node("Constant", [], ["f"])
    factor.attribute.append(AttributeProto(name="value_float", ref_attr_name="factor", type=AttributeProto.FLOAT))
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    scaled = helper.make_function(
        "own", "Scaled", ["a"], ["b"], [factor, helper.make_node("Mul", ["a", "f"], ["b"])], opsets, ["factor"]
    )
    default = helper.make_attribute("factor", 3.0)
    with_default = helper.make_function(
        "own", "Again", ["a"], ["b"],
        [helper.make_node("Scaled", ["a"], ["c"], domain="own"), helper.make_node("Neg", ["c"], ["b"])],
        opsets, [], [default],
    )  # fmt: skip
    with_default.node[0].attribute.append(
        AttributeProto(name="factor", ref_attr_name="factor", type=AttributeProto.FLOAT)
    )
    negated = helper.make_graph([helper.make_node("Neg", ["a"], ["t"])], "then", [], [info("t")])
    kept = helper.make_graph([helper.make_node("Identity", ["a"], ["o"])], "else", [], [info("o")])
    choice = helper.make_node("If", ["c"], ["b"], then_branch=negated, else_branch=kept)
    chosen = helper.make_function("own", "Chosen", ["c", "a"], ["b"], [choice], opsets)
    nodes = [
        helper.make_node("Scaled", ["x"], ["a"], domain="own", factor=2.0),
        helper.make_node("Again", ["a"], ["b"], domain="own"),
        helper.make_node("Again", ["b"], ["c"], domain="own", factor=0.5),
        helper.make_node("ReduceSum", ["x"], ["r"], keepdims=0),
        helper.make_node("Greater", ["r", "zero"], ["yes"]),
        helper.make_node("Chosen", ["yes", "c"], ["y"], domain="own"),
    ]
    model = file(nodes, [numpy_helper.from_array(np.float32(0), "zero")], functions=[scaled, with_default, chosen])
    net = loaded(model, tmp_path)
    np.testing.assert_allclose(net(X).detach().numpy(), 3 * X * (-1 if X.sum() > 0 else 1), atol=1e-5)


def test_operators_that_only_have_a_body(tmp_path: Path) -> None:
    """What ox has no kernel for runs as the function body that ONNX gives."""
    nodes = [
        helper.make_node("Constant", [], ["size"], value_int=4),
        helper.make_node("HannWindow", ["size"], ["window"]),
        helper.make_node("Mul", ["x", "window"], ["y"]),
    ]
    loaded(file(nodes), tmp_path)


def test_initializers_that_may_be_given(tmp_path: Path) -> None:
    model = file([helper.make_node("Add", ["x", "w"], ["y"])], [array("w", 4)], [info("w", 4)])
    net = loaded(model, tmp_path)
    assert net.overridable == ("w",)
    other = np.ones(4, np.float32)
    check(net, tmp_path / "m.onnx", w=other)
    with pytest.raises(ShapeError, match="'w'"):
        net(X, w=np.ones(5, np.float32))
    ox.export.save(net, tmp_path / "again.onnx", X)
    assert [i.name for i in onnx.load(tmp_path / "again.onnx").graph.input] == ["x", "w"]
    check(ox.export.load(tmp_path / "again.onnx"), tmp_path / "m.onnx", w=other)
    old = file([helper.make_node("Add", ["x", "w"], ["y"])], [array("w", 4)], [info("w", 4)], ir_version=3)
    onnx.save(old, tmp_path / "old.onnx")
    with pytest.raises(ArgumentError):  # before IR 4 every initializer was listed so
        ox.export.load(tmp_path / "old.onnx")(X, w=other)


def test_the_order_of_inputs_is_kept(tmp_path: Path) -> None:
    model = file([helper.make_node("Add", ["x", "w"], ["y"])], [array("w", 4)], [info("w", 4)])
    model.graph.input.reverse()
    net = loaded(model, tmp_path)
    ox.export.save(net, tmp_path / "again.onnx", X)
    assert [i.name for i in onnx.load(tmp_path / "again.onnx").graph.input] == ["w", "x"]
    ox.export.save(ox.export.load(tmp_path / "again.onnx"), tmp_path / "third.onnx", X)
    assert onnx.load(tmp_path / "third.onnx").graph == onnx.load(tmp_path / "again.onnx").graph


@pytest.mark.parametrize(("given", "low", "high"), [(["x"], -9, 9), (["x", "lo"], 0, 9), (["x", "", "hi"], -9, 0.5)])
def test_an_input_that_a_call_leaves_out(given: list[str], low: float, high: float, tmp_path: Path) -> None:
    """It is missing inside the function, too, in a function that it calls and in a branch."""
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("own", 1)]
    names = ["a", "lo", "hi"]
    clip = helper.make_function("own", "C", names, ["b"], [helper.make_node("Clip", names, ["b"])], opsets)
    inner = helper.make_node("C", names, ["t"], domain="own")
    branches = {key: helper.make_graph([inner], key, [], [info("t")]) for key in ("then_branch", "else_branch")}
    outer = helper.make_function(
        "own", "D", ["c", *names], ["b"], [helper.make_node("If", ["c"], ["b"], **branches)], opsets
    )
    numbers = [numpy_helper.from_array(np.float32(v), name) for name, v in (("lo", 0), ("hi", 0.5))]
    numbers.append(numpy_helper.from_array(np.array(True), "yes"))
    nodes = [
        helper.make_node("C", given, ["h"], domain="own"),
        helper.make_node("D", ["yes", "h", *given[1:]], ["y"], domain="own"),
    ]
    onnx.save(file(nodes, numbers, functions=[clip, outer]), tmp_path / "m.onnx")
    net = ox.export.load(tmp_path / "m.onnx")
    np.testing.assert_array_equal(net(X).detach().numpy(), X.clip(low, high))


def test_settings_are_no_parameters(tmp_path: Path) -> None:
    """Bounds, scales, ratios, epsilons and exponents take no gradient, so they are buffers; weights of layers learn."""
    numbers = {"lo": -1.0, "hi": 1.0, "epsilon": 1e-5, "half": 0.5, "two": 2.0, "ratio": 0.1, "roi": [], "fill": 0.5}
    numbers |= {"scales": [1.0, 2.0], "half_of": [0.5, 1.0], "old": [3.0, 4.0]}
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h0"]),
        helper.make_node("Add", ["h0", "b"], ["h1"]),
        helper.make_node("Clip", ["h1", "lo", "hi"], ["h2"]),
        helper.make_node("Pow", ["h2", "two"], ["h3"]),
        helper.make_node("Add", ["h3", "epsilon"], ["h4"]),
        helper.make_node("Mul", ["h4", "half"], ["h5"]),
        helper.make_node("Dropout", ["h5", "ratio"], ["h6"]),
        helper.make_node("Div", ["scales", "half_of"], ["doubled"]),  # computed, and a setting all the same
        helper.make_node("Resize", ["h6", "roi", "doubled"], ["h7"], mode="linear"),
        helper.make_node("Pad", ["h7", "pads", "fill"], ["h8"]),
        helper.make_node("Mul", ["h8", "gain"], ["y"]),
        helper.make_node("ArgMax", ["y"], ["best"], axis=1),
    ]
    weights = [array("w", 4, 1), array("b", 1), array("gain", 4)]
    weights += [numpy_helper.from_array(np.array(v, np.float32), name) for name, v in numbers.items()]
    weights.append(numpy_helper.from_array(np.array([0, 1, 0, 1]), "pads"))
    model = file(nodes, weights)
    model.graph.output.append(helper.make_tensor_value_info("best", TensorProto.INT64, None))
    net = loaded(model, tmp_path)
    assert {n for n, _ in net.named_parameters()} == {"w", "b", "gain"}
    net.train()(X)[0].sum().backward()
    assert all(p.grad is not None for p in net.parameters())


def test_weights_before_an_operator_without_a_gradient(tmp_path: Path) -> None:
    nodes = [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("ArgMax", ["h"], ["y"], axis=1)]
    model = file(nodes, [array("w", 4, 3)])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert [n for n, _ in loaded(model, tmp_path).named_parameters()] == ["w"]


@pytest.mark.parametrize("opset", [9, 13, 17])
def test_a_file_in_training_mode(opset: int, tmp_path: Path) -> None:
    """It rests in eval mode, and does what it says in train mode; its running statistics move."""
    extra = {} if opset < 14 else {"training_mode": 1}
    outputs = ["n", "m2", "v2", *(["sm", "sv"] if opset < 14 else [])]
    nodes = [helper.make_node("BatchNormalization", ["x", "s", "b", "m", "v"], outputs, momentum=0.5, **extra)]
    nodes.append(helper.make_node("Dropout", ["n", "ratio", "on"] if opset > 12 else ["n"], ["y", "mask"]))
    weights = {"s": np.ones(4), "b": np.zeros(4), "m": np.full(4, 2.0), "v": np.full(4, 4.0), "ratio": np.float32(0.5)}
    stored = [numpy_helper.from_array(np.asarray(a, np.float32), name) for name, a in weights.items()]
    model = file(nodes, [*stored, numpy_helper.from_array(np.array(True), "on")], outputs=("y", "m2"))
    model.opset_import[0].version = opset
    onnx.save(model, tmp_path / "m.onnx")
    net = ox.export.load(tmp_path / "m.onnx")
    y, mean = net(X)
    np.testing.assert_allclose(y.detach().numpy(), (X - 2) / np.sqrt(4 + 1e-5), rtol=1e-4)
    np.testing.assert_array_equal(mean.numpy(), np.full(4, 2.0))
    np.testing.assert_array_equal(net.get_buffer("m").numpy(), np.full(4, 2.0))
    ox.manual_seed(0)
    y, mean = net.train()(X)
    expected = 1 + X.mean(0) / 2
    np.testing.assert_allclose(mean.detach().numpy(), expected, rtol=1e-4)
    np.testing.assert_allclose(net.get_buffer("m").numpy(), expected, rtol=1e-4)
    assert (y.detach().numpy() == 0).any(), "Dropout drops"
    y.sum().backward()


def sparse(indices: Any, dims: list[int], values: Any = (1.0, 2.0)) -> Any:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.array(values, np.float32), "sp"),
        numpy_helper.from_array(np.array(indices), "i"),
        dims,
    )


@pytest.mark.parametrize("indices", [[1, 6], [[0, 1], [1, 2]]])
def test_sparse_initializers(indices: Any, tmp_path: Path) -> None:
    model = file(
        [helper.make_node("MatMul", ["x", "spt"], ["y"]), helper.make_node("Transpose", ["sp"], ["spt"])][::-1]
    )
    model.graph.sparse_initializer.append(sparse(indices, [2, 4]))
    net = loaded(model, tmp_path)
    np.testing.assert_array_equal(net.get_parameter("sp").detach().numpy(), [[0, 1, 0, 0], [0, 0, 2, 0]])


@rows(
    ("tensor", "says"),
    [
        (lambda: sparse([1, 9], [2, 4]), "do not fit"),
        (lambda: sparse([[0, 1], [2, 2]], [2, 4]), "do not fit"),
        (lambda: sparse([1, -1], [2, 4]), "do not fit"),
        (lambda: sparse([1, 2, 3], [2, 4]), "do not fit"),
        (lambda: sparse([1, 2], [2**31, 2**31]), "too large"),
        (lambda: sparse([1, 2], [2, -4]), "too large"),
    ],
)
def test_sparse_initializers_that_lie(tensor: Any, says: str, tmp_path: Path) -> None:
    model = file([helper.make_node("Identity", ["x"], ["y"])])
    model.graph.sparse_initializer.append(tensor())
    onnx.save(model, tmp_path / "m.onnx")
    with pytest.raises(LoadError, match=says):
        ox.export.load(tmp_path / "m.onnx")


def huge() -> onnx.ModelProto:
    model = file([helper.make_node("Add", ["x", "w"], ["y"])], [array("w", 4)])
    model.graph.initializer[0].dims[:] = [2**31, 2**31]
    return model


def many() -> onnx.ModelProto:
    """Made of bytes, for protobuf takes a field that comes again as one more."""
    model = file([helper.make_node("Relu", ["x"], ["y"])])
    node = model.graph.node[0].SerializeToString()
    graph = model.graph.SerializeToString() + (b"\x0a" + bytes([len(node)]) + node) * MOST_NODES
    model.graph.ParseFromString(graph)
    return model


def deep(levels: int) -> onnx.ModelProto:
    def graph(k: int) -> Any:
        inner = helper.make_node("Identity", ["x"], [f"v{k}"])
        if k < levels:
            inner = helper.make_node("If", ["c"], [f"v{k}"], then_branch=graph(k + 1), else_branch=graph(levels))
        return helper.make_graph([inner], f"g{k}", [], [info(f"v{k}")])

    return file([helper.make_node("If", ["c"], ["y"], then_branch=graph(1), else_branch=graph(levels))],
                [numpy_helper.from_array(np.array(True), "c")])  # fmt: skip


HOSTILE: dict[str, tuple[Any, str]] = {
    "2^62 elements": (huge, "damaged"),
    "more nodes than are read": (many, "more than"),
    "ten levels": (lambda: deep(10), "nested too deeply"),
    "a misspelled operator": (lambda: file([helper.make_node("Relux", ["x"], ["y"])]), "no operator Relux"),
    "another runtime's operator": (
        lambda: file([helper.make_node("NhwcConv", ["x"], ["y"], domain="com.microsoft")]), "com.microsoft.NhwcConv",
    ),
    "attributes that are missing": (
        lambda: file([helper.make_node("MultiHeadAttention", ["x"], ["y"], domain="com.microsoft")]),
        "ox does not read com.microsoft.MultiHeadAttention without num_heads",
    ),
    "attributes that do not fit": (
        lambda: file([helper.make_node("SVMRegressor", ["x"], ["y"], domain="ai.onnx.ml", n_supports=2)]),
        "ox does not read ai.onnx.ml.SVMRegressor without coefficients",
    ),
    "an attribute of nobody": (lambda: file([helper.make_node("Relu", ["x"], ["y"], alpha=1.0)]), "attribute 'alpha'"),
    "an attribute of another type": (
        lambda: file([helper.make_node("Softmax", ["x"], ["y"], axis="one")]), "of another type",
    ),
    "no attribute at all": (lambda: file([helper.make_node("Cast", ["x"], ["y"])]), "needs the attribute 'to'"),
    "too few inputs": (lambda: file([helper.make_node("Add", ["x"], ["y"])]), "needs its input 'B'"),
    "too many inputs": (lambda: file([helper.make_node("Relu", ["x", "x"], ["y"])]), "too many inputs"),
    "too many outputs": (lambda: file([helper.make_node("Relu", ["x"], ["y", "z"])]), "too many outputs"),
    "a branch with inputs": (
        lambda: file([helper.make_node("If", ["c"], ["y"], then_branch=branch("x2"), else_branch=branch())],
                     [numpy_helper.from_array(np.array(True), "c")]), "does not fit",
    ),
    "a body without an end": (
        lambda: file([helper.make_node("Loop", ["", "c", "x"], ["y"], body=branch("i", "go", "h"))],
                     [numpy_helper.from_array(np.array(True), "c")]), "does not fit",
    ),
    "a sequence": (
        lambda: file([helper.make_node("Identity", ["x"], ["y"])], (),
                     [helper.make_tensor_sequence_value_info("s", FLOAT, [1])]), "no tensor",
    ),
    "a function of opset 2^62": (
        lambda: file([helper.make_node("F", ["x"], ["y"], domain="own")],
                     functions=[helper.make_function("own", "F", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])],
                                                     [helper.make_opsetid("", 2**62)])]), "opset",
    ),
}  # fmt: skip


def branch(*inputs: str) -> Any:
    name = f"b{len(inputs)}"
    return helper.make_graph(
        [helper.make_node("Identity", ["x"], [name])], "b", [info(i) for i in inputs], [info(name)]
    )


@rows("name", HOSTILE)
def test_bad_files(name: str, tmp_path: Path) -> None:
    make, says = HOSTILE[name]
    onnx.save(make(), tmp_path / "m.onnx")
    with pytest.raises(LoadError, match=says) as caught:
        ox.export.load(tmp_path / "m.onnx")
    assert "m.onnx" in str(caught.value)


def test_the_nearest_name(tmp_path: Path) -> None:
    onnx.save(file([helper.make_node("Relux", ["x"], ["y"], name="enc/act")]), tmp_path / "m.onnx")
    with pytest.raises(LoadError) as caught:
        ox.export.load(tmp_path / "m.onnx")
    assert "enc/act" in str(caught.value) and "nearest name is Relu" in str(caught.value)


def test_a_loop_trains(tmp_path: Path) -> None:
    """A recurrent cell in a Loop of somebody's file: gradients reach the weights that only the body reads."""
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["h", "w"], ["p"]),
            helper.make_node("Tanh", ["p"], ["h2"]),
            helper.make_node("Identity", ["go"], ["go2"]),
            helper.make_node("ReduceMean", ["h2"], ["row"], axes=[1], keepdims=0),
        ],
        "body",
        [scalar("i", TensorProto.INT64), scalar("go", TensorProto.BOOL), info("h", "n", 4)],
        [scalar("go2", TensorProto.BOOL), info("h2", "n", 4), info("row", "n")],
    )
    nodes = [
        helper.make_node("Constant", [], ["three"], value_int=3),
        helper.make_node("Loop", ["three", "", "x"], ["y", "rows"], body=body),
    ]
    net = loaded(file(nodes, [array("w", 4, 4)], outputs=("y", "rows")), tmp_path).train()
    optimizer = ox.optim.SGD(net.parameters(), lr=0.5)
    losses = []
    for _ in range(20):
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(net(X)[0], ox.tensor(X * 0.1))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    ox.export.save(net, tmp_path / "trained.onnx", X)
    check(net.eval(), tmp_path / "trained.onnx")


SILERO = importlib.util.find_spec("silero_vad")


@pytest.mark.skipif(SILERO is None, reason="the package silero-vad is not installed")
@pytest.mark.parametrize("rate", [16000, 8000])
def test_a_real_file(rate: int, tmp_path: Path) -> None:
    """A speech detector as its package brings it: two dozen Ifs, LSTMs, its weights in Constant nodes."""
    assert SILERO is not None and SILERO.submodule_search_locations
    path = Path(SILERO.submodule_search_locations[0]) / "data" / "silero_vad.onnx"
    feeds = {
        "input": R.standard_normal((2, 576 * rate // 16000)).astype(np.float32) / 3,
        "state": R.standard_normal((2, 2, 128)).astype(np.float32) / 3,
        "sr": np.array(rate),
    }
    options = ort.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    expected = ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"]).run(None, feeds)
    net = ox.export.load(path)
    assert sum(p.numel() for p in net.parameters()) > 500_000
    got = net(**{k: ox.tensor(v) for k, v in feeds.items()})
    for y, e in zip(got, expected, strict=True):
        np.testing.assert_allclose(y.detach().numpy(), e, atol=1e-5)
    got[0].sum().backward()
    assert sum(p.grad is not None for p in net.parameters()) >= 10
