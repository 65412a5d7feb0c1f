"""Reading by index, and the functions that pick and place, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split

R = np.random.default_rng(5)
ARRAYS = {
    "m": R.normal(size=(3, 4)).astype(np.float32),
    "n": R.normal(size=(3, 4)).astype(np.float32),
    "k": R.normal(size=(2, 3, 4)).astype(np.float32),
    "f": R.normal(size=(2, 3, 4, 5)).astype(np.float32),
    "x": R.normal(size=(3, 4)),
    "y": R.normal(size=(2, 3, 4)),
    "v": R.normal(size=(4,)),
    "a": R.normal(size=(3,)).astype(np.float32),
    "i": R.integers(-4, 5, (3, 4)),
    "r": np.array([0, 2, 1]),
    "s": np.array([1, 0]),
    "t": np.array([[0, 1], [2, 0]]),
    "g": R.integers(0, 3, (3, 4)),
    "b": np.array([[True, False, True, True], [False, False, True, False], [True, True, False, False]]),
    "c": np.array([True, False, True]),
    "d": np.array([True, False]),
    "z": np.array(2.5, np.float32),
    "one": np.array(1),
    "yes": np.array(True),
    "no": np.array(False),
    "u8": np.array([1, 0, 1], np.uint8),
    "e": np.zeros((0, 3), np.float32),
}

READS = """
k[0]; k[-1]; k[0, 1]; k[0, 1, 2]; k[:, 1]; k[..., 1]; k[:, :, 1:3]; k[:, ::2]; k[1:, 1:, 1:]; k[::2, ::3, ::2]
k[..., -1:]; k[None]; k[:, None]; k[..., None]; k[None, :, None, 0]; k[None, None]; k[0, None, ..., None, 1]; k[()]
z[()]; z[...]; z[None]; z[None, ...]; k[[0, 1]]; k[[1]]; k[[-1, 0]]; k[:, [2, 0]]; k[..., [3, 3, 0]]; k[[0, 1], [1, 2]]
k[[0, 1], [1, 2], [3, 0]]; k[[[0], [1]], [1, 2]]; k[:, [0, 1], [2, 3]]; k[[0, 1], :, [1, 2]]; k[0, :, [1, 2]]
k[[1, 0], 0]; k[:, 0, [1, 2]]; k[[0, 1], ..., [1, 2]]; f[0, :, [1, 2]]; f[:, [0, 1], :, [1, 2]]; f[:, [0], [1, 2]]
f[[0, 1], :, 1, [3, 4]]; f[[0, 1], [1, 2], :, [3, 4]]; f[:, [0, 1], 0, [1, 2]]; f[0, [0, 1], 0, [1, 2]]
f[[0], :, [[1], [2]]]; f[..., [0, 1], 2]; f[1, ..., [0, 1], 2]; f[None, [0, 1], None, [0, 1]]; f[[0, 1], None, [0, 1]]
f[:, None, [0, 1], [2, 3]]; k[r - 1]; k[:, r]; k[:, t]; k[t % 2]; k[t % 2, t]; k[t % 2, :, t]; k[:, t, t]; k[s, r[:2]]
k[one]; k[one, one]; k[:, one]; k[one, :, r]; k[one, r]; k[one:]; k[: one + 1, one]; k[..., one, :]; k[d]; k[:, c]
k[d, 1]; k[d, :, r[:1]]; k[:, b]; k[0, b]; k[..., b]; m[b]; m[c]; m[:, b[0]]; m[c, 1]; m[c, [1, 2]]; m[b & (m > 0)]
k[k > 0]; f[:, b]; f[:, b, 0]; f[d, :, :, [0]]; f[0, c, :, 1:3]; f[:, c, [0, 1]]; m[m > 100]; m[b][0]; m[~b]; m[True]
m[False]; m[yes]; m[no]; k[None, d]; m[u8]; m[[True, False, True]]; m[[[True, False, True]]]; k[[[0, 1], [1, 2]]]
k[[one, slice(1, 3)]]; k[[None, 0]]; m[([0, 2], (1, 3))]; k[[one, one]]; m[c.tolist()]; m[np.array([0, 2])]
m[np.array([True, False, True])]; m[np.int64(1)]; m[:, np.array([1, 1])]; m[[]]; m[:, []]; m[[], []]; e[:]; e[[]]
e[:, 1]; e[:, [0, 2]]; m[0:0]; m[2:1]; m[100:]; m[-100:2]; m[:, -2:]; m[range(2)]; m[(0, 1)]; m[[0, 1], 1:3]
m[1:, [0, 2]]; m[r[r > 0]]; m[r.int()]; m[r.to(T.uint8).long()]; m[0][1]; m[1:][0]; m.T[1]; m.T[[1, 2]]; m.T[:, c]
k.permute(2, 0, 1)[[0, 1], :, [1, 2]]; k.reshape(6, 4)[::2, [0]]; m[[0, 1], [0, 1], None]; m[None, [0, 1], [0, 1]]
k[:, None, [0, 1], None, [1, 2]]; i[i > 0]; b[r]; b[b]; i[r, s[:1]]; m[[r.tolist()]]; m[t]; m[[[0, 1], [1, 2]]]
k[T.tensor([[True, False, True], [False, True, True]])]; k[[0, 1], :][:, [1, 2]]; k[(slice(None), 1)]; k[(Ellipsis, 0)]
m[r, ...]; m[..., r, :]; k[0][b]; m[1, r]; m[r, 1]; f[:, :, r, r]; f[..., r, r]; f[s, :, r[:2], :]; f[s, ..., r[:2]]
"""

FUNCTIONS = """
m.gather(1, g); m.gather(0, g); T.gather(m, 1, g[:, :2]); k.gather(2, T.zeros(2, 3, 1, dtype=T.int64))
z.gather(0, one * 0); z.gather(0, one[None] * 0); m.gather(-1, g[:2]); m.gather(1, g[:0]); m.index_select(0, r)
m.index_select(1, s); T.index_select(k, -1, r); m.index_select(0, one); m.index_select(0, r.int())
z.index_select(0, one * 0); m.index_select(0, r[:0]); b.index_select(1, r); m.take(r); m.take(t)
T.take(m, T.tensor([0, -1, 11])); T.take_along_dim(m, g[:, :1], 1); T.take_along_dim(m, g[:1], 0)
T.take_along_dim(m, m.argsort(1), dim=1); m.take_along_dim(t); T.take_along_dim(k, k.argmax(2, keepdim=True), 2)
m.masked_select(b); T.masked_select(m, c[:, None]); k.masked_select(b); z.masked_select(b); m.masked_select(yes)
m.masked_fill(b, 2.0); m.masked_fill(b, z); i.masked_fill(c[:, None], -1); b.nonzero(); T.nonzero(i)
b.nonzero(as_tuple=True); T.nonzero(i, as_tuple=True); T.argwhere(b); T.where(b); T.where(i > 0); m.nonzero().shape[1]
z.nonzero(); T.nonzero(no); e.nonzero(); T.nonzero(c, as_tuple=True)[0]; m.argwhere(); T.where(b, m, n)
T.where(b, m, 1.5); T.where(b, 1, 0); m.where(b, n); m.where(m > 0, 0.0); T.where(c[:, None], m, n[0])
T.where(b, i, m); m.scatter(1, g, n); m.scatter(0, g[:, :2], 1.5); T.scatter(m, 1, g[:, :2], n)
T.scatter(m, 1, r[:, None], 7.0, reduce="add"); m.scatter(1, r[:, None], n, reduce="multiply")
m.scatter(1, r[:, None], value=2.0); z.scatter(0, one * 0, 4.0); m.scatter(dim=1, index=r[:, None], src=n)
m.scatter_add(1, g, n); T.scatter_add(m, 0, g, n); i.scatter_add(1, g, i); z.scatter_add(0, one * 0, z)
m.scatter_add(1, g[:, :2], n); T.scatter_reduce(m, 1, g, n, "sum"); T.scatter_reduce(m, 1, g, n, "prod")
T.scatter_reduce(m, 1, g, n, "mean"); T.scatter_reduce(m, 0, g, n, "amax"); T.scatter_reduce(m, 0, g, n, "amin")
m.scatter_reduce(1, g, n, "sum", include_self=False); m.scatter_reduce(1, g, n, "prod", include_self=False)
m.scatter_reduce(1, g, n, "mean", include_self=False); m.scatter_reduce(0, g, n, "amax", include_self=False)
m.scatter_reduce(0, g, n, reduce="amin", include_self=False); i.scatter_reduce(1, g, i, "mean")
i.scatter_reduce(1, g, i, "amax", include_self=False); i.scatter_reduce(0, g, i, "prod")
z.scatter_reduce(0, one * 0, z, "sum"); m.index_add(0, r, n); m.index_add(1, s, n[:, :2], alpha=2)
T.index_add(m, 0, T.tensor([1, 1]), n[:2]); i.index_add(0, r, i); z.index_add(0, one * 0, z); m.index_copy(0, r, n)
m.index_copy(1, s, n[:, :2]); T.index_copy(k, 2, r, k[..., :3] * 2); z.index_copy(0, one * 0, z)
m.index_fill(0, s, 3.0); m.index_fill(1, T.tensor([-1]), 2); T.index_fill(m, 0, r, z); i.index_fill(1, s, 9)
z.index_fill(0, one * 0, 1); m.index_reduce(0, s, n[:2], "prod"); m.index_reduce(0, T.tensor([1, 1]), n[:2], "mean")
m.index_reduce(1, s, n[:, :2], "amax", include_self=False); m.index_reduce(0, s, n[:2], "amin"); m.index_put((r, r), a)
m.index_put((r,), n[0]); T.index_put(m, (T.tensor([1, 1]), T.tensor([2, 2])), a[:2], accumulate=True)
m.index_put((b,), z); k.index_put((s, r[:2]), k[0, 0]); T.index_put(m, [r, r], a); m.index_put((t, t), z, True)
m.put(r, a); T.put(m, t, n[0]); m.put(T.tensor([0, 0, -1]), a, accumulate=True); i.put(r, r); m.put(r[:0], a[:0])
m.masked_scatter(b, n); T.masked_scatter(m, c[:, None], n); i.masked_scatter(i > 0, i); m.masked_scatter(m > 100, n)
T.masked_scatter(k, b, f); T.fill(m, 2.0); T.fill(i, 3); m.clone().fill_(1.5); m.clone().index_add_(0, r, n)
m.clone().index_copy_(0, r, n); m.clone().index_fill_(0, s, 1.0); m.clone().index_put_((r, r), a); m.clone().put_(r, a)
m.clone().masked_scatter_(b, n); m.clone().scatter_(1, g[:, :1], 2.0); m.clone().scatter_add_(1, g, n)
m.clone().scatter_reduce_(1, g, n, "amax"); m.clone().masked_fill_(b, 0.0); i.clone().put_(r, r, True)
m.clone().index_reduce_(0, s, n[:2], "prod")
"""

GRADIENTS = """
y[0] * v; y[..., 1] ** 2; y[:, ::2] ** 2; y[[0, 0]] ** 2; y[:, [0, 0, 1]] ** 2; y[[0, 1], [1, 1]] ** 2
y[[0, 1], :, [1, 2]] ** 2; y[0, :, [1, 1]] ** 2; y[:, t, t] ** 2; y[t % 2, :, t] ** 2; y[b[:2, :3]] ** 2; y[:, b] ** 2
y[y > 0] ** 2; x[b] * x[b]; x[c] * v; y[None, [0, 0], None, [1, 1]] ** 2; y[-1, 1:, [0, 0]] ** 2; x[r - 2] * v
x[:, None, r] ** 2; y[:, c, [0, 0]] ** 2; x.gather(1, g) * v; x.gather(0, g[:, :2]) ** 2
x.index_select(0, r[[0, 0]]) * v; x.take(t) ** 2; x.take(T.tensor([0, 0, -1])) ** 2
T.take_along_dim(x, g[:, :1], 1) ** 2; x.masked_select(b) ** 2; y.masked_select(b) ** 2; T.where(b, x, v) ** 2
x.masked_fill(b, v[0]) ** 2; x.scatter_add(1, g, x ** 2) * v; T.scatter_reduce(x, 1, g, x * 2, "sum") ** 2
T.scatter_reduce(x, 1, g, x * 2, "mean") ** 2; x.scatter_reduce(1, g, x ** 2, "mean", include_self=False) ** 2
x.index_add(0, r, x * v, alpha=2) ** 2; x.index_copy(0, r, x * v) ** 2; x.index_fill(0, s, v[0]) ** 2
x.index_put((r, r), v[:3] ** 2) * v; x.index_put((T.tensor([1, 1]), T.tensor([2, 2])), v[:2], accumulate=True) ** 2
x.put(r, v[:3] ** 2) * v; x.put(T.tensor([0, 0, 5]), v[:3], True) ** 2; x.masked_scatter(b, y) ** 2
x.masked_scatter(b[0], v.repeat(3)) ** 2
"""

FIRST = """
T.scatter_reduce(x, 1, g, x * 2 + 1, "amax") ** 2; T.scatter_reduce(x, 0, g, x * 2 + 1, "amin") ** 2
T.scatter_reduce(x, 1, g, x * 2 + 1, "prod") ** 2; x.scatter_reduce(1, g, x ** 2, "prod", include_self=False) ** 2
x.index_reduce(0, s, x[:2] * 2, "amax") ** 2; x.index_reduce(0, s, x[:2] * 2, "mean") ** 2
"""

ERRORS = """
k[2]; k[-3]; k[0, 3]; k[0, 0, 0, 0]; k[[0, 2]]; k[:, [0, 3]]; k[[0, 1], [0, 1, 2]]; k[r, [0, 1]]; k[1.0]; k["a"]; k[m]
k[b]; k[:, d]; k[::-1]; k[::0]; m[c[:2]]; m[b.T]; m[[0, 3]]; z[0]; z[[0]]; z[:]; m[0, 0, None, 0]; e[0]; m[r, r, r]
m[{}]; m.gather(1, r); m.gather(1, g + 3); m.gather(1, g - 5); m.gather(2, g); m.gather(1, n)
m.gather(0, g.repeat(1, 2)); m.index_select(0, r + 1); m.index_select(0, -r); m.index_select(0, t)
m.index_select(0, a); m.index_select(2, r); m.take(r + 12); m.take(a); T.take_along_dim(m, r, 0); m.masked_select(i)
m.masked_select(c); m.masked_fill(c, 1.0); m.masked_fill(b, m); m.scatter(1, g + 9, n); m.scatter(1, g, n[:, :2])
m.scatter(1, g, i); m.scatter(1, r, n); m.scatter(3, g, n); m.scatter(1, g, n, reduce="mean"); m.scatter_add(1, g, x)
m.scatter_add(1, g, n[:2]); m.scatter_reduce(1, g, i, "sum"); m.scatter_reduce(1, -g - 1, n, "sum")
m.index_add(0, r, n[:2]); m.index_add(0, r + 1, n); m.index_add(0, r, x); m.index_copy(0, r, n[:2])
m.index_copy(0, r + 1, n); m.index_fill(0, r + 1, 1.0); m.index_fill(0, r, a); m.index_reduce(0, r, n, "sum2")
m.index_put((r, r), n[0]); m.index_put((r + 1, r), a); m.index_put((r, r, r), a); m.index_put((r, r), i[0, :3])
m.put(r, a[:2]); m.put(r + 11, a); m.put(r, r); m.masked_scatter(b, a); m.masked_scatter(i, n); m.masked_scatter(b, x)
T.where(c, m, n); m.put(a, a)
"""


@pytest.mark.parametrize("expression", split(READS) + split(FUNCTIONS))
def test_value(expression: str) -> None:
    check_value(expression, {**ARRAYS, "np": np})


@pytest.mark.parametrize("expression", split(GRADIENTS) + split(FIRST))
def test_gradient(expression: str) -> None:
    check_gradient(expression, ARRAYS, ("x", "y", "v"), second=expression not in split(FIRST))


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)
