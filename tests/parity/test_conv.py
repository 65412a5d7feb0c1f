"""Convolutions and their transposes, as functions and as modules, beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split, torch

import ox
from ox.errors import ShapeError
from ox.tolerance import compare

R = np.random.default_rng(11)
SIZES = {1: (9,), 2: (8, 7), 3: (5, 6, 4)}
ARRAYS = {
    "b": R.normal(size=6),
    "b4": R.normal(size=4),
    **{f"x{r}": R.normal(size=(2, 4, *n)) for r, n in SIZES.items()},
    **{f"one{r}": R.normal(size=(4, *n)) for r, n in SIZES.items()},
    **{f"w{r}": R.normal(size=(6, 4, *[3] * r)) for r in SIZES},
    **{f"g{r}": R.normal(size=(6, 2, *[3] * r)) for r in SIZES},
    **{f"t{r}": R.normal(size=(4, 3, *[3] * r)) for r in SIZES},
    "x2f": R.normal(size=(2, 4, 8, 7)).astype(np.float32),
    "w2f": R.normal(size=(6, 4, 3, 3)).astype(np.float32),
    "i2": np.ones((2, 4, 8, 7), np.int64),
}
OPTIONS = """; 2; 1, 1; 1, "same", 2; 1, "valid"; 2, 2, 2; 3, 0, 1; padding=(1,); stride=[2]; 1, 1, 2"""
VALUES = [
    *[
        f"F.conv{r}d(x{r}, w{r}{bias}{', ' if o else ''}{o})"
        for r in SIZES
        for bias in (", b",)
        for o in (part.strip() for part in OPTIONS.split(";"))
    ],
    *[f"F.conv{r}d(x{r}, g{r}, b, groups=2)" for r in SIZES],
    *[f"F.conv{r}d(one{r}, w{r}, None, padding=1)" for r in SIZES],
    *[
        f"F.conv_transpose{r}d(x{r}, t{r}, {o})"
        for r in SIZES
        for o in ("", "b[:3]", "None, 2", "None, 2, 1", "None, 2, 1, 1", "None, 3, 2, 1, 1, 2", "padding=1, dilation=2")
    ],
    *[f"F.conv_transpose{r}d(x{r}, t{r}, b, groups=2, stride=2)" for r in SIZES],
    *[f"F.conv_transpose{r}d(one{r}, t{r})" for r in SIZES],
    *split("""
