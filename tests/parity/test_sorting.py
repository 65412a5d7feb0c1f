"""Order, counting and search, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split

R = np.random.default_rng(2)
ARRAYS = {
    "m": R.normal(size=(3, 5)).astype(np.float32),
    "k": R.normal(size=(2, 3, 4)).astype(np.float32),
    "x": R.normal(size=(4, 6)),
    "v": R.normal(size=(7,)),
    "i": R.integers(-4, 5, (3, 5)),
    "u": R.integers(0, 9, (8,)).astype(np.uint8),
    "y": R.integers(-4, 5, (3, 5)).astype(np.int8),
    "c": np.array([0, 1, 1, 3, 5, 1]),
    "w": R.uniform(0.5, 2, 6).astype(np.float32),
    "b": np.array([True, False, True]),
    "h": R.permutation(8).astype(np.float16),
    "z": np.array(2.5, np.float32),
    "e": np.zeros((0, 3), np.float32),
    "s": np.sort(R.normal(size=(9,))).astype(np.float32),
    "t": np.sort(R.normal(size=(3, 6))).astype(np.float32),
    "runs": np.array([1, 1, 2, 2, 2, 3, 1, 1]),
    "ends": np.array([1.0, np.nan, -np.inf, np.inf, 0.0], np.float32),
}

VALUES = """
m.sort(); m.sort(0); m.sort(dim=1, descending=True); T.sort(k, -2); T.sort(m, stable=True, dim=0); m.argsort()
z.sort(); T.sort(i, stable=True, dim=1); T.sort(i, stable=True, descending=True, dim=0); T.sort(y, stable=True)
T.sort(b, stable=True); m.argsort(0, descending=True); T.argsort(i, stable=True, dim=-1); T.msort(m); m.msort()
u.sort().values; h.sort(); T.sort(ends, stable=True); T.sort(ends, stable=True, descending=True); e.sort(0); e.sort(1)
T.sort(c, stable=True); m.topk(2); m.topk(3, 0); m.topk(2, largest=False); T.topk(k, 1, 1); k.topk(4, -1, True, True)
m.topk(0); z.topk(1); u.topk(8).values; h.topk(3); i.topk(5).values; ends[:1].topk(1); m.topk(k=2, dim=-1)
m.kthvalue(2); m.kthvalue(1, 0); m.kthvalue(3, dim=1, keepdim=True); T.kthvalue(k, 2, -1); z.kthvalue(1)
m.topk(2).values; m.sort().indices; m.kthvalue(2).values; T.unique(i); i.unique(return_inverse=True)
i.unique(return_counts=True); i.unique(True, True, True); b.unique(); T.unique(i % 2, dim=0)
T.unique(i % 2, dim=1, return_inverse=True, return_counts=True); u.unique(); z.unique(); e.unique()
T.unique_consecutive(runs); runs.unique_consecutive(return_inverse=True, return_counts=True)
T.unique_consecutive(i % 2, dim=0); T.unique_consecutive(runs.reshape(2, 4), return_inverse=True)
m.unique_consecutive(); T.bincount(c); c.bincount(minlength=10); T.bincount(c, w); T.bincount(c, w.double())
T.bincount(c, c); T.bincount(c[:0]); T.bincount(c[:0], minlength=3); T.bincount(u)
T.bincount(c, weights=w, minlength=8); T.histc(m, 5); m.histc(bins=4, min=-1, max=1); T.histc(m, bins=3, min=0, max=0)
T.histc(s); T.histc(z, 3); T.histogram(m, 5); T.histogram(m, 4, range=(-1.0, 1.0))
T.histogram(m, T.tensor([-1.0, 0.0, 0.5, 2.0])); T.histogram(w, 3, weight=w); T.histogram(m, 4, density=True)
T.histogram(m.flatten(), 6, range=(-2.0, 2.0), density=True); T.searchsorted(s, m); T.searchsorted(s, m, right=True)
T.searchsorted(s, s); T.searchsorted(s, s, side="right"); T.searchsorted(t, m); T.searchsorted(t, t, right=True)
T.searchsorted(s, 0.1); T.searchsorted(c.sort().values, 1); T.searchsorted(s, m, out_int32=True); T.searchsorted(s, k)
T.searchsorted(t[:, None], k[:1].transpose(0, 1)); T.searchsorted(s.flip(0), m, sorter=T.arange(8, -1, -1))
T.searchsorted(s[:0], m); T.searchsorted(s, s[:0]); T.bucketize(m, s); T.bucketize(m, s, right=True)
T.bucketize(0.3, s); T.bucketize(i, T.tensor([-1, 2])); T.bucketize(m, s, out_int32=True); T.isin(i, T.tensor([1, 2]))
T.isin(i, c); T.isin(i, 3); T.isin(3, i); T.isin(m, m[0]); T.isin(i, c, invert=True); T.isin(i, c[:0])
T.isin(i, T.tensor([[1], [2]]), assume_unique=True)
"""

GRADIENTS = """
x.sort(0).values; x.sort(1, descending=True)[0] * v[:6]; x.topk(2).values; x.topk(3, 0, largest=False)[0] ** 2
x.msort(); x.kthvalue(2, 1).values; x.kthvalue(3, 0, True)[0] * x; v.sort()[0] * v; v.topk(3)[0].prod()
T.cat([v.topk(2)[0], v.sort()[0]])
"""

ERRORS = """
m.topk(6); m.topk(-1); m.topk(2, 2); m.sort(2); m.sort(-3); m.kthvalue(0); m.kthvalue(6); m.kthvalue(2, 5)
m.argsort(4); z.topk(2); T.bincount(i); T.bincount(c, w[:3]); T.bincount(m[0]); T.bincount(c, minlength=-1)
T.unique(i, dim=2); T.histc(m, 0); T.histc(m, 3, 2, 1); T.histc(ends); T.searchsorted(t, s)
T.searchsorted(s, m, side="middle"); T.searchsorted(s, m, right=True, side="left"); T.bucketize(m, t)
T.histogram(m, 0)
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
