"""Padding and the dropouts beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split, torch

import ox

R = np.random.default_rng(13)
ARRAYS = {
    "v": R.normal(size=4),
    "m": R.normal(size=(3, 5)),
    "k": R.normal(size=(2, 3, 5)),
    "x": R.normal(size=(2, 3, 5, 4)),
    "c": R.normal(size=(2, 3, 4, 5, 4)),
    "i": R.integers(-5, 5, (2, 3, 5)),
}
PADS = [
    ("m", "(2, 1)"), ("k", "(1, 2)"), ("k", "(4, 4)"), ("k", "(1, 2, 2, 0)"), ("x", "(1, 2, 3, 0)"),
    ("x", "(1, -1, -2, 1)"),
    ("x", "(1, 2, -1, 3)"), ("c", "(1, 1, 2, 1, 0, 2)"), ("x", "(0, 0, 1, 1, 2, 2)"), ("i", "(1, 2)"),
]  # fmt: skip
MODES = ("reflect", "replicate", "circular")
VALUES = [
    *[f"F.pad({a}, {p}, {m!r})" for a, p in PADS for m in MODES if (a, p) != ("x", "(0, 0, 1, 1, 2, 2)")],
    *[f"F.pad({a}, {p})" for a, p in PADS],
    *[
        f"nn.{kind}Pad{r}d({o}{', 2.5' if kind == 'Constant' else ''})({'kxc'[r - 1]})"
        for kind in ("Constant", "Zero", "Reflection", "Replication", "Circular")
        for r in (1, 2, 3)
        for o in (1, (2, 1, 0, 3, 2, 1)[: 2 * r])
    ],
    *split("""
F.pad(v, (1, 1)); F.pad(v, (-1, -2)); F.pad(x, (1, 1), value=3.5); F.pad(i, (1, 0), "constant", 7)
F.pad(k, (5, 0), "circular")
F.pad(m, ()); F.pad(x, [1, 1, 2, 2]); F.pad(k, (9, 9), "replicate")
"""),
]
ERRORS = split("""
F.pad(v, (1, 1), "reflect"); F.pad(v, (1, 1), "circular"); F.pad(k, (1,)); F.pad(v, (1, 1, 1, 1))
F.pad(k, (5, 0), "reflect")
F.pad(k, (6, 0), "circular"); F.pad(k, (-3, -3)); F.pad(k, (1, 1), "mirror"); F.pad(x, (1, 1), "reflect")
F.pad(k, (1, 1), "reflect", 2.0); nn.ReflectionPad1d(9)(k); nn.ConstantPad1d(1)
nn.Dropout(1.5); nn.Dropout(-0.1); F.dropout(v, 2.0); F.dropout1d(x); F.alpha_dropout(v, -1.0)
""")
GRADIENTS = [
    *[f"F.pad(x, (1, 2, 2, 1), {m!r})" for m in ("constant", *MODES)],
    *[f"F.pad(x, (1, -1, -1, 2), {m!r})" for m in ("constant", *MODES)],
    "F.pad(k, (2, 2), 'reflect')",
    "F.pad(c, (1, 1, 1, 1, 1, 1), 'replicate')", "F.pad(c, (1, 1, 1, 1, 1, 1), 'reflect')",
]  # fmt: skip


@pytest.mark.parametrize("expression", VALUES)
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, 1e-12, 1e-12)


@pytest.mark.parametrize("expression", ERRORS)
def test_error(expression: str) -> None:
    if expression == "nn.ConstantPad1d(1)":
        with pytest.raises(TypeError):
            ox.nn.ConstantPad1d(1)  # type: ignore[call-arg]
        return
    check_error(expression, ARRAYS)


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradient(expression: str) -> None:
    check_gradient(expression, ARRAYS, [expression[6]])


DROPOUTS = [
    ("dropout", (40, 30)), ("dropout1d", (40, 30, 2)), ("dropout1d", (300, 2)), ("dropout2d", (40, 30, 2, 2)),
    ("dropout2d", (40, 30, 3)), ("dropout3d", (40, 30, 2, 1, 2)), ("dropout3d", (300, 2, 1, 2)),
    ("alpha_dropout", (40, 30)), ("feature_alpha_dropout", (40, 30, 2, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("name", "shape"), DROPOUTS)
@pytest.mark.parametrize("p", [0.0, 0.3, 1.0])
def test_dropout_takes_the_same_values(name: str, shape: tuple[int, ...], p: float) -> None:
    """Other elements are dropped than in PyTorch, but together with the same ones, and to the same numbers."""
    x = np.ones(shape, np.float32)
    ours, theirs = getattr(ox.nn.functional, name), getattr(torch.nn.functional, name)
    with pytest.warns(UserWarning) if (name, len(shape)) == ("dropout2d", 3) else _nothing():
        expected = theirs(torch.tensor(x), p, True).numpy()
    got = ours(ox.tensor(x), p, True).numpy()
    assert np.allclose(np.unique(got), np.unique(expected), rtol=1e-5, atol=1e-6)
    share = (got == got.max()).mean()
    assert p == 1 or abs(share - (1 - p)) < 0.1
    lead = got.ndim if name in ("dropout", "alpha_dropout") else 1 if len(shape) in (2,) or shape[0] == 300 else 2
    for y in (got, expected):
        rows = y.reshape(*shape[:lead], -1)
        assert (rows == rows[..., :1]).all(), "what shares a channel is dropped together"
    assert ours(t := ox.tensor(x), p, False) is t or not (ours(t, p, False).numpy() - x).any()


def _nothing() -> object:
    from contextlib import nullcontext

    return nullcontext()
