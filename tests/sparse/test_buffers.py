"""Sparse buffers, as graph networks have them: moved, saved, loaded, copied, trained beside, recorded and exported."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from rows import rows

import ox
from ox import nn
from ox.errors import ArgumentError, DTypeError, LoadError

PLACES = np.array([[0, 0, 1, 2, 2, 3], [0, 1, 1, 0, 2, 3]])
VALUES = np.array([0.5, 0.5, 1.0, 0.3, 0.7, 1.0], np.float32)


def adjacency(scale: float = 1.0) -> ox.sparse.SparseTensor:
    return ox.sparse_coo_tensor(PLACES, VALUES * np.float32(scale), (4, 4)).coalesce()


class Graph(nn.Module):
    def __init__(self, adj: Any = None) -> None:
        super().__init__()
        self.register_buffer("adj", adjacency() if adj is None else adj)
        self.first, self.second = nn.Linear(5, 8), nn.Linear(8, 3)

    def forward(self, x: Any) -> Any:
        x = ox.spmm(self.adj, self.first(x)).relu()
        return ox.log_softmax(self.adj @ self.second(x), 1)


@pytest.fixture
def model() -> Graph:
    ox.manual_seed(0)
    return Graph()


X = np.random.default_rng(0).random((4, 5), dtype=np.float32)


def test_it_moves_with_its_module(model: Graph) -> None:
    assert model.double().adj.dtype == ox.float64 and model.adj._indices().dtype == ox.int64
    assert model.half().adj.dtype == ox.float16
    assert model.to("cpu", ox.float32).adj.is_sparse and model.adj.device == "cpu"
    assert model.adj.to_dense().shape == (4, 4) and isinstance(model.adj.shape, ox.Size)
    assert [name for name, _ in model.named_buffers()] == ["adj"]


def test_it_is_state(model: Graph, tmp_path: Path) -> None:
    other = Graph(adjacency(2))
    assert repr(other.load_state_dict(model.state_dict())) == "<All keys matched successfully>"
    assert other.adj.to_dense().tolist() == model.adj.to_dense().tolist()
    other.adj.mul_(3)
    assert model.adj.to_dense()[1, 1].item() == 1, "a copy, and not the same memory"
    ox.save({"model": model.state_dict(), "step": 3}, tmp_path / "state")
    found = ox.load(tmp_path / "state")["model"]
    assert found["adj"].is_coalesced() and found["adj"].shape == (4, 4)
    third = Graph(adjacency(5)).double()
    third.load_state_dict(found)
    assert third.adj.dtype == ox.float64
    np.testing.assert_allclose(third.adj.to_dense().numpy(), model.adj.to_dense().numpy())
    clone = copy.deepcopy(model)
    clone.adj.mul_(2)
    assert model.adj.to_dense()[1, 1].item() == 1
    model.adj = adjacency(4)
    assert model.state_dict()["adj"].to_dense()[1, 1].item() == 4
    with pytest.raises(ArgumentError, match="cannot assign"):
        model.adj = 3


@pytest.mark.parametrize(
    "given", [ox.ones(4, 4), ox.sparse_coo_tensor([[0], [0]], [1.0], (5, 5))], ids=["dense", "size"]
)
def test_a_state_that_does_not_fit(model: Graph, given: Any) -> None:
    with pytest.raises(LoadError, match="does not fit Graph") as caught:
        model.load_state_dict({**model.state_dict(), "adj": given})
    assert "adj" in caught.value.extra["shapes"]


def test_a_saved_one_is_checked(tmp_path: Path) -> None:
    import json

    from safetensors.numpy import save_file

    for index, size in (([[9], [0]], [4, 4]), ([[0], [0]], [4])):
        parts = {
            "tuple": [{"tensor": ["i", "int64", [2, 1]]}, {"tensor": ["v", "float32", [1]]}, {"tuple": size}, True]
        }
        arrays = {"i": np.array(index), "v": np.ones(1, np.float32)}
        save_file(arrays, tmp_path / "x", metadata={"ox.tree": json.dumps({"sparse": parts})})
        with pytest.raises(LoadError, match="cannot be read"):
            ox.load(tmp_path / "x")


def test_it_trains_and_follows_its_values(model: Graph) -> None:
    dense = model.adj.to_dense()
    x = ox.tensor(X, requires_grad=True)
    model(x).square().sum().backward()
    first, x.grad = x.grad.numpy().copy(), None
    hidden = (dense @ model.first(x)).relu()
    ox.log_softmax(dense @ model.second(hidden), 1).square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), first, rtol=1e-5, atol=1e-6)
    weights = ox.sparse_coo_tensor(PLACES, VALUES, (4, 4), requires_grad=True)
    ox.mm(weights, ox.tensor(X)).sum().backward()
    np.testing.assert_allclose(weights._values().grad.numpy(), X.sum(1)[PLACES[1]], rtol=1e-5)


def test_it_is_exported_as_values_under_its_name(model: Graph, tmp_path: Path) -> None:
    path = tmp_path / "graph.onnx"
    ox.export.save(model, path, X, dims={"x": [4, 5]})
    written = onnx.load(path)
    assert {t.name for t in written.graph.initializer} >= {"adj.values", "first.weight", "second.bias"}
    net = ox.export.load(path)
    np.testing.assert_allclose(net(ox.tensor(X)).detach().numpy(), model(ox.tensor(X)).detach().numpy(), atol=1e-5)
    assert "adj.values" not in [name for name, _ in net.named_parameters()], "a buffer stays one"


def test_batches_of_graphs_hold_at_other_sizes(tmp_path: Path) -> None:
    class Batched(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("adj", adjacency())
            self.out = nn.Linear(5, 2)

        def forward(self, x: Any) -> Any:
            flat = x.transpose(0, 1).reshape(4, -1)
            return self.out(ox.sparse.mm(self.adj, flat).reshape(4, x.shape[0], 5).transpose(0, 1))

    report = ox.export.save(Batched(), tmp_path / "b.onnx", ox.rand(6, 4, 5))
    assert [row.batch for row in report.rows if row.batch is not None] == [1, 2, 7]


def test_averaged_weights_keep_it(model: Graph) -> None:
    from ox.optim.swa_utils import AveragedModel

    for use_buffers in (False, True):
        average = AveragedModel(model, use_buffers=use_buffers)
        model.adj.mul_(2)
        average.update_parameters(model)
        average.update_parameters(model)
        assert average.module.adj.is_sparse and average.module.adj._values().tolist() == model.adj._values().tolist()


PRODUCTS = {
    "spmm": lambda a, x: ox.spmm(a, x), "sparse.mm": lambda a, x: ox.sparse.mm(a, x), "mm": lambda a, x: ox.mm(a, x),
    "matmul": lambda a, x: ox.matmul(a, x), "@": lambda a, x: a @ x, "method": lambda a, x: a.mm(x),
    "dsmm": lambda a, x: ox.dsmm(a, x), "smm": lambda a, x: ox.smm(a, x).to_dense(),
    "addmm": lambda a, x: ox.addmm(ox.zeros(4, 5), a, x), "mv": lambda a, x: ox.stack([ox.mv(a, c) for c in x.t()], 1),
    "dense first": lambda a, x: ox.mm(x.t(), a.t()).t(), "dense @": lambda a, x: (x.t() @ a.T).t(),
}  # fmt: skip


@rows("form", PRODUCTS)
def test_every_form_of_the_product(form: str) -> None:
    made = PRODUCTS[form](adjacency(), ox.tensor(X))
    np.testing.assert_allclose(made.numpy(), adjacency().to_dense().numpy() @ X, rtol=1e-6)


def test_sizes_that_do_not_fit_and_functions_that_take_dense_ones() -> None:
    for form in ("mm", "matmul", "@"):
        with pytest.raises(ox.errors.ShapeError, match="cannot multiply"):
            PRODUCTS[form](adjacency(), ox.ones(3, 5))
    with pytest.raises(DTypeError, match="stack takes dense tensors, got a sparse one") as caught:
        ox.stack([adjacency(), adjacency()])
    assert caught.value.hint is not None and "x.to_dense()" in caught.value.hint
    for wrong in (3, "a", None, [1.0]):
        with pytest.raises(ox.OxError):
            ox.mm(ox.ones(2, 2), wrong)


def test_older_names() -> None:
    places = ox.LongTensor(PLACES.tolist())
    made = ox.sparse.FloatTensor(places, ox.FloatTensor(VALUES.tolist()), ox.Size([4, 4]))
    assert made.to_dense().tolist() == adjacency().to_dense().tolist() and made.type() == "ox.sparse.FloatTensor"
    assert ox.sparse.DoubleTensor(places, VALUES, (4, 4)).dtype == ox.float64
    assert ox.sparse.LongTensor(places, ox.arange(6), (4, 4)).dtype == ox.int64
    assert ox.sparse_coo_tensor(size=(2, 3)).to_dense().tolist() == [[0] * 3] * 2
    assert ox.is_tensor(made) and not made.is_cuda and ox.eye(2).to_sparse_coo().is_sparse
