"""What an executable of the native engine gives, keeps and refuses."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from recorded_step import MODELS, OPTIMIZERS, Training, task_of

import ox
from ox import nn, ops
from ox.engines.engine import Task
from ox.engines.native import Native
from ox.errors import ArgumentError, BoundsError, DTypeError, ShapeError

RANDOM = np.random.default_rng(0)
X = RANDOM.random((3, 4), dtype=np.float32)


def run(function: Any, *arrays: Any, updates: dict[str, str] | None = None) -> list[Any]:
    """Outputs of the native engine for a function of inputs a, b, c ..."""
    inputs = {name: ox.from_numpy(array) for name, array in zip("abc", arrays, strict=False)}
    executable = Native().build(task_of(function, inputs, updates))
    return executable(list(arrays))


def test_the_state_is_written_in_place() -> None:
    a, b = X.copy(), X.copy()
    outputs = run(lambda a, b: {"next": a + b, "old": a * 2}, a, b, updates={"next": "a"})
    assert outputs[0] is a
    np.testing.assert_array_equal(a, X + X)
    np.testing.assert_array_equal(outputs[1], X * 2)
    np.testing.assert_array_equal(b, X)


def test_views_of_the_old_state_are_read_before_it_is_written() -> None:
    a = X.copy()
    function = lambda a: {"next": a + 1, "view": a.t(), "later": (a.t() * 3).exp()}  # noqa: E731
    _, view, later = run(function, a, updates={"next": "a"})
    np.testing.assert_array_equal(view, X.T)
    np.testing.assert_allclose(later, np.exp(3 * X.T), rtol=1e-5)
    np.testing.assert_array_equal(a, X + 1)
    assert not np.may_share_memory(view, a)


def test_two_states_are_exchanged() -> None:
    a, b = X.copy(), 2 * X
    run(lambda a, b: {"first": b, "second": a}, a, b, updates={"first": "a", "second": "b"})
    np.testing.assert_array_equal(a, 2 * X)
    np.testing.assert_array_equal(b, X)


def test_a_state_that_becomes_a_view_of_another_one() -> None:
    a, b = X[:3, :3].copy(), np.eye(3, dtype=np.float32)
    run(lambda a, b: {"first": b + 1, "second": a.t()}, a, b, updates={"first": "a", "second": "b"})
    np.testing.assert_array_equal(a, np.eye(3) + 1)
    np.testing.assert_array_equal(b, X[:3, :3].T)


def test_a_state_that_is_not_contiguous() -> None:
    a = np.zeros((4, 3), np.float32).T
    a[...] = X
    (out,) = run(lambda a: {"next": a * a}, a, updates={"next": "a"})
    assert out is a
    np.testing.assert_array_equal(a, X * X)


def test_results_are_the_callers() -> None:
    inputs = {"a": ox.from_numpy(X)}
    executable = Native().build(
        task_of(lambda a: {"same": a, "row": a[0], "sum": a + a, "flat": (a + a).flatten()}, inputs)
    )
    first = executable([X])
    for i, one in enumerate(first):
        assert not np.may_share_memory(one, X)
        assert not any(np.may_share_memory(one, other) for other in first[:i])
    kept = [each.copy() for each in first]
    executable([X + 1])
    for one, copy in zip(first, kept, strict=True):
        np.testing.assert_array_equal(one, copy)


def test_constants_keep_their_values() -> None:
    table = ox.from_numpy(X.copy())
    executable = Native().build(task_of(lambda a: {"table": table.t(), "sum": a + table}, {"a": ox.from_numpy(X)}))
    executable([X])[0][...] = 7
    np.testing.assert_array_equal(executable([X])[1], X + X)


def test_sizes_of_the_call_are_folded() -> None:
    task = task_of(lambda a: a.reshape(a.shape[1], -1) * a.shape[0], {"a": ox.from_numpy(X)})
    np.testing.assert_array_equal(Native().build(task)([X])[0], X.reshape(4, 3) * 3)


def test_sizes_that_depend_on_values() -> None:
    places = run(lambda a: ops.NonZero(ops.Greater(a, ops.ReduceMean(a, keepdims=0))) * 2, X)
    np.testing.assert_array_equal(places[0], 2 * np.array(np.nonzero(X.mean() < X)))
    executable = Native().build(task_of(lambda a: ops.NonZero(a) + 1, {"a": ox.from_numpy(X)}))
    other = np.where(X > 0.5, X, 0).astype(np.float32)
    np.testing.assert_array_equal(executable([other])[0], np.array(np.nonzero(other)) + 1)


@pytest.mark.parametrize("sign", [1, -1])
def test_control_flow(sign: int) -> None:
    def function(a: Any) -> Any:
        chosen = ox.cond((a.sum() > 0), lambda: a * 2, lambda: a)
        total, _ = ox.while_loop(lambda s, i: i < 3, lambda s, i: (s * 2 + a, i + 1), (chosen, ox.tensor(0)))
        return {"chosen": chosen, "total": total}

    x = sign * X
    task = task_of(function, {"a": ox.from_numpy(X)})
    chosen, total = Native().build(task)([x])
    want = function(ox.from_numpy(x))
    np.testing.assert_array_equal(chosen, want["chosen"].numpy())
    np.testing.assert_allclose(total, want["total"].numpy(), rtol=1e-6)
    assert not np.may_share_memory(chosen, x)


@pytest.mark.parametrize("dtype", [ox.float64, ox.float16, ox.bfloat16, ox.int32, ox.int64])
def test_element_types(dtype: Any) -> None:
    a = ox.from_numpy(10 * X).to(dtype)
    function = lambda a: {"sum": a + a * a, "larger": a > 3, "most": a.amax(1)}  # noqa: E731
    got = Native().build(task_of(function, {"a": a}))([a.array])
    for array, tensor in zip(got, function(a).values(), strict=True):
        assert array.dtype == tensor.array.dtype
        np.testing.assert_array_equal(array.astype(np.float64), tensor.array.astype(np.float64))


def test_other_arrays_than_were_recorded() -> None:
    executable = Native().build(task_of(lambda a: a + 1, {"a": ox.from_numpy(X)}))
    with pytest.raises(ShapeError, match=r"'a' has another shape") as shape:
        executable([X[:2]])
    assert shape.value.expected == "[3, 4]" and shape.value.got == "[2, 4]"
    with pytest.raises(DTypeError, match="another element type"):
        executable([X.astype(np.float64)])
    with pytest.raises(ArgumentError, match="'a' is no array"):
        executable([X.tolist()])
    with pytest.raises(ArgumentError, match="number of arrays"):
        executable([X, X])


def test_a_state_that_is_read_only() -> None:
    task = task_of(lambda a: {"next": a + 1}, {"a": ox.from_numpy(X)}, {"next": "a"})
    fixed = X.copy()
    fixed.flags.writeable = False
    with pytest.raises(ArgumentError, match="read-only"):
        Native().build(task)([fixed])
    np.testing.assert_array_equal(fixed, X)


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("wrong", [10, -1, 1 << 40])
def test_a_class_out_of_range(wrong: int) -> None:
    make, data = MODELS["MLP"]
    model = make()
    x, y = data(np.random.default_rng(0), 5)
    training = Training(model, OPTIMIZERS["SGD"](model.parameters()), (x, y))
    executable = Native().build(training.task)
    target = y.array.copy()
    target[2] = wrong
    arrays = training.arrays()
    with pytest.raises(ShapeError) as eager:
        training.step(x, ox.from_numpy(target))
    with pytest.raises(ShapeError, match="class out of range") as native:
        executable([x.array, target, *arrays])
    assert native.value.what == eager.value.what and native.value.got == eager.value.got == str(wrong)
    assert "recorded_step.py" in native.value.where


@pytest.mark.parametrize("wrong", [11, -12, 1 << 40])
def test_an_index_out_of_range(wrong: int) -> None:
    table = nn.Embedding(11, 64)
    inputs = {"a": ox.from_numpy(np.zeros((4, 5), np.int64)), "b": table.weight.detach()}
    executable = Native().build(task_of(lambda a, b: nn.functional.embedding(a, b), inputs))
    with pytest.raises(BoundsError):
        executable([np.full((4, 5), wrong), table.weight.array])


def test_building_leaves_the_graph_alone() -> None:
    task = task_of(lambda a: a.reshape(a.shape[1], -1).exp() + 1, {"a": ox.from_numpy(X)})
    before = repr(task.graph.nodes), dict(task.graph.constants)
    Native().build(task)
    assert (repr(task.graph.nodes), dict(task.graph.constants)) == before


def test_a_graph_without_nodes() -> None:
    graph = task_of(lambda a: a + 1, {"a": ox.from_numpy(X)}).graph
    graph.nodes, graph.outputs = [], list(graph.inputs)
    (out,) = Native().build(Task(graph))([X])
    np.testing.assert_array_equal(out, X)
    assert not np.may_share_memory(out, X)
