"""Functions that pick, move, count and multiply, recorded at one size and run by ONNX Runtime at another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from rows import rows

import ox
from ox.graph.record.recording import record
from ox.graph.writer.write import to_model
from ox.tolerance import compare

F = ox.nn.functional
I = ox.tensor([0, 2, 1])  # noqa: E741
J = ox.tensor([1, 0, 0, 1])

# of x [n, 4] and y [4, n] in float32, at n = 3 and then at n = 5
CASES: dict[str, Callable[[Any, Any], Any]] = {
    "sort": lambda x, y: x.sort(0).values + x.argsort(0),
    "sort all": lambda x, y: y.sort(1, descending=True)[0],
    "topk": lambda x, y: x.topk(2, 0)[0],
    "kthvalue": lambda x, y: y.kthvalue(2, 1, True)[0],
    "take": lambda x, y: x.take(ox.tensor([0, -1, 5])),
    "index_select": lambda x, y: x.index_select(0, I) * x[I],
    "masked_select": lambda x, y: x.masked_select(x > 0),
    "mask": lambda x, y: x[x[:, 0] > -9] * x,
    "mask of elements": lambda x, y: x[x > 0].sum() / (x > 0).sum(),
    "nonzero": lambda x, y: (x > 0).nonzero(),
    "where": lambda x, y: ox.where(x > 0)[1],
    "index tensors": lambda x, y: x[I, J[:3]] + x[ox.tensor([-1]), 0],
    "index tensors apart": lambda x, y: x[None].expand(2, -1, 4)[[0, 1], :, [1, 2]],
    "negative ints": lambda x, y: x[-1, 1:] * y[:, -1][1:],
    "gather": lambda x, y: x.gather(1, (x > 0).long()),
    "take_along_dim": lambda x, y: ox.take_along_dim(x, x.argsort(0), 0),
    "scatter_reduce": lambda x, y: x.scatter_reduce(1, (x > 0).long(), y.T, "mean"),
    "scatter_reduce without": lambda x, y: x.scatter_reduce(1, (x > 0).long(), y.T, "amax", include_self=False),
    "index_add": lambda x, y: x.index_add(1, J, y.T),
    "index_copy": lambda x, y: x.index_copy(1, ox.tensor([3, 1, 0, 2]), y.T),
    "index_fill": lambda x, y: x.index_fill(0, I, 2.0),
    "index_put": lambda x, y: x.index_put((I, I), y[0, 0], accumulate=True),
    "put": lambda x, y: x.put(I, y[:3, 0]),
    "masked_scatter": lambda x, y: x.masked_scatter(x > 0, y),
    "select_scatter": lambda x, y: x.select_scatter(y[:, 0], 0, 1),
    "slice_scatter": lambda x, y: x.slice_scatter(y.T[1:], 0, 1),
    "tril": lambda x, y: x.tril() + x.triu(1),
    "diagonal": lambda x, y: x.diagonal()[:3].sum() + y.diagonal(-1).sum(),
    "diagonal below": lambda x, y: (x @ y).diagonal(-1) * (x @ y).diagonal(1),
    "diag": lambda x, y: x[:, 0].diag() @ x,
    "diag_embed": lambda x, y: ox.diag_embed(y, 1),
    "diagonal_scatter": lambda x, y: (x @ y).diagonal_scatter(x[:, 0]),
    "trace": lambda x, y: (x @ y).trace() * x,
    "roll": lambda x, y: x.roll(1, 0) + x.roll(-1, 0) + x.roll((1, 2), (1, 0)),
    "flip": lambda x, y: x.flip(0) + x.fliplr(),
    "rot90": lambda x, y: x.rot90() + x.rot90(-1),
    "movedim": lambda x, y: x.movedim(0, 1) * y,
    "tile": lambda x, y: x.tile(2, 2),
    "repeat_interleave": lambda x, y: x.repeat_interleave(2, 0) * y.T.repeat_interleave(2, dim=0),
    "repeat by counts": lambda x, y: x.repeat_interleave((x[:, 0] > 0).long() + 1, 0),
    "unfold": lambda x, y: x.unfold(0, 2, 1) + y.unfold(1, 2, 1).movedim(0, 1),
    "stacks": lambda x, y: ox.hstack([x, y.T]) + ox.column_stack([y.T, x]),
    "vstack": lambda x, y: ox.vstack([x, y.T]),
    "meshgrid": lambda x, y: ox.meshgrid(x[:, 0], y[0], indexing="xy")[0],
    "cartesian_prod": lambda x, y: ox.cartesian_prod(x[:, 0], y[:2, 0]),
    "block_diag": lambda x, y: ox.block_diag(x, y),
    "atleast_3d": lambda x, y: ox.atleast_3d(x),
    "unique": lambda x, y: ox.unique(x.sign()),
    "unique_consecutive": lambda x, y: ox.unique_consecutive(x.sign().flatten(), return_counts=True)[1],
    "bincount": lambda x, y: (x > 0).long().flatten().bincount(minlength=3),
    "histc": lambda x, y: x.histc(4, -1, 1),
    "histogram": lambda x, y: ox.histogram(x, 4).hist,
    "searchsorted": lambda x, y: ox.searchsorted(x[:, 0].sort()[0], y),
    "bucketize": lambda x, y: ox.bucketize(x, ox.tensor([-0.5, 0.0, 0.5]), right=True),
    "isin": lambda x, y: ox.isin((x * 3).long(), (y * 3).long()),
    "einsum": lambda x, y: ox.einsum("ij,jk->ik", x, y) + ox.einsum("...i,i...->...", x, y)[None],
    "einsum diagonal": lambda x, y: ox.einsum("ii->i", x @ y) * ox.einsum("ij,ji->i", x, y),
    "tensordot": lambda x, y: ox.tensordot(x, y, 1) + ox.inner(x, y.T),
    "outer": lambda x, y: ox.outer(x[:, 0], y[0]),
    "kron": lambda x, y: ox.kron(x, y),
    "cross": lambda x, y: ox.cross(x[:, :3], y.T[:, 1:], 1),
    "addmm": lambda x, y: ox.addmm(x[:, :1], x, y, beta=0.5, alpha=2),
    "addbmm": lambda x, y: ox.addbmm(x[:, :1], x[None], y[None]),
    "diff": lambda x, y: x.diff(dim=0) * y.diff().T,
    "gradient": lambda x, y: ox.gradient(x, dim=0, edge_order=2)[0],
    "trapezoid": lambda x, y: ox.trapezoid(x, dim=0) + ox.cumulative_trapezoid(y)[:, -1],
    "cov": lambda x, y: ox.cov(y) + ox.corrcoef(y),
    "cdist": lambda x, y: ox.cdist(x, y.T),
    "cdist by product": lambda x, y: ox.cdist(x, y.T, compute_mode="use_mm_for_euclid_dist"),
    "cosine_similarity": lambda x, y: F.cosine_similarity(x, y.T),
    "pairwise_distance": lambda x, y: F.pairwise_distance(x, y.T, 3),
    "one_hot": lambda x, y: F.one_hot((x > 0).long()),
    "embedding": lambda x, y: F.embedding((x > 0).long(), y, padding_idx=1),
    "embedding_bag": lambda x, y: F.embedding_bag((x > 0).long(), y),
    "bilinear": lambda x, y: F.bilinear(x, y.T, ox.arange(32.0).reshape(2, 4, 4) / 32),
    "masked_fill": lambda x, y: x.masked_fill(x > 0, 1.0),
    "expand_as": lambda x, y: x[:, :1].expand_as(x).reshape_as(y),
}

# made of what ONNX Runtime does not have in these types, or of what lies in the values
NO_GRADIENT = {"nonzero", "where", "unique", "unique_consecutive", "bincount", "histc", "histogram", "searchsorted"}
NO_GRADIENT |= {"bucketize", "isin", "one_hot"}


def inputs(n: int) -> list[Any]:
    rng = np.random.default_rng(n)
    return [rng.normal(size=s).astype(np.float32) for s in ((n, 4), (4, n))]


def check(step: Callable[..., Any]) -> None:
    """Recorded with n = 3, run with n = 5."""
    x, y = (ox.tensor(a) for a in inputs(3))
    graph = record(step, {"x": x, "y": y}, dims={"x": ["n", 4], "y": [4, "n"]})
    session = onnxruntime.InferenceSession(to_model(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    x, y = (ox.tensor(a) for a in inputs(5))
    expected = step(x, y)
    got = session.run(None, {"x": x.numpy(), "y": y.numpy()})
    for a, b in zip(got, expected if isinstance(expected, (list, tuple)) else [expected], strict=True):
        difference = compare(a, b.detach().numpy())
        assert difference.ok, f"off by {difference.max_abs}"


@rows("name", CASES)
def test_forward(name: str) -> None:
    check(CASES[name])


@rows("name", [name for name in CASES if name not in NO_GRADIENT])
def test_gradient(name: str) -> None:
    def step(x: Any, y: Any) -> Any:
        x, y = x.detach().requires_grad_(), y.detach().requires_grad_()
        out = CASES[name](x, y)
        found = ox.autograd.grad((out * out).sum(), [x, y], allow_unused=True)
        return [g for g in found if g is not None]

    check(step)