F.conv2d(x2, w2, b, (2, 1), (0, 2), (1, 2)); F.conv2d(x2f, w2f); F.conv2d(x2f, w2f, stride=2, padding=1)
F.conv_transpose2d(x2, t2, None, (2, 3), (1, 0), (1, 2)); F.conv2d(x2, w2, padding="same", dilation=(1, 2))
F.conv2d(x2[:0], w2); F.conv2d(x2, w2[:, :, :2, :2], padding="same"); F.conv1d(x1, w1[:, :, :1])
"""),
]
ERRORS = split("""
F.conv2d(x2, w2, stride=0); F.conv2d(x2, w2, padding=-1); F.conv2d(x2, w2, dilation=0); F.conv2d(x2, w2, groups=3)
F.conv2d(x2, w2, groups=0); F.conv2d(x2, w2, padding="full"); F.conv2d(x2, w2, stride=2, padding="same")
F.conv2d(x2, w1); F.conv1d(x2, w1); F.conv2d(x2, g2); F.conv2d(x2, w2, b4); F.conv2d(x2[:, :, :2], w2)
F.conv2d(x2f, w2); F.conv2d(i2, w2); F.conv2d(x2, w2, stride=(1, 2, 3)); F.conv3d(x2, w3); F.conv2d(x2[0, 0], w2)
F.conv_transpose2d(x2, t2, output_padding=1); F.conv_transpose2d(x2, w2); F.conv_transpose2d(x2, t2, b4)
F.conv_transpose1d(x2, t1); F.conv_transpose2d(x2, t2, padding=-1)
nn.Conv2d(4, 6, 3, groups=3); nn.Conv2d(4, 6, 3, padding_mode="mirror")
nn.ConvTranspose2d(4, 6, 3, padding_mode="reflect")
nn.Conv2d(4, 6, 3, padding="half")
nn.Conv2d(4, 6, 3, stride=2, padding="same")
""")
GRADIENTS = [
    "F.conv1d(x1, w1, b, 2, 1)", "F.conv1d(x1, w1, b, padding='same')", "F.conv2d(x2, w2, b)",
    "F.conv2d(x2, w2, b, 1, 1)", "F.conv2d(x2, w2, b, 1, 3)", "F.conv2d(x2, w2, b, 2, 1, 2)",
    "F.conv2d(x2, g2, b, groups=2, padding=1)", "F.conv2d(one2, w2, b)", "F.conv3d(x3, w3, b, 1, 1)",
    "F.conv_transpose1d(x1, t1, None, 2, 1, 1)", "F.conv_transpose2d(x2, t2, None, 2, 1, 1)",
    "F.conv_transpose2d(x2, t2, b, groups=2)", "F.conv_transpose3d(x3, t3)",
]  # fmt: skip


@pytest.mark.parametrize("expression", VALUES)
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, 1e-5 if "f," in expression else 1e-9, 2e-5 if "f," in expression else 1e-9)


@pytest.mark.parametrize("expression", ERRORS)
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradient(expression: str) -> None:
    names = [n for n in ARRAYS if n in expression.replace("(", " ").replace(",", " ").replace(")", " ").split()]
    check_gradient(expression, ARRAYS, names)


MODULES: list[tuple[str, tuple[object, ...], dict[str, object]]] = [
    *[(f"Conv{r}d", (4, 6, 3), o) for r in SIZES for o in ({}, {"stride": 2, "padding": 1, "bias": False})],
    *[
        (f"Conv{r}d", (4, 6, 3), {"padding": 1, "padding_mode": m})
        for r in SIZES
        for m in ("reflect", "replicate", "circular")
    ],
    ("Conv2d", (4, 6, (3, 2)), {"padding": "same", "padding_mode": "circular"}),
    ("Conv2d", (4, 6, 3), {"padding": (1, 2), "groups": 2, "dilation": (1, 2)}),
    *[(f"ConvTranspose{r}d", (4, 6, 3), o) for r in SIZES for o in ({}, {"stride": 2, "padding": 1, "groups": 2})],
    ("ConvTranspose2d", (4, 6, (3, 2), (2, 3), 1, (1, 2), 2, False, 1), {}),
]


@pytest.mark.parametrize(("name", "args", "options"), MODULES)
@pytest.mark.filterwarnings("ignore:Using padding")
def test_module(name: str, args: tuple[object, ...], options: dict[str, object]) -> None:
    ours, theirs = getattr(ox.nn, name)(*args, **options), getattr(torch.nn, name)(*args, **options)
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = ARRAYS[f"x{name[-2]}"].astype(np.float32)
    a, b = ours(ox.tensor(x)), theirs(torch.tensor(x))
    assert compare(a.array, b.detach().numpy()).ok
    assert repr(ours) == repr(theirs)
    for attribute in ("kernel_size", "stride", "dilation", "groups", "padding", "output_padding", "padding_mode"):
        assert getattr(ours, attribute) == getattr(theirs, attribute)


@pytest.mark.parametrize("size", [(17, 14), (16, 14), (2, 6, 18, 13), (19, 14), (17,)])
def test_output_size(size: tuple[int, ...]) -> None:
    ours, theirs = (nn.ConvTranspose2d(4, 6, 3, 2, (1, 0) if size[0] == 16 else 0) for nn in (ox.nn, torch.nn))
    ours.load_state_dict({k: v.numpy() for k, v in theirs.state_dict().items()})
    x = ARRAYS["x2"].astype(np.float32)[..., :6]
    try:
        expected = theirs(torch.tensor(x), output_size=size)
    except ValueError:
        with pytest.raises(ShapeError):
            ours(ox.tensor(x), output_size=size)
        return
    assert compare(ours(ox.tensor(x), output_size=size).array, expected.detach().numpy()).ok
