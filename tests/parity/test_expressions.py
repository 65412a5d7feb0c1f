"""The same expression in ox and in PyTorch: equal values, shapes, element types, and errors in the same places."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
import pytest

import ox

torch = pytest.importorskip("torch", reason="PyTorch is the other side of these comparisons")

DTYPES = {
    np.dtype(name): getattr(torch, name)
    for name in ("float16", "float32", "float64", "int8", "int16", "int32", "int64", "uint8", "bool")
}


def both(array: np.ndarray[Any, Any]) -> tuple[Any, Any]:
    return ox.tensor(array), torch.tensor(array)


_random = np.random.default_rng(0)
NAMES = {
    "m": both(_random.normal(size=(3, 4)).astype(np.float32)),
    "n": both(_random.normal(size=(3, 4)).astype(np.float32)),
    "k": both(_random.normal(size=(2, 3, 4)).astype(np.float32)),
    "q": both(_random.uniform(0.5, 3, size=(3, 4)).astype(np.float32)),
    "d": both(_random.normal(size=(4,))),
    "h": both(np.array([1.5, -2, 3, 0.25], np.float16)),
    "i": both(np.array([[7, -7, 3, -3], [1, 2, 5, -5], [0, 9, -9, 4]])),
    "j": both(np.array([2, -2, 3, -4])),
    "w": both(np.array([3, -1, 2, 5], np.int32)),
    "y": both(np.array([3, -1, 2, 5], np.int8)),
    "u": both(np.array([3, 1, 2, 200], np.uint8)),
    "b": both(np.array([True, False, True, True])),
    "c": both(np.array([False, False, True, False])),
    "mask": both(_random.random((3, 4)) > 0.5),
    "rows": both(np.array([0, 2, 2, 1])),
    "cols": both(np.array([3, 0, 1])),
    "zf": both(np.array(2.5, np.float32)),
    "zd": both(np.array(2.5, np.float64)),
    "zi": both(np.array(3, np.int64)),
    "zb": both(np.array(True)),
    "e": both(np.zeros((0, 3), np.float32)),
    "same": both(np.array([1.0, 3.0, 3.0, 2.0], np.float32)),
    "ends": both(np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0], np.float32)),
}

VALUES = """
m + n; m - n; m * n; m / n; m + 1; 1 + m; 2 - m; 2 * m; 1 / q; m / 2; -m; +m; abs(m); m % 0.3; -m % 0.3; m // 0.3
5 // q
5 % q; m ** 2; q ** 0.5; q ** -1; q ** -1.5; 2 ** m; 2.0 ** j; q ** m; i ** 2; i ** 2.0; i ** 3; i ** 0; y ** 2
b ** 2
i + 1; i + 1.5; i / 2; i / j; i // j; i % j; i // 2; i // -2; i % -2; i % 2.5; 7 // j; 7 % j; u // 2; u % 3; -i
i - j; 1 - j; w * j
m + d; m + h; h + 1; h * 2.5; h + j; h + zf; h + zd; m + zd; zd + m; m + zi; i + zf; i + zd; w + zi; zi + w; w + j
y + w
u + y; b + 1; b + 1.5; b * 2; b + b; b * c; b + j; b + zi; b * m; u + 1; y + 100; w + True; zi + zf; zf + zi
zi + zd; zb + w; y + zb; i + b
m == n; m != n; m < n; m <= n; m > n; m >= n; i == 3; i != 3; i < 2.5; 2 < i; i >= j; b == c; m == None; b < 2
b & c; b | c; b ^ c; ~b; i & 3; i | 8; i ^ j; ~i; ~u; u & 3; 3 & j; True & b; True | c; y ^ 5; u | 64
m @ n.T; k @ m.T; m @ d.float(); d.float() @ m.T; k.matmul(m.t()); i @ j; m.mm(n.t()); k.bmm(k.transpose(1, 2))
d.dot(d)
3 in j; 100 in j; len(m); m.tolist(); zf.item(); zi.item(); zb.item(); int(zi); float(zf); bool(zb); list(j)[1]
range(3)[T.tensor(1)]
m.sum(); m.sum(0); m.sum(1, keepdim=True); m.sum((0, 1)); m.sum(()); k.sum((0, -1)); i.sum(); i.sum(0); b.sum()
u.sum(); y.sum(0); i.sum(dtype=T.float32)
m.mean(); m.mean(-1); k.mean((0, 2), keepdim=True); i.mean(dtype=T.float32); h.mean(); e.sum(); e.sum(0); e.sum(1)
zf.sum(0); zf.sum(-1); zf.mean()
m.max(); m.min(); m.max(1); m.min(0); m.max(1, keepdim=True); m.max(n); m.min(n); i.max(); i.min(0); y.min()
u.min(); u.max(0); b.max(); b.min(); zf.max(0)
m.amax(0); m.amin((0, 1)); k.amax((0, 2), keepdim=True); i.amin(1); y.amin(); u.amin(); b.amin(); e.amax(1)
same.max(0); w.amax()
m.argmax(); m.argmax(0); m.argmin(1, keepdim=True); m.argmax(keepdim=True); i.argmin(); u.argmin(); same.argmax()
y.argmin(0); zf.argmax(0); zf.argmax()
m.var(); m.var(0); m.var(1, keepdim=True); m.var(0, unbiased=False); m.var(correction=0); m.std(); m.std((0, 1))
k.std(-1, correction=2)
m.norm(); m.norm(dim=0); m.norm(1); m.norm(float("inf")); m.norm(-float("inf")); m.norm(3, dim=1, keepdim=True)
m.norm(0); k.norm(2, (0, 1))
mask.all(); mask.any(); mask.all(0); mask.any(1, keepdim=True); i.all(); i.any(0); m.all(); e.all(); e.any()
e.all(0); T.any(b); T.all(i)
m.softmax(0); m.softmax(-1); k.softmax(1); m.log_softmax(1); i.softmax(0, dtype=T.float32); T.softmax(m, 0)
T.log_softmax(m, -1); zf.softmax(0); h.softmax(0)
m.exp(); q.log(); q.sqrt(); q.rsqrt(); q.reciprocal(); m.tanh(); m.sigmoid(); m.relu(); m.erf(); m.sin(); m.cos()
m.sign(); m.floor(); m.ceil(); m.square()
i.exp(); i.sqrt().isnan(); i.sigmoid(); b.exp(); j.tanh(); i.sign(); i.abs(); i.square(); i.relu(); i.floor()
u.abs(); h.exp(); T.exp(m); T.neg(m)
m.clamp(-0.5, 0.5); m.clamp(min=0); m.clamp(max=0.25); m.clamp(d.float()); m.clamp(max=d.float()); i.clamp(-2, 2)
i.clamp(min=1.5); m.clip(0, 1); m.clamp(zf)
m.clamp(min=n, max=n + 1); u.clamp(2, 100); m.clamp(1, -1); m.clamp(min=1)
m.maximum(n); m.minimum(n); i.maximum(j); T.maximum(m, d.float()); T.minimum(i, j); T.maximum(b, c); T.minimum(b, c)
T.maximum(i, zf)
T.where(mask, m, n); T.where(mask, m, 0.0); T.where(mask, 1.0, m); T.where(b, 1, 0); T.where(b, 1.5, 0)
T.where(b, j, 1.5); T.where(b, j, w); T.where(mask, m, d)
T.where(b, True, False); m.masked_fill(mask, 7); m.masked_fill(mask, -float("inf")); i.masked_fill(mask, 2)
m.masked_fill(b, 0.5)
ends.isnan(); ends.isinf(); ends.isfinite(); i.isnan(); i.isinf(); i.isfinite(); ends.relu(); ends[3:].sign()
ends.max(); ends.clamp(-1, 1); ends // 1; 1 / ends
m.logical_not(); m.logical_and(n); i.logical_or(j); b.logical_xor(c); b.logical_not(); m.isclose(m + 1e-9)
m.isclose(n); ends.isclose(ends); ends.isclose(ends, equal_nan=True)
m.equal(m); m.equal(n); m.allclose(m); m.allclose(n); m.equal(d); i.allclose(i); h.allclose(h)
m.reshape(4, 3); m.reshape(-1); m.reshape(2, -1); m.view(12); m.view(-1, 6); m.reshape((2, 6)); e.reshape(3, 0)
e.reshape(-1); e.reshape(0); zf.reshape(1, 1); m.reshape(T.tensor(4), 3)
m.flatten(); k.flatten(1); k.flatten(0, 1); k.flatten(-2); zf.flatten(); e.flatten(); T.zeros(0, 3, 4, 5).flatten(2)
T.zeros(0, 3, 4).flatten(1); k.unflatten(2, (2, 2)); k.unflatten(-1, (-1, 1))
m.transpose(0, 1); k.transpose(-1, 0); m.t(); d.t(); k.permute(2, 0, 1); k.permute((0, -1, 1)); m.T; k.mT
zf.transpose(0, -1)
k.unsqueeze(0); k.unsqueeze(-1); k.unsqueeze(1).squeeze(1); k.squeeze(0); k[:1].squeeze(); k[:1].squeeze(0)
k[:1].squeeze((0, 1)); zf.squeeze(); zf.unsqueeze(0); zf.squeeze(0)
d.expand(3, 4); d.expand(2, 3, -1); m.unsqueeze(1).expand(-1, 2, -1); d.expand((2, 4)); zf.expand(2, 2)
m.expand(3, 4)
m.repeat(2, 1); m.repeat(2, 1, 3); m.repeat((1, 2)); m.repeat(0, 1); d.repeat(3); zf.repeat(2)
m.split(2); m.split(2, 1); m.split([1, 2]); m.split((1, 3), -1); m.split(5); e.split(2); m.chunk(2); m.chunk(2, 1)
m.chunk(5); k.chunk(3, -1); e.chunk(2)
m.narrow(0, 1, 2); m.narrow(1, -2, 2); m.narrow(0, 3, 0); m.unbind(); m.unbind(1); e.unbind(); m.flip(0)
k.flip(0, -1); k.flip((1,))
T.cat([m, n]); T.cat([m, n], 1); T.cat([m, i], -1); T.cat((h, m[0], j)); T.cat([u, y]); T.cat([b, j])
T.stack([m, n]); T.stack([m, n], 1); T.stack([m, n], -1); T.stack([zf, zi])
T.concat([m, e.reshape(0, 1).expand(0, 4)])
m[0]; m[-1]; m[1, 2]; m[:, 1]; m[1:]; m[:-1]; m[::2]; m[:, 1:3]; m[1:, ::3]; m[5:]; m[2:1]; m[...]; m[..., 0]
k[0, ..., 1]; k[..., 1:, :]; m[None]; m[:, None]; k[None, 0, ..., None]
m[[0, 2]]; m[[0, 2], [1, 3]]; m[rows]; m[:, cols]; m[rows[:3], cols]; m[rows.reshape(2, 2)]; k[:, cols % 3]
k[0, :, [1, 2]]; k[[0, 1], :, [1, 2]]; k[[1], [[0], [2]]]; k[[0, 1], 1]; k[1, [0, 2]]; k[:, [0, 2], [1, 3]]
k[[0, 1], None, [1, 2]]; k[None, [0, 1], [1, 2]]; k[..., [1, 2]]; k[1, ..., [0, 3]]; k[[-1, 0], [-1, -3]]; m[-rows]
m[[]]; m[:, []]; m[True]; m[zi - 2]; m[zi - 2, 1:]; m[j % 3]
m[mask]; m[b[:3]]; m[:, b]; k[:, mask]; m[mask, None]; k[0, mask]; k[..., b]; m[mask & (m > 0)]
m[[True, False, True]]; i[i > 2]; k[mask.unsqueeze(0).expand(2, 3, 4)]; k[[1, 0], :, b.sum().reshape(1) * 0]
m.gather(1, rows.reshape(1, 4)); m.gather(0, rows[:3].reshape(1, 3) % 3); m.gather(-1, i % 4)
m.index_select(0, cols % 3); k.index_select(-1, rows); T.gather(m, 1, i % 4)
m.scatter(1, cols.reshape(1, 3), n); m.scatter(0, cols[1:].reshape(1, 2), 9.0); m.scatter(1, cols.reshape(3, 1), 2)
T.scatter(m, 1, cols.reshape(1, 3), n)
m.scatter_add(1, rows.reshape(1, 4), n); m.scatter_add(0, i % 3, n); i.scatter_add(0, i % 3, i)
T.scatter_add(m, 0, rows.reshape(1, 4) % 3, n)
m.float(); m.double(); m.half(); i.int(); m.long(); m.bool(); u.byte(); i.float(); b.long(); m.to(T.float64)
m.to(dtype=T.int64); i.to(m); b.type_as(i); m.cpu(); m.to("cpu"); m.to("cpu", T.float64); m.bfloat16().float()
m.clone(); m.t().contiguous(); m.contiguous(); m.detach(); m.is_contiguous(); m.t().is_contiguous(); m.size()
m.size(0); m.size(-1); m.numel(); m.dim(); m.ndim; m.element_size(); m.is_floating_point(); i.is_floating_point()
m.new_zeros(2, 3); i.new_ones((2,)); m.new_full((2,), 3.0); T.zeros_like(i); T.ones_like(m); T.full_like(m, 2.5)
T.zeros_like(m, dtype=T.int64); T.full_like(i, 3, dtype=T.float64)
T.zeros(2, 3); T.ones((2, 3)); T.zeros(()); T.zeros(2, dtype=T.int32); T.full((2, 3), 1.5); T.full((2,), 7)
T.full((2,), True); T.full((2,), 7, dtype=T.float64); T.full([2], float("inf")); T.eye(3); T.eye(2, 3)
T.eye(3, dtype=T.int64); T.zeros(0)
T.arange(5); T.arange(2, 8); T.arange(2, 8, 3); T.arange(0, 1, 0.1); T.arange(5.0); T.arange(5, 0, -2)
T.arange(3, dtype=T.float32); T.arange(0); T.linspace(0, 1, 5); T.linspace(1, -1, 3, dtype=T.float64)
T.linspace(0, 1, 1); T.linspace(0, 1, 0)
T.tensor(3); T.tensor(2.5); T.tensor(True); T.tensor([1, 2]); T.tensor([1, 2.5]); T.tensor([[True, 2]])
T.tensor([]); T.tensor([[]]); T.tensor([1, 2], dtype=T.float64); T.tensor([1.7, -1.7], dtype=T.int64)
T.tensor([zf, zi]); T.tensor([0, 3], dtype=T.bool); T.tensor([[1, 2], [3, 4]], dtype=T.uint8); T.tensor(1e300)
T.add(m, n, alpha=2); m.sub(n, alpha=0.5); m.add(1); m.mul(n); m.multiply(2); m.subtract(1); m.div(n); m.divide(2)
T.div(i, j, rounding_mode="floor"); T.div(i, j, rounding_mode="trunc"); m.div(0.3, rounding_mode="trunc")
T.pow(m, 2); T.pow(2, i); m.floor_divide(0.3); m.remainder(0.3); m.eq(n); m.lt(n); m.ge(0); T.ne(m, n)
m / zi; zi / 2; zi // 2; zf // 0.5; zf % 2; i / zf; m / 0; -m.abs() / 0; i / 0; m // 0
"""

ERRORS = """
m + k.reshape(4, 6); m @ n; m @ i; i ** -1; b - c; b - b; m.reshape(5); m.reshape(-1, -1); m.reshape(-2, 6)
e.reshape(0, -1); m.view(7)
m.flatten(1, 0); m.flatten(5); m.transpose(0, 5); m.permute(0, 0); m.permute(0); m.permute(0, 1, 2); m.squeeze(5)
m.unsqueeze(4); k.t(); m.unflatten(1, (3, 2)); m.expand(1, 4); m.expand(4); m.expand(-1, 3, 4); m.expand(2, 4)
m.repeat(2); m.split(0); m.split([1, 1]); m.chunk(0); m.narrow(0, 2, 2); m.narrow(0, -4, 1); m.narrow(0, 0, -1)
m.softmax(3); m.sum(2); m.sum((0, 0)); m.max(2); m.argmax(-3); m.mean(5)
m[3]; m[-4]; m[0, 0, 0]; m[0, 4]; m[[0], [7]]; m[rows + 1]; m[1.0]; m["a"]; m[d]; m[b]; m[:, mask]; m[mask, 0]
m[[0, 1], [0, 1, 2]]; m[::-1]; m[::0]; m[1.5:]
i.mean(); b.mean(); i.var(); i.std(); i.norm(); e.max(); e.max(0); e.argmax(); e.min(); i // 0; i % 0; T.cat([])
T.cat([zf, d]); T.stack([]); T.stack([m, d]); T.cat([m, d]); T.cat([m, n.T]); T.cat([m, n], 2)
m.gather(1, rows); m.gather(1, rows.reshape(1, 4) + 9); m.gather(1, n); m.gather(3, i); m.index_select(0, rows + 9)
m.scatter(1, rows.reshape(1, 4), i); m.scatter(1, i, n); m.scatter(0, i % 3, n[:2]); m.clamp(); bool(m); bool(e)
int(m); m.item(); len(zf); list(zf); range(zf); range(m); m.size(2)
T.tensor([[1, 2], [3]]); T.tensor([1, "a"]); T.tensor([None]); T.tensor("a"); T.zeros(-1); T.arange(0, 1, 0)
T.arange(1, 0); T.linspace(0, 1, -1); T.eye(-1); T.zeros(1.5); m + None; m + "a"; m.add(None); m @ None; m / None
m * [1]; ~m; m & n; i & m; m.to("nonsense"); T.zeros("a")
i.add_(1.5); b.add_(1); b.mul_(1.5); i.div_(2); m.add_(k); m.copy_(d[:3]); m.masked_fill_(mask[0:2], 1)
"""


def expressions(text: str) -> list[str]:
    return [part for line in text.strip().splitlines() for part in (p.strip() for p in line.split("; ")) if part]


def run(expression: str, side: int) -> Any:
    names = {name: pair[side].clone() for name, pair in NAMES.items()}
    with warnings.catch_warnings():
        if side:
            warnings.simplefilter("ignore")
        return eval(expression, {"T": torch if side else ox}, names)


def assert_same(got: Any, expected: Any) -> None:
    if isinstance(expected, torch.Tensor):
        assert isinstance(got, ox.Tensor)
        assert tuple(got.shape) == tuple(expected.shape)
        assert DTYPES[got.dtype] == expected.dtype
        tight = got.dtype != ox.float16
        np.testing.assert_allclose(
            got.numpy().astype(np.float64), expected.double().numpy(), rtol=2e-6 if tight else 2e-3, atol=1e-6
        )
    elif isinstance(expected, (tuple, list)):
        assert len(got) == len(expected)
        for a, b in zip(got, expected, strict=True):
            assert_same(a, b)
    else:
        assert type(got) is type(expected)
        assert got == expected


@pytest.mark.parametrize("expression", expressions(VALUES))
def test_value(expression: str) -> None:
    assert_same(run(expression, 0), run(expression, 1))


@pytest.mark.parametrize("expression", expressions(ERRORS))
def test_error(expression: str) -> None:
    """Where PyTorch refuses, ox refuses, in its own words (Python's own, where an infix sign is given no tensor)."""
    with pytest.raises(Exception):  # noqa: B017 (whatever PyTorch raises)
        run(expression, 1)
    with pytest.raises((ox.OxError, TypeError)) as caught:
        run(expression, 0)
    if not isinstance(caught.value, ox.OxError):
        assert "unsupported operand" in str(caught.value)
