"""Pools of every kind, as functions and as modules, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split, torch

import ox

R = np.random.default_rng(12)
SIZES = {1: (9,), 2: (9, 7), 3: (6, 5, 7)}
ARRAYS = {
    **{f"x{r}": R.normal(size=(2, 3, *n)) for r, n in SIZES.items()},
    **{f"one{r}": R.normal(size=(3, *n)) for r, n in SIZES.items()},
    "f2": R.normal(size=(2, 3, 9, 7)).astype(np.float32),
    "u2": R.uniform(size=(2, 3, 2)),
    "u3": R.uniform(size=(2, 3, 3)),
    "e": np.zeros((2, 3, 0, 4)),
}
MAX = ["2", "3, 2", "3, 2, 1", "3, 1, 0, 2, True", "2, ceil_mode=True, return_indices=True", "3, 2, 1, 1, True, True"]
AVERAGE = ["2", "3, 2, 1", "3, 2, 1, True", "3, 2, 1, True, False", "3, 1, 1, False, False", "2, ceil_mode=True"]
DIVISOR = ["3, 2, 1, divisor_override=5", "2, 2, 0, True, divisor_override=-3"]
ADAPTIVE = ["1", "2", "3", "5", "11"]
EACH = {1: ["(4,)"], 2: ["(2, None)", "(None, None)", "(9, 1)"], 3: ["(2, None, 1)", "(3, 5, 7)"]}
VALUES = [
    *[f"F.max_pool{r}d({x}{r}, {o})" for r in SIZES for x in ("x", "one") for o in MAX],
    *[f"F.avg_pool{r}d({x}{r}, {o})" for r in SIZES for x in ("x", "one") for o in AVERAGE],
    *[f"F.avg_pool{r}d(x{r}, {o})" for r in (2, 3) for o in DIVISOR],
    *[f"F.lp_pool{r}d(x{r}.abs(), {p}, {o})" for r in SIZES for p in (1, 2, 3.5) for o in ("2", "3, 2", "3, 2, True")],
    *[
        f"F.adaptive_{kind}_pool{r}d({x}{r}, {o})"
        for r in SIZES
        for kind in ("avg", "max")
        for x in ("x", "one")
        for o in ADAPTIVE + EACH[r]
    ],
    *[f"F.adaptive_max_pool{r}d(x{r}, {o}, return_indices=True)" for r in SIZES for o in ADAPTIVE + EACH[r]],
    *[
        f"F.fractional_max_pool{r}d(x{r}, {k}, {o}, return_indices=True, _random_samples=u{r})"
        for r in (2, 3)
        for k, o in (
            ("2", "3"),
            (str((2, 3, 2)[:r]), str((4, 2, 3)[:r])),
            ("2", f"output_ratio={(0.5, 0.6, 0.4)[:r]}"),
            ("3", "1"),
        )
    ],
    *[
        f"F.max_unpool{r}d(*F.max_pool{r}d({x}{r}[..., :6], {o}, return_indices=True), {o}, "
        f"output_size=one{r}[..., :6].shape[1:])"
        for r in SIZES
        for x in ("x", "one")
        for o in ("2", "2, 2")
    ],
    *[f"F.max_unpool{r}d(*F.max_pool{r}d(x{r}, 2, return_indices=True), 2, output_size=x{r}.size())" for r in SIZES],
    *split("""
