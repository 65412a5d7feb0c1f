"""Recording: what ran is what is written, and nothing stays behind."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest
from rows import rows

import ox
from ox import nn, ops
from ox.errors import RecordError
from ox.graph.ir import Graph
from ox.graph.record.recording import Recording, record
from ox.graph.replay import replay
from ox.graph.writer.write import to_model


def x(rows: int = 2, columns: int = 4) -> Any:
    return ox.from_numpy(np.random.default_rng(rows).random((rows, columns), dtype=np.float32))


def kinds(graph: Graph) -> list[str]:
    return [node.op_type for node in graph.nodes]


def again(graph: Graph, *arrays: Any) -> list[np.ndarray]:
    return [t.numpy() for t in replay(graph, [ox.tensor(a) if not hasattr(a, "node") else a for a in arrays])]


def rows_of(function: Any, rows: int = 2) -> Graph:
    return record(function, {"x": x(rows)}, dims={"x": ["batch", 4]})


def check_at_other_sizes(function: Any) -> Graph:
    """The graph recorded at batch 2 gives what the function gives at other sizes."""
    graph = rows_of(function)
    for count in (1, 3, 7):
        expected = function(x(count))
        np.testing.assert_array_equal(again(graph, x(count))[0], expected.numpy())
    return graph


@rows(
    "function",
    [
        lambda x: x.reshape(x.shape[0], 2, -1),
        lambda x: x.reshape(x.shape[0] * 2, x.shape[1] // 2),
        lambda x: x.reshape((0 - -x.shape[0]) * x.shape[1]),
        lambda x: x.sum() / x.shape[0],
        lambda x: x * (x.shape[0] + 1) - (5 - x.shape[0]),
        lambda x: x + (7 // x.shape[0]),
        lambda x: x / x.numel(),
        lambda x: ox.zeros(x.shape[0], 3) + x[:, :1],
        lambda x: x[: x.shape[0] // 2 + 1].sum(0),
        lambda x: x[1 - x.shape[0] :].sum(0),
        lambda x: ox.arange(x.shape[0]).reshape(-1, 1) * x,
        lambda x: x[0].expand(x.shape[0], 4),
        lambda x: ox.cat([x, x]).reshape(2, x.shape[0], 4),
        lambda x: x.transpose(0, 1).reshape(4, x.shape[0]).sum(1),
    ],
)
def test_sizes_are_computed_in_the_graph(function: Any) -> None:
    check_at_other_sizes(function)


def test_a_dim_is_an_int() -> None:
    seen: list[Any] = []

    def looks(x: Any) -> Any:
        n = x.shape[0]
        seen.append((n, n + 1, 1 + n, n * 2, 2 * n, n - 1, 9 - n, n // 2, 9 // n, -n, n == 2, n < 3, int(n), n / 4))
        assert isinstance(n, ox.Dim) and not isinstance(x.shape[1], ox.Dim)
        assert type(int(n)) is int and hash(n) == hash(2)
        return x * 2

    graph = rows_of(looks)
    assert seen == [(2, 3, 3, 4, 4, 1, 7, 1, 4, -2, True, True, 2, 0.5)]
    assert kinds(graph) == ["Mul"], "a size that nobody needs records nothing"


def test_sizes_are_plain_once_it_is_over() -> None:
    kept: list[Any] = []

    def keeps(x: Any) -> Any:
        kept.extend([x * 2, x])
        return x + 1

    rows_of(keeps)
    assert all(type(size) is int for t in kept for size in t.shape)
    assert float(kept[0].sum()) > 0


def test_names() -> None:
    weight = ox.ones(4)
    graph = record(
        lambda a, b: {"mul": a * weight + b, "add": a}, {"a": x(), "b": x()}, constants={"relu.weight": weight}
    )
    assert [v.name for v in graph.inputs] == ["a", "b"] and [v.name for v in graph.outputs] == ["mul", "add"]
    assert [v.name for v in graph.owned] == ["relu.weight"]
    names = [v.name for v in graph.values()]
    assert len(names) == len(set(names))
    assert graph.nodes[-1].op_type == "Identity", "an output that is an input gets a node of its own"


def test_every_node_says_who_made_it() -> None:
    model = nn.Sequential(nn.Linear(4, 3), nn.ReLU())
    graph = record(model, {"x": x()})
    gemm = graph.nodes[0]
    assert gemm.module == "Sequential.0 (Linear)" and gemm.where.startswith("test_recording.py:")


def test_in_place_is_a_new_name() -> None:
    def writes(x: Any) -> Any:
        y = x * 2
        y += 1
        y.mul_(3)
        return y.relu_()

    graph = check_at_other_sizes(writes)
    assert kinds(graph) == ["Mul", "Add", "Mul", "Relu"]


def test_an_input_that_is_written() -> None:
    total = ox.zeros(4)

    def adds(x: Any, total: Any) -> Any:
        with ox.no_grad():
            total.add_(x.sum(0))
            total.mul_(2)
        return {"next": total}

    graph = record(adds, {"x": x(), "total": total}, dims={"x": ["batch", 4]}, restore=[total])
    np.testing.assert_array_equal(total.numpy(), np.zeros(4))
    assert total.version == 0
    np.testing.assert_allclose(again(graph, x(5), ox.ones(4))[0], 2 * (1 + x(5).numpy().sum(0)), rtol=1e-6)


def test_a_captured_tensor_that_is_written() -> None:
    count = ox.zeros(4)

    def counts(x: Any) -> Any:
        count.add_(1)
        count.add_(x.sum(0))
        return count * 1

    graph = record(counts, {"x": x()}, restore=[count])
    np.testing.assert_allclose(again(graph, x())[0], 1 + x().numpy().sum(0))


def view_after_write(x: Any) -> Any:
    y = x * 2
    view = y[-1]
    y.add_(1)
    return view


def part_of_part(x: Any) -> Any:
    y = x * 2
    rest, before = y[:-1, 1:], y.T[1]
    rest.T[0].mul_(10)
    y[0] += x[-1]
    y[:, [1, 3]] = x[:, :2] * 100
    y.view(-1)[x.shape[0] - 1 :][0] = -1
    before.add_(0.5)
    return ox.cat([y.flatten(), rest.flatten(), before])


def into_zeros(x: Any) -> Any:
    out = ox.zeros(x.shape[0], 4)
    for column in range(4):
        out[:, column].copy_(x[:, 3 - column])
    out.narrow(1, 0, 2).transpose(0, 1)[1] -= 1
    return out


def on_the_diagonal(x: Any) -> Any:
    y = x * 1
    y.diagonal().add_(1)
    y.t_()
    y.diagonal(1).zero_()
    y[y > 0.5] = 0.25
    y[-1:] *= 3
    return y


def several_views(x: Any) -> Any:
    y = x * 2
    a, b = y[:, :2], y.T.narrow(0, 2, 2)
    a.sub_(b.T)
    y.mul_(a[0, 0].clone())
    b.copy_(a.T)
    return y.flatten() + ox.cat([a, b.T], 1).flatten()


@rows("function", [view_after_write, part_of_part, into_zeros, on_the_diagonal, several_views])
def test_writes_through_views(function: Any) -> None:
    """Reads after a write see it, whichever of a tensor and its views was written, at any size."""
    graph = check_at_other_sizes(function)
    assert not [n for n in graph.nodes if n.op_type == "ScatterElements" and n.attributes["reduction"] != "none"]
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (1, 3, 7):
        (got,) = session.run(None, {"x": x(count).numpy()})
        np.testing.assert_array_equal(got, function(x(count)).numpy())


def test_gradients_of_writes_through_views_are_recorded() -> None:
    def slope(x: Any) -> Any:
        x = x.detach().requires_grad_()
        return ox.autograd.grad((into_zeros(x) * part_of_part(x).sum()).square().sum(), x)[0]

    graph = rows_of(slope)
    session = ort.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    for count in (2, 5):
        (got,) = session.run(None, {"x": x(count).numpy()})
        np.testing.assert_allclose(got, slope(x(count)).numpy(), rtol=1e-5)


def test_memory_that_is_detached_and_written_is_stale() -> None:
    def reads_after(x: Any) -> Any:
        y = x * 2
        y.detach().add_(1)
        return y

    with pytest.raises(RecordError, match="after its memory was written") as caught:
        rows_of(reads_after)
    assert "test_recording.py" in str(caught.value) and "add_" in str(caught.value)


def test_a_view_before_a_write_is_fine() -> None:
    def uses_before(x: Any) -> Any:
        y = x * 2
        total = y.transpose(0, 1).sum()
        y.add_(1)
        return y * total

    check_at_other_sizes(uses_before)


@rows("use", [bool, int, float, lambda t: t.item(), lambda t: t.tolist(), lambda t: t.numpy(), np.asarray])
def test_values_are_refused(use: Any) -> None:
    def uses(x: Any) -> Any:
        use(x.sum())
        return x

    with pytest.raises(RecordError, match="value of a tensor") as caught:
        rows_of(uses)
    assert "test_recording.py" in str(caught.value)
    assert use(x().sum()) is not None, "outside of a recording it is fine again"


def test_results_that_are_no_tensors() -> None:
    with pytest.raises(RecordError, match="no tensor"):
        rows_of(lambda x: 3)
    with pytest.raises(RecordError, match="names"):
        record(lambda x: (x, x), {"x": x()}, outputs=["one"])
    with pytest.raises(RecordError, match="dimensions"):
        record(lambda x: x, {"x": x()}, dims={"x": ["batch"]})


def test_a_failure_leaves_nothing_behind() -> None:
    given, weight = x(), ox.ones(4)
    state = ox.random.get_state()

    def fails(x: Any) -> Any:
        weight.add_(1)
        ox.rand(3)
        raise KeyError("mine")

    recording = Recording()
    with pytest.raises(KeyError):
        record(fails, {"x": given}, dims={"x": ["batch", 4]}, restore=[weight], recording=recording)
    assert kinds(recording.graph)[0] == "Add", "what ran until then can be looked at"
    np.testing.assert_array_equal(weight.numpy(), np.ones(4))
    assert ox.random.get_state() == state
    assert given._recorded is None and weight._recorded is None
    assert rows_of(lambda x: x * weight).nodes


def test_training_state_is_restored() -> None:
    model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    held = [*model.parameters(), *model.buffers()]
    before, state = [t.array.copy() for t in held], ox.random.get_state()

    def step(x: Any) -> Any:
        loss = model(x).sum()
        loss.backward()
        return loss

    graph = record(step, {"x": x()}, dims={"x": ["batch", 4]}, restore=held)
    for tensor, array in zip(held, before, strict=True):
        np.testing.assert_array_equal(tensor.array, array)
    assert ox.random.get_state() == state and all(p.grad is None for p in model.parameters())
    assert "BatchNormalization" in kinds(graph)
    loss = model(x()).sum()
    loss.backward()
    assert model[0].weight.grad is not None, "ordinary training goes on"


def test_gradients_record() -> None:
    def second(x: Any) -> Any:
        x = x * 1
        x.requires_grad_() if x.is_leaf else None
        y = ox.ones(4).requires_grad_()
        (first,) = ox.autograd.grad((x * y**3).sum(), y, create_graph=True)
        (twice,) = ox.autograd.grad(first.sum(), y)
        return twice

    check_at_other_sizes(second)


def test_a_recording_inside_a_recording() -> None:
    inner: list[Graph] = []

    def outer(x: Any) -> Any:
        y = x * 2
        inner.append(record(lambda z: z + y, {"z": ox.ones(2, 4)}))
        return y + 1

    graph = rows_of(outer)
    assert kinds(graph) == ["Mul", "Add"] and kinds(inner[0]) == ["Add"]
    assert len(inner[0].constants) == 1, "what the outer one computes is a constant to the inner one"


def test_another_thread_is_not_recorded() -> None:
    made: list[Any] = []

    def loads(x: Any) -> Any:
        worker = threading.Thread(target=lambda: made.append(ox.ones(3) * 7))
        y = x * 2
        worker.start()
        worker.join()
        return y + 1

    graph = rows_of(loads)
    assert kinds(graph) == ["Mul", "Add"] and made[0]._recorded is None


def test_two_threads_record_apart() -> None:
    graphs: dict[int, Graph] = {}
    barrier = threading.Barrier(2)

    def work(i: int) -> None:
        def function(x: Any) -> Any:
            for _ in range(20):
                x = ops.Add(x, x) if i else ops.Neg(x)
                barrier.wait(120)
            return x

        graphs[i] = rows_of(function)

    threads = [threading.Thread(target=work, args=(i,)) for i in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert kinds(graphs[0]) == ["Neg"] * 20 and kinds(graphs[1]) == ["Add"] * 20


def test_constants_are_copies() -> None:
    weight = ox.ones(4)
    graph = record(lambda x: x * weight, {"x": x()})
    weight.array[...] = 5
    np.testing.assert_array_equal(again(graph, x())[0], x().numpy())


def test_a_detached_parameter_is_the_parameter() -> None:
    weight = nn.Parameter(np.ones(4, np.float32))
    graph = record(lambda x: x * weight.detach() + weight, {"x": x()}, constants={"w": weight})
    assert [v.name for v in graph.constants] == ["w"]


def test_none_beside_tensors_is_no_output() -> None:
    graph = record(lambda t: (t + 1, None), {"x": x()})
    assert len(graph.outputs) == 1
    with pytest.raises(RecordError, match="is no tensor"):
        record(lambda t: None, {"x": x()})


def test_a_buffer_is_overwritten_through_another_tensor() -> None:
    last = ox.zeros(2, 4)

    def function(x: Any) -> Any:
        last.data.copy_(x)
        return last * 2

    graph = record(function, {"x": x()})
    np.testing.assert_array_equal(again(graph, x() + 1)[0], (x() * 2 + 2).numpy())
