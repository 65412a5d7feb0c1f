"""Control flow in recordings: what the eager code gives, replayed and on ONNX Runtime, with gradients of two orders."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from controlled import W, check, number, twice, x
from onnx import helper, numpy_helper
from rows import rows

import ox
from ox.autograd import grad
from ox.errors import ArgumentError, ExportError, OxError, RecordError, ShapeError
from ox.graph.compare import find_leak
from ox.graph.passes.shape_inference import simplify
from ox.graph.record.recording import record
from ox.graph.replay import replay


def branches(x: Any) -> Any:
    return ox.cond(x.sum() > 0, lambda: (x @ W).tanh(), lambda: (x * W[0]).reshape(x.shape[0], 2, 2).flatten(1).sin())


def test_cond() -> None:
    graph = check(branches, (x(2),), (x(3),), (x(4),), (-x(4),))
    assert sum(n.op_type == "If" for n in graph.nodes) == 1
    (node,) = [n for n in graph.nodes if n.op_type == "If"]
    assert {v.name for v in node.inputs[1:]} == {"in0", "w"}, "what branches read are inputs of the node"


def test_cond_has_gradients() -> None:
    check(twice(branches), (x(2),), (x(3),), (-x(3),))


def test_a_branch_that_reads_one_of_two() -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        y = ox.cond(x.sum() > 0, lambda: x * 2, lambda: W[:1] * 3)
        return y.sum(), *grad(y.sum() + 0 * x.sum() + 0 * W.sum(), [x, W])

    check(step, (x(1),), (-x(1),))


def test_branches_of_different_sizes() -> None:
    def step(x: Any) -> Any:
        y = ox.cond(x.sum() > 0, lambda: x, lambda: x[:1])
        return y * y.shape[0], ox.zeros(y.shape[0])

    check(step, (x(4),), (-x(4),), (x(3),))


def loop(x: Any, n: Any) -> Any:
    h, rows = ox.ops.Loop(n, None, x, body=lambda i, go, h: (go, (h @ W).tanh() + x * i, h.sum(1)))
    return ox.cat([h.flatten(), rows.flatten()])


def test_loop() -> None:
    check(loop, (x(3), number(3)), (x(2), number(1)), (x(5), number(4)), (x(2), number(0)))


def test_loop_has_gradients() -> None:
    check(twice(loop), (x(3), number(3)), (x(2), number(1)))


def test_while_loop() -> None:
    def grows(x: Any) -> Any:
        x = x.detach().requires_grad_()
        i, y = ox.while_loop(lambda i, y: (y * y).sum() < 50, lambda i, y: (i + 1, y * 1.5), (0, x))
        return i, y.detach(), *grad(y.sum(), [x])

    check(grows, (x(3),), (x(2) * 0.01,), (x(5) * 100,))


def test_a_carried_value_may_grow() -> None:
    def grows(x: Any, n: Any) -> Any:
        (h,) = ox.ops.Loop(n, None, x, body=lambda i, go, h: (go, ox.cat([h, ox.ones(2, 4)])))
        return h * h.shape[0]

    check(grows, (x(3), number(2)), (x(3), number(0)), (x(2), number(5)))


def test_a_carried_value_that_grows_has_no_gradient_in_a_recording() -> None:
    def step(x: Any) -> Any:
        x = x.detach().requires_grad_()
        (h,) = ox.ops.Loop(number(2), None, x, body=lambda i, go, h: (go, ox.cat([h, h])))
        return h

    assert step(x(2)).shape == (8, 4)
    with pytest.raises(OxError, match="no gradient in a recording"):
        record(step, {"x": x(2)})


def folded(x: Any) -> Any:
    last, ys = ox.scan(lambda h, a: (((h + a) @ W).tanh(), {"p": h * a}), x[0] * 0, x)
    return ox.cat([last.unsqueeze(0), ys["p"]])


def test_scan() -> None:
    check(folded, (x(3),), (x(1),), (x(6),))


def test_scan_has_gradients() -> None:
    check(twice(folded), (x(3),), (x(5),))


def test_scan_directions_and_axes() -> None:
    def both(x: Any) -> Any:
        (h,), ys = ox.scan(lambda c, a: ((c[0] + a,), c[0] * a), (x[:, 0] * 0,), x, dim=1, reverse=True)
        return h, ys

    check(both, (x(3),), (x(5),))
    h, ys = both(x(3))
    a = x(3).numpy()
    before = np.cumsum(np.concatenate([np.zeros((3, 1)), a[:, :0:-1]], 1), 1)[:, ::-1]
    np.testing.assert_allclose(h.numpy(), a.sum(1), atol=1e-5)
    np.testing.assert_allclose(ys.numpy(), (before * a).T, atol=1e-5)


def test_inside_each_other() -> None:
    def step(x: Any) -> Any:
        def inner(c: Any, a: Any) -> Any:
            y = ox.cond(a.sum() > 0, lambda: a @ W + c, lambda: c * x.shape[0])
            return y, y.sum()

        return ox.scan(inner, x[0] * 0, x)[0]

    check(step, (x(3),), (x(5),))
    check(twice(lambda x: step(x).unsqueeze(0)), (x(3),), (x(4),))


def test_eager_code_just_runs() -> None:
    seen: list[str] = []
    ox.cond(True, lambda: seen.append("yes"), lambda: seen.append("no"))
    ox.cond(ox.tensor(False), lambda: seen.append("yes") or ox.ones(1), lambda: seen.append("no") or ox.ones(1))
    assert seen == ["yes", "no"]
    w = ox.ones(2).requires_grad_()
    (y,) = ox.while_loop(lambda v: v.sum() < 10, lambda v: (v * w * 2,), (ox.ones(2),))
    y.sum().backward()
    np.testing.assert_array_equal(w.grad.numpy(), [24, 24])


@rows(
    ("function", "says"),
    [
        (lambda x: ox.cond(x.sum() > 0, lambda: x, lambda: x.sum()), r"float32 \[3, 4\]; the false one float32 \[\]"),
        (lambda x: ox.cond(x.sum() > 0, lambda: x, lambda: x > 0), "the false one bool"),
        (lambda x: ox.cond(x.sum() > 0, lambda: x, lambda: (x, x)), r"the false one float32 \[3, 4\], float32"),
        (
            lambda x: ox.cond(x.sum() > 0, lambda: [x], lambda: (x,)),
            r"the true one \[tensor\], the false one \(tensor\)",
        ),
        (lambda x: ox.cond(x.sum() > 0, lambda: x.add_(1), lambda: x), "writes in place"),
        (lambda x: ox.cond(x.sum() > 0, lambda: ox.rand(3), lambda: ox.ones(3)), "random numbers"),
        (lambda x: ox.while_loop(lambda a: a.sum() < 3, lambda a: (a, a), (x,)), "does not return"),
        (lambda x: ox.while_loop(lambda a: a.sum() < 3, lambda a: a.sum(), (x,)), "does not return"),
        (lambda x: x if x.sum() > 0 else -x, "ox.cond"),
        (lambda x: ox.scan(lambda h, a: (h.sum(), a), x[0], x), "given next"),
    ],
)
def test_what_a_recording_refuses(function: Any, says: str) -> None:
    with pytest.raises(RecordError, match=says) as caught:
        record(function, {"x": x(3)})
    assert "test_control.py" in (caught.value.where or "")


def test_conditions_are_one_bool() -> None:
    for bad in (x(3) > 0, x(1).sum()):
        with pytest.raises(ArgumentError, match="no single bool"):
            ox.cond(bad, lambda: x(3), lambda: x(3))


def test_what_a_branch_made_stays_inside() -> None:
    kept: list[Any] = []

    def leaks(x: Any) -> Any:
        ox.cond(x.sum() > 0, lambda: kept.append(x * 2) or x, lambda: x)
        return kept[-1] + 1

    with pytest.raises(RecordError, match="used outside"):
        record(leaks, {"x": x(3)})


def test_leaks_inside_are_found(tmp_path: Any) -> None:
    def fixed(x: Any) -> Any:
        return ox.cond(x.sum() > 0, lambda: x * int(x.shape[0]), lambda: x)

    with pytest.raises(ExportError, match="baked") as caught:
        ox.export.save(fixed, tmp_path / "m.onnx", x(5).numpy())
    assert "received the constant 2.0, then 3.0" in str(caught.value)


def test_two_recordings_are_one_graph() -> None:
    graphs = [record(branches, {"x": x(n)}, dims={"x": ["n", 4]}, constants={"w": W}) for n in (2, 3)]
    assert find_leak(*graphs) is None


def test_copies_are_apart() -> None:
    graph = record(branches, {"x": x(2)}, constants={"w": W})
    before = [v.name for v in graph.values()]
    copy = graph.copy()
    simplify(copy)
    assert [v.name for v in graph.values()] == before
    np.testing.assert_array_equal(replay(graph, [x(2)])[0].numpy(), replay(copy, [x(2)])[0].numpy())


def test_what_nobody_needs_goes() -> None:
    def wasteful(x: Any) -> Any:
        y, _ = ox.cond(x.sum() > 0, lambda: (x * 2, x @ W), lambda: (x, W))
        _, _, zs = ox.ops.Scan(x[0], x, body=lambda h, a: (h + a, h @ W, h * a), num_scan_inputs=1)
        return y, zs

    graph = check(wasteful, (x(2),), (x(3),))
    simplify(graph)
    assert {v.name for n in graph.nodes for v in n.inputs if v} >= {"in0"} and not graph.owned
    assert [len(n.outputs) for n in graph.nodes if n.op_type in ("If", "Scan")] == [1, 2]


def test_a_known_condition_is_decided() -> None:
    def known(x: Any) -> Any:
        return ox.cond(ox.tensor(4) > x.shape[1] - 2, lambda: x * 2, lambda: x.sum(0, keepdim=True))

    graph = record(known, {"x": x(1, 1)}, dims={"x": ["n", 1]})
    simplify(graph)
    assert [n.op_type for n in graph.nodes] == ["Mul"]


def test_a_size_of_many_decides(tmp_path: Any) -> None:
    """Exporters ask Shape, take one size out of it and branch: where that size is fixed, so is the branch."""

    def branch(name: str, op: str) -> Any:
        return helper.make_graph([helper.make_node(op, ["x", "two"], [name])], name, [], [out(name)])

    def out(name: str) -> Any:
        return helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, None)

    def constant(name: str, value: Any) -> Any:
        return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(np.array(value), name))

    nodes = [
        constant("one", 1),
        constant("four", 4),
        constant("two", np.float32(2)),
        helper.make_node("Shape", ["x"], ["sizes"]),
        helper.make_node("Gather", ["sizes", "one"], ["size"]),
        helper.make_node("Equal", ["size", "four"], ["is_four"]),
        helper.make_node("If", ["is_four"], ["y"], then_branch=branch("t", "Mul"), else_branch=branch("e", "Add")),
    ]
    ends = helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["n", "m"])
    model = helper.make_model(
        helper.make_graph(nodes, "g", [ends], [out("y")]), opset_imports=[helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, tmp_path / "m.onnx")
    net = ox.export.load(tmp_path / "m.onnx")
    ox.export.save(net, tmp_path / "fixed.onnx", x(5).numpy(), dims={"x": ["n", 4]})
    assert [n.op_type for n in onnx.load(tmp_path / "fixed.onnx").graph.node] == ["Constant", "Mul"]
    ox.export.save(net, tmp_path / "open.onnx", x(5).numpy(), dims={"x": ["n", "m"]})
    assert "If" in [n.op_type for n in onnx.load(tmp_path / "open.onnx").graph.node]


@rows("pred", [None, "a", 1.5, 1, np.ones(2, bool), np.ones(1)])
def test_what_decides_nothing(pred: Any) -> None:
    with pytest.raises(ArgumentError, match="condition of cond must be a bool") as caught:
        ox.cond(pred, lambda: x(2), lambda: x(3))
    assert "test_control.py" in str(caught.value)


def test_bools_decide_in_eager_code() -> None:
    for pred in (True, np.bool_(True), np.array([True]), ox.tensor(True)):
        assert ox.cond(pred, lambda a: a + 1, lambda a: a, (x(2),)).shape == x(2).shape


@rows(
    ("call", "says"),
    [
        (lambda: ox.cond(ox.tensor(True), 3, 4), "true_fn is no function"),
        (lambda: ox.cond(True, lambda: 1, 4), "false_fn is no function"),
        (lambda: ox.cond(ox.tensor(True), lambda a: a, lambda: 1), "true_fn takes other arguments"),
        (lambda: ox.cond(True, lambda a: a, lambda a, b: a, (x(2),)), "false_fn takes other arguments"),
        (lambda: ox.cond(True, lambda a: a, lambda a: a, 3), "operands of cond"),
        (lambda: ox.while_loop(lambda: True, lambda a: a, (x(2),)), "cond_fn takes other arguments"),
        (lambda: ox.while_loop(lambda a: a.sum() < 3, lambda a, b: a, (x(2),)), "body_fn takes other arguments"),
        (lambda: ox.while_loop(lambda a: a.sum() < 3, None, (x(2),)), "body_fn is no function"),
        (lambda: ox.while_loop(lambda a: a.sum() < 3, lambda a: a, 3), "while_loop carries"),
        (lambda: ox.scan(lambda a: a, x(2), x(2)), "combine_fn takes other arguments"),
    ],
)
def test_functions_of_other_arguments(call: Any, says: str) -> None:
    with pytest.raises(ArgumentError, match=says) as caught:
        call()
    assert "test_control.py" in str(caught.value)


def test_a_branch_on_a_size_is_recorded_as_a_tensor() -> None:
    def by_size(x: Any) -> Any:
        return ox.cond(x.shape[0] > 3, lambda: x * 2, lambda: x)

    with pytest.raises(RecordError, match="bool of Python") as caught:
        record(by_size, {"x": x(2)})
    assert "test_control.py" in str(caught.value) and "ox.ops.Shape" in str(caught.value)
    assert np.array_equal(by_size(x(2)).numpy(), x(2).numpy())
    check(lambda x: ox.cond(ox.ops.Shape(x)[0] > 3, lambda: x * 2, lambda: x), (x(2),), (x(5),), (x(3),))


def test_there_is_an_axis_to_scan() -> None:
    for given, dim in ((x(3), 5), (x(3).sum(), 0)):
        with pytest.raises(ShapeError, match="no axis") as caught:
            ox.scan(lambda h, a: (h, a), x(3)[0], given, dim=dim)
        assert "test_control.py" in (caught.value.where or "")
