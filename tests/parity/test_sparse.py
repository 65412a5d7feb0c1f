"""Sparse tensors, sparse gradients and the optimizers that take them, against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import ox
from ox import nn, optim

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")
pytestmark = pytest.mark.filterwarnings("ignore:.*[Ss]parse.*:UserWarning")

_random = np.random.default_rng(0)
INDEX = np.array([[0, 2, 1, 2, 0, 2], [1, 0, 3, 3, 1, 0]])
VALUES = _random.standard_normal(6).astype(np.float32)
ROWS = _random.standard_normal((6, 2)).astype(np.float32)
DENSE = _random.standard_normal((3, 4)).astype(np.float32)
RIGHT = _random.standard_normal((4, 5)).astype(np.float32)
WHOLE = np.where(_random.random((3, 4)) > 0.5, DENSE, 0)


GRAPH = """
T.spmm(a, x); T.sparse.mm(a, x); T.mm(a, x); T.matmul(a, x); a @ x; a.mm(x); a.matmul(x); T.mv(a, x[:, 0])
a.mv(x[:, 0]); T.addmm(T.ones(3, 5), a, x, beta=0.5, alpha=2); T.sparse.addmm(T.ones(3, 5), a, x)
a.T @ (a @ x); a.t() @ (a @ x)
T.spmm(a.coalesce(), x); a.to("cpu").to(T.float64) @ x.double(); (2 * a / 4) @ x; T.smm(a.detach(), x).to_dense()
T.mm(T.ones(2, 3), a) @ x; (T.ones(2, 3) @ a) @ x; T.sparse.sum(a, 1).to_dense() * x[:3, 0]; T.dsmm(a, x)
"""


@pytest.mark.parametrize("form", [form for line in GRAPH.strip().splitlines() for form in line.split("; ")])
def test_products_as_graph_networks_write_them(form: str) -> None:
    found = []
    for T, a in zip((ox, torch), both(), strict=True):
        x = T.tensor(RIGHT, requires_grad=True)
        made = eval(form, {"T": T, "a": a, "x": x})
        if made.requires_grad and "smm" not in form:
            made.square().sum().backward()
        found.append([made.detach().numpy(), *([] if x.grad is None else [x.grad.numpy()])])
    assert len(found[0]) == len(found[1])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-5)


def test_a_function_that_keeps_a_sparse_matrix() -> None:
    """As graph attention networks have it: the gradient of the entries by hand, from the saved matrix."""

    def product(T: Any) -> Any:
        class Product(T.autograd.Function):  # type: ignore[misc]
            @staticmethod
            def forward(ctx: Any, indices: Any, values: Any, shape: Any, b: Any) -> Any:
                a = T.sparse_coo_tensor(indices, values, shape)
                ctx.save_for_backward(a, b)
                ctx.N = shape[1]
                return T.matmul(a, b)

            @staticmethod
            def backward(ctx: Any, grad_output: Any) -> Any:
                a, b = ctx.saved_tensors
                dense = grad_output.matmul(b.t())
                places = a._indices()[0, :] * ctx.N + a._indices()[1, :]
                return None, dense.reshape(-1)[places], None, a.t().matmul(grad_output)

        return Product.apply

    found = []
    for T in (ox, torch):
        values, x = T.tensor(VALUES, requires_grad=True), T.tensor(RIGHT, requires_grad=True)
        product(T)(T.tensor(INDEX), values, T.Size([3, 4]), x).square().sum().backward()
        found.append([values.grad.numpy(), x.grad.numpy()])
    for got, expected in zip(*found, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-5)


def test_edges_that_are_dropped_and_normalized() -> None:
    """As LightGCN and NGCF drop edges, and as adjacency matrices are normalized."""

    def made(T: Any, a: Any) -> list[Any]:
        kept = T.tensor([True, False, True, True, False, True])
        dropped = T.sparse.FloatTensor(a._indices()[:, kept], a._values()[kept], a.shape).to(a.device) * (1.0 / 0.5)
        a = a.coalesce()
        again = T.sparse.FloatTensor(a.indices().t().t(), a.values() / 2, a.size()).coalesce()
        degree = T.sparse.sum(a * a, dim=1).to_dense().pow(-0.5)
        left = T.diag(degree).to_sparse()
        return [x.to_dense().numpy() for x in (dropped, again, T.sparse.mm(left, a), T.eye(3).to_sparse() - left)]

    for got, expected in zip(*[made(T, a) for T, a in zip((ox, torch), both(), strict=True)], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


def test_a_graph_network_with_a_sparse_buffer() -> None:
    """Three steps of Adam on both sides from the same weights; the states have the same names and shapes."""

    def network(T: Any, adj: Any) -> Any:
        class Net(T.nn.Module):  # type: ignore[misc]
            def __init__(self) -> None:
                super().__init__()
                self.register_buffer("adj", adj)
                self.one, self.two = T.nn.Linear(5, 8), T.nn.Linear(8, 2)

            def forward(self, x: Any) -> Any:
                x = T.nn.functional.relu(T.spmm(self.adj, self.one(x)))
                return T.nn.functional.log_softmax(T.sparse.mm(self.adj, self.two(x)), dim=1)

        return Net()

    sides = [network(T, a.coalesce()) for T, a in zip((ox, torch), both(size=(4, 4)), strict=True)]
    shapes = [{k: tuple(v.shape) for k, v in net.state_dict().items()} for net in sides]
    assert shapes[0] == shapes[1]
    state = {k: v for k, v in sides[1].state_dict().items() if k != "adj"}
    sides[0].load_state_dict({k: ox.tensor(v.numpy()) for k, v in state.items()}, strict=False)
    losses = []
    for T, net in zip((ox, torch), sides, strict=True):
        optimizer = T.optim.Adam(net.parameters(), lr=0.1)
        for _ in range(3):
            optimizer.zero_grad()
            loss = T.nn.functional.nll_loss(net(T.tensor(RIGHT)), T.tensor([0, 1, 1, 0]))
            loss.backward()
            optimizer.step()
        losses.append(loss.item())
    assert abs(losses[0] - losses[1]) < 1e-4


def both(values: Any = VALUES, size: Any = (3, 4), grad: bool = False, index: Any = INDEX) -> tuple[Any, Any]:
    return (
        ox.sparse_coo_tensor(ox.tensor(index), ox.tensor(values), size, requires_grad=grad),
        torch.sparse_coo_tensor(torch.tensor(index), torch.tensor(values), size, requires_grad=grad),
    )


def same(a: Any, b: Any) -> None:
    if getattr(b, "is_sparse", False):
        assert a.is_sparse and a.sparse_dim() == b.sparse_dim() and a.dense_dim() == b.dense_dim()
        if b.is_coalesced():
            assert (a.coalesce().indices().array == b.indices().numpy()).all()
        a, b = a.to_dense(), b.to_dense()
    a, b = np.asarray(a.detach().array), b.detach().numpy()
    assert a.shape == b.shape and a.dtype == b.dtype
    assert np.allclose(a, b, rtol=1e-5, atol=1e-6)


T = {"here": (ox, ox.tensor), "there": (torch, torch.tensor)}
EXPRESSIONS: list[Any] = [
    lambda s, x, t: s.coalesce(),
    lambda s, x, t: s.coalesce().values(),
    lambda s, x, t: s.to_dense(),
    lambda s, x, t: s.t(),
    lambda s, x, t: s.transpose(0, 1).coalesce(),
    lambda s, x, t: s + s,
    lambda s, x, t: s.coalesce() + s.coalesce(),
    lambda s, x, t: t(DENSE) + s,
    lambda s, x, t: s - s * 3,
    lambda s, x, t: -s * 2.5,
    lambda s, x, t: s / 2,
    lambda s, x, t: s * t(DENSE),
    lambda s, x, t: s * s.t().t(),
    lambda s, x, t: s.coalesce() ** 2,
    lambda s, x, t: s @ t(RIGHT),
    lambda s, x, t: s @ t(RIGHT[:, 0]),
    lambda s, x, t: t(RIGHT).t() @ s.t(),
    lambda s, x, t: s.mm(t(RIGHT)),
    lambda s, x, t: x.sparse.mm(s, t(RIGHT)),
    lambda s, x, t: x.sparse.mm(s, s.t()),
    lambda s, x, t: x.sparse.addmm(t(np.ones((3, 5), np.float32)), s, t(RIGHT), beta=2.0, alpha=0.5),
    lambda s, x, t: x.sparse.sum(s),
    lambda s, x, t: x.sparse.sum(s, 0),
    lambda s, x, t: x.sparse.sum(s, (0, 1)),
    lambda s, x, t: x.sparse.sum(s, dim=[-1], dtype=x.float64),
    lambda s, x, t: x.sparse.softmax(s, 1),
    lambda s, x, t: x.sparse.softmax(s, 0),
    lambda s, x, t: x.sparse.log_softmax(s, -1),
    lambda s, x, t: s.double(),
    lambda s, x, t: s.index_select(0, t(np.array([2, 0]))),
    lambda s, x, t: s.index_select(1, t(np.array([3, 3, 1]))),
    lambda s, x, t: t(WHOLE).to_sparse(),
    lambda s, x, t: t(WHOLE).to_sparse(1),
    lambda s, x, t: t(DENSE).sparse_mask(s.coalesce()),
    lambda s, x, t: x.sparse.spdiags(t(RIGHT[:3]), t(np.array([0, -1, 2])), (4, 5)),
    lambda s, x, t: x.sparse.spdiags(t(RIGHT[:1]), t(np.array([1])), (5, 4)),
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_values(expression: Any) -> None:
    s, r = both()
    same(expression(s, ox, ox.tensor), expression(r, torch, torch.tensor))


ROW_EXPRESSIONS: list[Any] = [
    lambda s, x: s.coalesce(),
    lambda s, x: s.to_dense(),
    lambda s, x: s + s,
    lambda s, x: x.sparse.sum(s, 2),
    lambda s, x: x.sparse.sum(s, (0, 2)),
    lambda s, x: x.sparse.sum(s, (0, 1)),
    lambda s, x: x.sparse.softmax(s, 2),
    lambda s, x: x.sparse.softmax(s, 0),
]


@pytest.mark.parametrize("expression", ROW_EXPRESSIONS)
def test_values_of_rows(expression: Any) -> None:
    """Entries that are vectors."""
    s, r = both(ROWS, (3, 4, 2))
    same(expression(s, ox), expression(r, torch))


def test_what_it_is() -> None:
    for a, b in [both(), both(ROWS, (3, 4, 2)), both(size=(4, 5))]:
        for name in ("sparse_dim", "dense_dim", "is_coalesced", "_nnz", "dim", "numel"):
            assert getattr(a, name)() == getattr(b, name)(), name
        assert a.shape == tuple(b.shape) and a.is_sparse == b.is_sparse and a.ndim == b.ndim
        assert a.size(0) == b.size(0) and len(a) == len(b)
    assert ox.sparse_coo_tensor(INDEX, VALUES).shape == tuple(torch.sparse_coo_tensor(INDEX, VALUES).shape)
    a, b = ox.sparse_coo_tensor((2, 3)), torch.sparse_coo_tensor((2, 3))
    assert a._nnz() == b._nnz() == 0
    same(a, b)


GRADIENTS: list[Any] = [
    lambda s, d, x: x.sparse.mm(s, d),
    lambda s, d, x: s.to_dense() @ d,
    lambda s, d, x: (s * 3.0).coalesce().to_dense() @ d,
    lambda s, d, x: x.sparse.sum(s * 2.0) * d,
    lambda s, d, x: x.sparse.mm(s.t(), d[:3]),
]


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradients(expression: Any) -> None:
    s, r = both(grad=True)
    d, e = ox.tensor(RIGHT).requires_grad_(), torch.tensor(RIGHT).requires_grad_()
    y, z = expression(s, d, ox), expression(r, e, torch)
    same(y, z)
    (y * y).sum().backward()
    (z * z).sum().backward()
    same(s.grad, r.grad)
    same(d.grad, e.grad)


WRONG: list[Any] = [
    lambda x, t: x.sparse_coo_tensor(t(INDEX), t(VALUES[:3])),
    lambda x, t: x.sparse_coo_tensor(t(INDEX), t(VALUES), (2, 4), check_invariants=True),
    lambda x, t: x.sparse_coo_tensor(t(-INDEX), t(VALUES), (3, 4), check_invariants=True),
    lambda x, t: x.sparse_coo_tensor(t(INDEX), t(VALUES), (3, 4)).indices(),
    lambda x, t: x.sparse_coo_tensor(t(INDEX), t(VALUES), (3, 4)).values(),
    lambda x, t: x.sparse_coo_tensor(t(INDEX), t(VALUES), (3, 4)) + x.sparse_coo_tensor((4, 4)),
    lambda x, t: x.sparse.mm(x.sparse_coo_tensor(t(INDEX), t(VALUES), (3, 4)), t(DENSE)),
    lambda x, t: x.sparse_coo_tensor(t(INDEX), t(ROWS), (3, 4, 2)).transpose(0, 2),
    lambda x, t: x.sparse_coo_tensor(t(INDEX), t(ROWS), (3, 4, 2)).t(),
    lambda x, t: t(DENSE).to_sparse(3),
]


@pytest.mark.parametrize("wrong", WRONG)
def test_both_refuse(wrong: Any) -> None:
    with pytest.raises((ValueError, RuntimeError, IndexError)):
        wrong(ox, ox.tensor)
    with pytest.raises((ValueError, RuntimeError, IndexError)):
        wrong(torch, torch.tensor)


def layers(kind: str, **options: Any) -> tuple[Any, Any]:
    there = getattr(torch.nn, kind)(9, 4, sparse=True, **options)
    here = getattr(nn, kind)(9, 4, sparse=True, **options)
    here.load_state_dict({k: v.numpy().copy() for k, v in there.state_dict().items()})
    return here, there


@pytest.mark.parametrize("options", [{}, {"padding_idx": 2}], ids=str)
def test_embedding(options: dict[str, Any]) -> None:
    here, there = layers("Embedding", **options)
    index = np.array([[1, 2, 2], [8, 1, 0]])
    for _ in range(2):  # the second backward adds up
        (here(ox.tensor(index)) ** 2).sum().backward()
        (there(torch.tensor(index)) ** 2).sum().backward()
    assert here.weight.grad._nnz() == there.weight.grad._nnz()
    same(here.weight.grad, there.weight.grad)


@pytest.mark.parametrize("mode", ["sum", "mean"])
def test_embedding_bag(mode: str) -> None:
    here, there = layers("EmbeddingBag", mode=mode)
    index, offsets = np.array([1, 2, 2, 8, 1, 0]), np.array([0, 2, 5])
    (here(ox.tensor(index), ox.tensor(offsets)) ** 2).sum().backward()
    (there(torch.tensor(index), torch.tensor(offsets)) ** 2).sum().backward()
    same(here.weight.grad, there.weight.grad)


OPTIMIZERS: list[tuple[str, dict[str, Any]]] = [
    ("SGD", {"lr": 0.1}),
    ("SGD", {"lr": 0.1, "maximize": True}),
    ("Adagrad", {"lr": 0.1, "lr_decay": 0.1, "initial_accumulator_value": 0.2}),
    ("SparseAdam", {"lr": 0.1}),
    ("SparseAdam", {"lr": 0.05, "betas": (0.8, 0.9), "maximize": True}),
]


@pytest.mark.parametrize(("name", "options"), OPTIMIZERS, ids=str)
def test_optimizers(name: str, options: dict[str, Any]) -> None:
    here, there = layers("Embedding")
    one = getattr(optim, name)(here.parameters(), **options)
    other = getattr(torch.optim, name)(there.parameters(), **options)
    rng = np.random.default_rng(1)
    for _ in range(6):
        index = rng.integers(0, 9, 5)
        one.zero_grad()
        other.zero_grad()
        (here(ox.tensor(index)) ** 2).sum().backward()
        (there(torch.tensor(index)) ** 2).sum().backward()
        ours = nn.utils.clip_grad_norm_(here.parameters(), 3.0)
        theirs = np.linalg.norm(there.weight.grad.coalesce().values().numpy())
        there.weight.grad *= min(1.0, 3.0 / (theirs + 1e-6))
        assert ours.item() == pytest.approx(theirs, rel=1e-5)
        one.step()
        other.step()
        same(here.weight, there.weight)
    for key, value in other.state_dict()["state"].get(0, {}).items():
        if isinstance(value, torch.Tensor) and name != "SGD":
            same(one.state_dict()["state"][0][key], value)


@pytest.mark.parametrize(
    ("name", "options"),
    [("Adam", {}), ("AdamW", {}), ("RMSprop", {}), ("SGD", {"weight_decay": 0.1}), ("Adagrad", {"weight_decay": 0.1})],
    ids=str,
)
def test_the_others_refuse_sparse_gradients(name: str, options: dict[str, Any]) -> None:
    for room, layer, index in zip(
        (optim, torch.optim), layers("Embedding"), (ox.tensor([1, 2]), torch.tensor([1, 2])), strict=True
    ):
        layer(index).sum().backward()
        with pytest.raises(RuntimeError):
            getattr(room, name)(layer.parameters(), **options).step()


def test_sparse_adam_refuses_dense_gradients() -> None:
    for room, t, tensor in ((optim, nn.Parameter, ox.ones), (torch.optim, torch.nn.Parameter, torch.ones)):
        p = t(tensor(2))
        p.grad = tensor(2)
        with pytest.raises(RuntimeError):
            room.SparseAdam([p]).step()
