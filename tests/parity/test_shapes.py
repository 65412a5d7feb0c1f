"""Moving, joining, cutting and diagonals, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split

R = np.random.default_rng(3)
ARRAYS = {
    "m": R.normal(size=(3, 4)).astype(np.float32),
    "n": R.normal(size=(3, 4)).astype(np.float32),
    "q": R.normal(size=(4, 4)).astype(np.float32),
    "k": R.normal(size=(2, 3, 4)).astype(np.float32),
    "x": R.normal(size=(3, 4)),
    "v": R.normal(size=(4,)),
    "a": R.normal(size=(3,)).astype(np.float32),
    "i": R.integers(-4, 5, (3, 4)),
    "j": np.array([1, 2, 3]),
    "r": np.array([2, 0, 3]),
    "b": R.random((3, 4)) > 0.5,
    "z": np.array(2.5, np.float32),
    "e": np.zeros((0, 3), np.float32),
}

VALUES = """
m.tril(); m.triu(); T.tril(k, 1); T.triu(k, -1); m.tril(diagonal=-2); b.triu(); i.tril(5); i.triu(-9); q.tril().triu()
T.tril_indices(3, 4); T.triu_indices(3, 4, 1); T.tril_indices(4, 3, offset=-1); T.triu_indices(2, 2, dtype=T.int32)
T.tril_indices(0, 3); T.triu_indices(3, 3, 5); a.diag(); m.diag(); m.diag(1); m.diag(-1); a.diag(2); a.diag(-1)
m.diag(4); T.diag(i); T.diag(j, 1); b.diag(); m.diagonal(); k.diagonal(0, 1, 2); k.diagonal(1, 0, 2)
k.diagonal(-1, -2, -1); T.diagonal(m, 2); m.diagonal(-3); m.diagonal(offset=9); k.diagonal(dim1=2, dim2=0)
T.diag_embed(a); T.diag_embed(m, 1); T.diag_embed(k, -2, 0, 2); i.diag_embed(); m.diag_embed(dim1=0, dim2=-1)
T.diag_embed(b); T.diagflat(m); a.diagflat(1); z.diagflat(); T.trace(m); q.trace(); i.trace(); T.diagonal_scatter(m, a)
T.diagonal_scatter(m, a[:2], -1); T.diagonal_scatter(k, m[:2, :3], 0, 1, 2); i.diagonal_scatter(j, 1)
T.select(k, 1, 2); k.select(-1, -1); T.select_scatter(m, a, 1, 2); T.select_scatter(m, m[0], 0, -1)
k.select_scatter(m, 0, 1); T.slice_scatter(m, m[:2], 0, 1); T.slice_scatter(m, m[:, :2], 1, 0, 4, 2)
m.slice_scatter(n, 0); T.slice_scatter(m, n[:1], 0, -2, -1); T.roll(m, 1); m.roll(1, 0); m.roll(-1, 1)
m.roll((1, 2), (0, 1)); m.roll(7, 1); m.roll(0, 0); m.roll(-9, 0); z.roll(1); e.roll(1, 0)
k.roll(shifts=(2, -1), dims=(-1, 0)); T.roll(i, 5); b.roll(1, 1); m.fliplr(); m.flipud(); T.fliplr(k); T.flipud(a)
m.flip(0, 1); m.flip((1,)); m.rot90(); m.rot90(2); m.rot90(3); m.rot90(-1); m.rot90(4); k.rot90(1, (1, 2))
T.rot90(k, 1, [2, 0]); T.rot90(i, 5); k.movedim(0, 2); k.movedim((0, 1), (1, 2)); T.movedim(k, -1, 0)
T.moveaxis(k, 1, 0); k.moveaxis([0, 2], [2, 0]); z.movedim((), ()); k.swapaxes(0, 1); k.swapdims(-1, 0)
T.swapaxes(m, 0, 1); k.mT; k.permute(2, 0, 1); m.tile(2); m.tile((2, 1, 2)); T.tile(a, (2, 2)); m.tile(1, 3); z.tile(3)
m.tile(()); m.tile(0, 1); T.tile(i, (2,)); k.tile((2,)); a.repeat_interleave(2); m.repeat_interleave(2, 0)
m.repeat_interleave(r, 0); T.repeat_interleave(m, 2); T.repeat_interleave(r); m.repeat_interleave(3, dim=-1)
a.repeat_interleave(T.tensor([2])); m.repeat_interleave(r, dim=0, output_size=5); m.repeat_interleave(0, 1)
z.repeat_interleave(3); m.unfold(1, 2, 1); m.unfold(0, 2, 1); k.unfold(2, 3, 2); m.unfold(1, 4, 3); a.unfold(0, 2, 1)
m.unfold(1, 1, 2); i.unfold(-1, 2, 2); m.as_strided((2, 2), (1, 2)); m.as_strided((3, 2), (2, 1), 1)
T.as_strided(a, (2, 2), (1, 1)); m.as_strided((), (), 3); a.as_strided((3, 3), (0, 1)); T.hstack([m, n])
T.vstack([m, n]); T.dstack([m, n]); T.column_stack([a, m]); T.row_stack([m, n]); T.hstack([a, a]); T.vstack([a, a])
T.dstack([a, a]); T.hstack([z, a]); T.column_stack((a, a)); T.hstack((k, k)); T.vstack((z, z)); T.column_stack([z, z])
m.tensor_split(2); m.tensor_split(3, 1); T.tensor_split(m, (1, 3), 1); T.tensor_split(a, [1])
m.tensor_split((2, 1), dim=1); T.tensor_split(a, 5); T.tensor_split(m, T.tensor(2))
T.tensor_split(m, T.tensor([1, 2])); m.hsplit(2); m.vsplit(3); k.dsplit(2); m.hsplit([1, 3]); a.hsplit(3)
T.vsplit(m, [1]); T.dsplit(k, [1, 2]); m.split_with_sizes([1, 2]); m.unsafe_split(2, 1); m.unsafe_chunk(2)
T.unsafe_split(m, 2); T.unsafe_chunk(m, 2, 1); m.chunk(3, 1); m.split([1, 3], 1); T.atleast_1d(z); T.atleast_2d(a)
T.atleast_3d(m); T.atleast_3d(a); T.atleast_2d(z, a, m); T.atleast_1d([z, a]); T.atleast_3d(z); T.atleast_2d(k)
m.ravel(); k.view_as(k.reshape(6, 4)); m.reshape_as(k[0].T); a.unsqueeze(1).expand_as(m); z.ravel(); T.ravel(m.T)
T.broadcast_tensors(m, a[:, None]); T.broadcast_tensors(z, m, k); tuple(T.broadcast_shapes((2, 1), (1, 3), (3,)))
tuple(T.broadcast_shapes((), (4,))); T.meshgrid(a, j.float(), indexing="ij"); T.meshgrid(j, r, indexing="xy")
T.meshgrid([j, r, j], indexing="ij"); T.meshgrid(j, r, j[:2], indexing="xy"); T.meshgrid(j)
T.meshgrid(z, a, indexing="ij"); T.cartesian_prod(j, r); T.cartesian_prod(j); T.cartesian_prod(j, r[:2], j[:1])
T.combinations(j); T.combinations(a, 3); T.combinations(j, 2, True); T.combinations(a, 1); T.combinations(j, 4)
T.block_diag(m, a, z); T.block_diag(i, j); T.block_diag(m); T.block_diag(q, m, q); T.block_diag(i, a)
T.broadcast_to(a[:, None], (3, 2)); m.expand(2, -1, -1); T.unravel_index(T.tensor([3, 7]), (3, 4))
T.unravel_index(T.tensor(11), (2, 3, 4)); T.unravel_index(j, (10,))
"""

GRADIENTS = """
x.tril() * v; x.triu(1) ** 2; x.diagonal() * v[:3]; x.diagonal(1) ** 2; x.diagonal(-1); v.diag() @ v; x.diag()
T.diag_embed(x, 1) ** 2; T.diag_embed(x.T, -1, 0, 1) ** 2; T.diagonal_scatter(x, v[:3]) ** 2; x.trace() * v
T.select_scatter(x, v, 0, 1) * x; T.slice_scatter(x, x[:1] ** 2, 0, 1, 2)
T.slice_scatter(x, x[:, ::2] ** 2, 1, 0, 4, 2); x.roll(1, 0) * x; x.roll((1, -2), (0, 1)) * x; x.roll(3) * x
x.fliplr() * x; x.rot90() ** 2; x.rot90(3) ** 2; x.movedim(0, 1) ** 2; x.swapaxes(0, 1) @ x; x.tile(2, 1) ** 2
v.tile((2, 2)) ** 2; x.repeat_interleave(2, 0) ** 2; x.repeat_interleave(r, 0) ** 2; v.repeat_interleave(3) ** 2
x.unfold(1, 2, 1) ** 2; x.unfold(0, 2, 1) ** 2; v.unfold(0, 3, 1) ** 2; v.as_strided((3, 2), (1, 1)) ** 2
x.as_strided((2, 3), (1, 2), 1) ** 2; T.hstack([x, x ** 2]); T.vstack([x, v ** 2]); T.dstack([x, x ** 2])
T.column_stack([v, v ** 2]); x.tensor_split((1, 3), 1)[1] ** 2; x.hsplit(2)[0] * x.hsplit(2)[1]; x.vsplit(3)[1] * v
T.atleast_3d(x) ** 2; x.ravel() ** 2; v.expand_as(x) * x; T.meshgrid(v, x[0], indexing="ij")[0] ** 2
T.meshgrid(v, x[0], indexing="xy")[1] ** 2; T.cartesian_prod(v, x[0]) ** 2; T.combinations(v) ** 2
T.combinations(v, 3) ** 2; T.block_diag(x, v) ** 2; T.broadcast_tensors(x, v)[1] ** 2; T.stack([x[0], v]) ** 2
x.select(0, 1) * v
"""

ERRORS = """
a.tril(); z.triu(); T.tril_indices(-1, 3); k.diag(); z.diag(); a.diagonal(); k.diagonal(0, 1, 1)
T.diag_embed(m, 0, 1, 1); k.trace(); a.trace(); T.diagonal_scatter(m, m[0]); T.select(m, 2, 0); m.select(0, 3)
T.select_scatter(m, m[0], 1, 0); T.select_scatter(m, a, 1, 7); T.slice_scatter(m, m[:1], 0, 1); m.roll((1, 2))
m.roll((1, 2), 0); m.roll(1, 5); a.fliplr(); z.flipud(); a.rot90(); m.rot90(1, (0, 0)); m.rot90(1, (0,))
k.movedim(0, (1, 2)); k.movedim((0, 0), (1, 2)); k.movedim(0, 5); k.swapaxes(0, 4); m.tile(-1); m.repeat_interleave(-1)
m.repeat_interleave(r, 1); m.repeat_interleave(T.tensor([1, -1, 1]), 0); m.unfold(1, 5, 1); m.unfold(1, 2, 0)
m.unfold(3, 1, 1); m.as_strided((4, 4), (4, 1)); m.as_strided((2,), (1, 1)); m.as_strided((2,), (-1,)); T.hstack([])
T.vstack([m, a]); T.hstack([m, a]); m.tensor_split(0); z.tensor_split(1); m.hsplit(3); m.vsplit(2); m.dsplit(2)
a.vsplit(3); m.split_with_sizes([1, 1]); T.broadcast_tensors(m, a); T.broadcast_shapes((2,), (3,)); T.meshgrid(m, a)
T.meshgrid(j, a); T.meshgrid(j, r, indexing="ab"); T.cartesian_prod(m, a); T.combinations(m); T.combinations(a, -1)
T.block_diag(k); m.view_as(k); m.expand_as(a)
"""


@pytest.mark.parametrize("expression", split(VALUES))
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS)


@pytest.mark.parametrize("expression", split(GRADIENTS))
def test_gradient(expression: str) -> None:
    check_gradient(expression, ARRAYS, ("x", "v"))


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)