F.max_pool2d(f2, (3, 2), (2, 1), (1, 0)); F.avg_pool2d(f2, (3, 2), (2, 1), (1, 0)); F.adaptive_avg_pool2d(f2, (4, 5))
F.max_pool2d_with_indices(x2, 2); F.adaptive_max_pool2d_with_indices(x2, 4); F.max_pool2d(x2, [2, 3], stride=[])
nn.MaxPool2d(3, 2, 1)(f2); nn.MaxPool1d(2, return_indices=True)(x1); nn.MaxPool3d(2, ceil_mode=True)(x3)
nn.AvgPool1d(3, 2, 1)(x1); nn.AvgPool2d(3, 2, 1, True, False)(x2); nn.AvgPool3d(2, divisor_override=3)(x3)
nn.LPPool1d(2, 3)(x1); nn.LPPool2d(2, 3, 2)(x2); nn.LPPool3d(2, 2)(x3); nn.AdaptiveAvgPool1d(4)(x1)
nn.AdaptiveAvgPool2d((None, 3))(x2); nn.AdaptiveAvgPool3d(2)(x3); nn.AdaptiveMaxPool1d(4)(x1)
nn.AdaptiveMaxPool2d((None, 3), True)(x2); nn.AdaptiveMaxPool3d(2)(x3)
nn.MaxUnpool2d(2)(*F.max_pool2d(x2[:, :, :8, :6], 2, return_indices=True))
nn.MaxUnpool1d(2)(*nn.MaxPool1d(2, return_indices=True)(x1))
nn.MaxUnpool3d(2)(*nn.MaxPool3d(2, return_indices=True)(x3), output_size=x3.size())
nn.FractionalMaxPool2d(2, 3, _random_samples=u2)(x2); nn.FractionalMaxPool3d(2, 3, _random_samples=u3)(x3)
"""),
]
ERRORS = split("""
F.max_pool2d(x2, 3, padding=2); F.max_pool2d(x2, 0); F.max_pool2d(x2, 2, 0); F.max_pool2d(x2, 20)
F.max_pool2d(x1[0], 2); F.max_pool2d(x3, 2); F.max_pool2d(x2, (1, 2, 3)); F.max_pool1d(x2, 2)
F.avg_pool2d(x2, 3, padding=2); F.avg_pool2d(x2, 20); F.avg_pool2d(x2, 2, divisor_override=0); F.avg_pool1d(x3, 2)
F.adaptive_avg_pool2d(x2, (1, 2, 3)); F.adaptive_avg_pool2d(x2, -1)
F.max_unpool2d(*F.max_pool2d(x2, 2, return_indices=True), 2)
F.adaptive_max_pool2d(e, 2); F.fractional_max_pool2d(x2, 2); F.fractional_max_pool2d(x2, 2, 20)
F.fractional_max_pool2d(x2, 2, output_ratio=(0.5, 1.5)); nn.FractionalMaxPool2d(2); nn.FractionalMaxPool2d(2, 3, 0.5)
F.max_unpool2d(x2, x2.long()[:1], 2)
F.max_unpool2d(*F.max_pool2d(x2, 2, return_indices=True), 2, output_size=(30, 3))
F.max_unpool2d(x2, x2, 2)
""")
GRADIENTS = [
    *[f"F.max_pool{r}d(x{r}, 3, 2, 1)" for r in SIZES],
    *[f"F.avg_pool{r}d(x{r}, 3, 2, 1)" for r in SIZES],
    *[f"F.lp_pool{r}d(x{r} * x{r} + 0.1, 3, 3, 2)" for r in SIZES],
    *[f"F.adaptive_{k}_pool{r}d(x{r}, {n})" for r in SIZES for k in ("avg", "max") for n in (1, 3, 4)],
    "F.max_pool2d(x2, 2, ceil_mode=True)", "F.avg_pool2d(x2, 3, 2, 1, True, False)",
    "F.avg_pool2d(x2, 2, 2, 0, True, divisor_override=3)", "F.adaptive_avg_pool2d(x2, (None, 2))",
    "F.fractional_max_pool2d(x2, 2, 3, _random_samples=u2)", "F.fractional_max_pool3d(x3, 2, 3, _random_samples=u3)",
    "F.max_unpool2d(*F.max_pool2d(x2, 2, return_indices=True), 2, output_size=(9, 7))",
]  # fmt: skip


@pytest.mark.parametrize("expression", VALUES)
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, 1e-5 if "f2" in expression else 1e-9, 1e-6 if "f2" in expression else 1e-9)


@pytest.mark.parametrize("expression", ERRORS)
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradient(expression: str) -> None:
    check_gradient(expression, ARRAYS, [n for n in ARRAYS if f"({n}" in expression], second="unpool" not in expression)


@pytest.mark.parametrize("name", ["MaxPool2d", "AvgPool2d", "LPPool2d", "AdaptiveMaxPool2d", "MaxUnpool2d"])
def test_repr(name: str) -> None:
    args = (2, 3) if name == "LPPool2d" else (3,)
    assert repr(getattr(ox.nn, name)(*args)) == repr(getattr(torch.nn, name)(*args))
