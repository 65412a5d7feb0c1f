"""Functions over dimensions, beside PyTorch: values, types, gradients of first and second order, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split

R = np.random.default_rng(4)


def holed(*shape: int, empty: bool = False) -> np.ndarray:  # type: ignore[type-arg]
    """Numbers with NaN among them; with `empty` the first row is nothing else."""
    x = R.normal(size=shape).astype(np.float32)
    x[R.random(shape) < 0.3] = np.nan
    if empty:
        x[0] = np.nan
    return x


ARRAYS = {
    "m": R.normal(size=(3, 4)).astype(np.float32),
    "k": R.normal(size=(2, 3, 5)).astype(np.float32),
    "o": holed(3, 7),
    "oo": holed(3, 6, empty=True),
    "x": R.normal(size=(3, 4)),
    "v": R.uniform(0.3, 0.9, size=(4,)),
    "z": np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 0.5, -3.0, 2.0], [2.0, 1.5, -1.0, 3.0]]),
    "i": np.array([[7, -7, 3, -3], [1, 2, 5, -5], [0, 9, -9, 4]]),
    "ties": np.array([[2, 1, 2, 1, 3], [0, 0, 0, 5, 5]]),
    "y": np.array([3, -1, 2, 5], np.int8),
    "u": np.array([3, 1, 2, 200], np.uint8),
    "w": np.array([3, -1, 2, 5], np.int16),
    "b": np.array([True, False, True, True]),
    "h": np.array([1.5, -2, 3, 0.25], np.float16),
    "zf": np.array(2.5, np.float32),
    "zi": np.array(3),
    "e": np.zeros((0, 3), np.float32),
    "ends": np.array([1.0, -np.inf, np.inf, 0.0], np.float32),
    "low": np.full((2, 3), -np.inf, np.float32),
    "large": (R.normal(size=(3, 4)) * 200).astype(np.float32),
    "shares": np.array([0.0, 0.1, 0.5, 0.77, 1.0], np.float32),
}

METHODS = ("linear", "lower", "higher", "midpoint", "nearest")
POWERS = ("2", "1", "3", "0.5", "0", "-1", "-2.5")

VALUES = f"""
m.prod(); m.prod(0); m.prod(1, keepdim=True); i.prod(); i.prod(1); b.prod(); u.prod(); y.prod(0); zf.prod()
e.prod(); e.prod(0)
T.prod(m, 1); T.prod(i, 0, dtype=T.float32); h.prod(); z.prod(1); T.prod(m, dtype=T.float64)
m.logsumexp(0); m.logsumexp(1, keepdim=True); k.logsumexp((0, 2)); T.logsumexp(large, -1); low.logsumexp(1)
ends.logsumexp(0)
i.logsumexp(1); h.logsumexp(0); zf.logsumexp(0); e.logsumexp(0)
o.nansum(); o.nansum(1); oo.nansum(1, keepdim=True); o.nanmean(); o.nanmean(0); oo.nanmean(1); i.nansum(0)
T.nansum(o, (0, 1))
m.count_nonzero(); z.count_nonzero(); z.count_nonzero(0); i.count_nonzero((0, 1)); b.count_nonzero()
T.count_nonzero(z, dim=1)
m.aminmax(); m.aminmax(dim=0); T.aminmax(k, dim=1, keepdim=True); i.aminmax(dim=-1); u.aminmax(); zf.aminmax()
m.amin((0, 1)); k.amax((0, -1), keepdim=True); w.amin(); w.amax(0); y.amin(); u.amin(0); b.amax(); b.amin(0)
ends.amin()
m.amax(()); T.amin(k, dim=(1,)); m.argmin(); m.argmin(0); m.argmin(1, keepdim=True); i.argmin(); i.argmax(1)
b.int().argmin()
m.std(); m.std(0); m.std(1, keepdim=True); m.std(False); m.var(True); m.var(0, False); m.var(1, True, True)
k.var((0, 2))
m.var(correction=0); m.var(dim=1, correction=2); m.std(dim=0, unbiased=False); T.var(m, 0, unbiased=True)
T.std(m, (0, 1))
T.std_mean(m); T.std_mean(m, 1); T.var_mean(k, (0, 1), keepdim=True); T.var_mean(m, correction=0)
T.std_mean(m, 0, unbiased=False)
T.var(m, dim=0, correction=1.5); m.var(1, correction=7); h.var(); h.std(); m.std(None, keepdim=True)
T.var_mean(m, 0, False)
{"; ".join(f"m.norm({p}); m.norm({p}, 1); k.norm({p}, (0, 2), True)" for p in POWERS)}
m.norm(float("inf")); m.norm(-float("inf"), 0); m.norm("fro"); m.norm("fro", (0, 1)); T.norm(m); T.norm(m, dim=0)
z.norm(0, 1)
z.norm(-1, 1); z.norm(0.5, 0); T.norm(m, 2, 1, keepdim=True, dtype=T.float64); T.norm(m, p=1, dim=(0,)); h.norm()
zf.norm()
m.dist(m * 2); T.dist(m, m[0], 1); T.dist(m, m * 0, float("inf")); m.dist(m + 1, 3); T.dist(m, m, 0)
T.renorm(m, 2, 0, 1.0); m.renorm(1, 1, 0.5); k.renorm(2, 1, 1.0); m.renorm(p=3, dim=-1, maxnorm=100)
m.cumsum(0); m.cumsum(1); i.cumsum(-1); b.cumsum(0); u.cumsum(0); k.cumsum(1, dtype=T.float64); zf.cumsum(0)
e.cumsum(0)
h.cumsum(0); y.cumsum(0); T.cumsum(m, dim=0); m.cumprod(0); i.cumprod(1); z.cumprod(1); u.cumprod(0); b.cumprod(0)
zi.cumprod(0)
T.cumprod(m, dim=1, dtype=T.float64); h.cumprod(0); e.cumprod(1); w.cumsum(0)
m.cummax(0); m.cummax(1); ties.cummax(1); o.cummax(1); T.cummin(k, 2); ties.cummin(1); o.cummin(0); u.cummin(0)
b.cummax(0)
zf.cummax(0); h.cummin(0); y.cummax(0); ends.cummax(0); ends.cummin(0); e.cummax(1); b.cummin(0); low.cummax(1)
w.cummin(0)
m.logcumsumexp(0); m.logcumsumexp(1); large.logcumsumexp(1); low.logcumsumexp(1); zf.logcumsumexp(0)
k.logcumsumexp(-2)
ends.logcumsumexp(0); T.logcumsumexp(m, dim=0); h.logcumsumexp(0)
m.median(); m.median(0); m.median(1, keepdim=True); k.median(-1); i.median(); i.median(1); u.median(); zf.median()
zf.median(0)
o.median(); o.median(1).values; o.nanmedian(); o.nanmedian(1); oo.nanmedian(1).values; oo.nanmedian(0)
m.nanmedian(1); ties.median(1)
h.median(); T.median(k, 1, True); w.median(0); T.tensor([]).median(); i.nanmedian(0); oo.median(1)
ties.mode(); ties.mode(0); ties.mode(1, True); T.mode(i); u.mode(); zi.mode(); m.mode(0).values; T.mode(k, 1).values
y.mode(0)
m.quantile(0.3); m.quantile(0.5, 1); m.quantile(shares); m.quantile(shares, 1); m.quantile(shares, 0, True)
k.quantile(shares, 1)
m.quantile(shares, keepdim=True); T.quantile(k, 0.25, -1, True); m.quantile(zf - 2, 1); x.quantile(0.9, dim=0)
zf.quantile(0.3)
{"; ".join(f"m.quantile(shares, 1, interpolation={p!r})" for p in METHODS)}
o.quantile(0.5); o.quantile(shares, 1); o.nanquantile(0.5); o.nanquantile(shares, 1); oo.nanquantile(0.3, 1)
oo.nanquantile(0.3, 0)
{"; ".join(f"o.nanquantile(shares, 1, interpolation={p!r})" for p in METHODS)}
oo.nanquantile(shares, 1, True); o.nanquantile(0.2, keepdim=True); ends.quantile(0.5)
T.sum(input=m, axis=0); m.mean(axis=1, keepdims=True); T.std(m, axis=0); m.max(axis=1); T.argmin(m, axis=0)
m.prod(axis=0)
m.cumsum(axis=1); T.logsumexp(m, axis=0); T.norm(m, dim=1); m.var(axis=(0, 1)); T.median(m, dim=0); m.any(axis=0)
T.all(m, 0); T.any(z, 1, True); z.all(); z.all(1); b.any(); T.any(z, dim=(0, 1)); m.sum(dim=(0,))
T.mean(m, dim=1, keepdim=True)
m.softmax(0, dtype=T.float64); T.log_softmax(m, 1); m.mean(dtype=T.float64); T.sum(u, 0); T.sum(b)
T.sum(m, dtype=T.float16)
"""

GRADIENTS = f"""
x.prod(); x.prod(0); x.prod(1, keepdim=True) * x; z.prod(1); z.prod(0); z.prod(); (z * x).prod(1); x.logsumexp(0)
x.logsumexp((0, 1), keepdim=True) * x; x.nansum(1); x.nanmean(0) * v; x.amin(0); x.amin(1, keepdim=True) * v
x.aminmax(dim=1)
x.aminmax(); x.std(); x.std(0); x.std(1, correction=0) * x[:, 0]; x.var((0, 1)); T.std_mean(x, 1); T.var_mean(x, 0)
{"; ".join(f"x.norm({p}); x.norm({p}, 1) * x[:, 0]" for p in (*POWERS[:4], "-1", "float('inf')", "-float('inf')"))}
z.norm(1, 1); z.norm(3, 0); T.dist(x, v); T.dist(x, v, 1); x.renorm(2, 0, 1.0); x.renorm(3, 1, 1.5) * v
x.norm(1.5, 1)
x.cumsum(0); x.cumsum(1) * x; x.cumprod(0); x.cumprod(1) * v; z.cumprod(1); z.cumprod(0) * x; x.cummax(0).values
x.cummin(1).values * x; x.logcumsumexp(0); x.logcumsumexp(1) * v; x.median(); x.median(0).values
x.median(1, True)[0] * x
x.nanmedian(1).values; x.mode(0).values * v; x.quantile(0.3); x.quantile(0.5, 1) * x[:, 0]; x.nanquantile(0.7, 0) * v
x.quantile(T.tensor([0.1, 0.6], dtype=T.float64), 1); x.quantile(0.4, 1, interpolation="midpoint"); x.amax((0, 1)) * v
"""

ERRORS = """
m.prod(2); m.logsumexp(3); i.nanmean(); m.std(2); i.std(); i.var(); T.std_mean(i); i.norm(); m.norm("nuc2")
m.norm(2, 5)
m.renorm(2, 3, 1.0); v.renorm(2, 0, 1.0); m.renorm(-1, 0, 1.0); i.renorm(2, 0, 1.0); m.cumsum(2); m.cumprod(-3)
m.cummax(2)
i.logcumsumexp(0); m.logcumsumexp(2); m.median(2); b.median(); e.median(0); m.mode(2); e.mode(0); i.quantile(0.5)
m.quantile(1.5); m.quantile(-0.1); m.quantile(0.5, 2); m.quantile(0.5, interpolation="cubic"); e.quantile(0.5)
m.quantile(v)
m.quantile(shares[None]); m.quantile(shares + 1); m.aminmax(dim=3); e.aminmax(); e.amax(0); m.sum("a"); m.cumsum(0.5)
T.norm(m, float("inf"), dim=4); m.count_nonzero(4); h.quantile(0.5)
"""


@pytest.mark.parametrize("expression", split(VALUES))
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("expression", split(GRADIENTS))
def test_gradient(expression: str) -> None:
    check_gradient(expression, ARRAYS, [name for name in ("x", "v", "z") if name in expression.replace("max", "")])


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)
