"""Images in other sizes, through grids and in other orders, beside PyTorch."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split, torch

import ox

R = np.random.default_rng(14)
ARRAYS = {
    "x1": R.normal(size=(2, 3, 9)),
    "x2": R.normal(size=(2, 3, 9, 8)),
    "x3": R.normal(size=(2, 3, 5, 6, 4)),
    "f2": R.normal(size=(2, 3, 9, 8)).astype(np.float32),
    "one2": R.normal(size=(3, 9, 8)),
    "g2": R.uniform(-1.9, 1.9, size=(2, 4, 5, 2)),
    "g3": R.uniform(-1.9, 1.9, size=(2, 3, 2, 4, 3)),
    "t2": R.normal(size=(2, 2, 3)),
    "t3": R.normal(size=(2, 3, 4)),
    "s": R.normal(size=(2, 12, 4, 6)),
    "e": np.zeros((2, 3, 0, 4)),
}
SMOOTH = [("linear", 1), ("bilinear", 2), ("bicubic", 2), ("trilinear", 3)]
SIZES = ["size=5", "size={t}", "scale_factor=2", "scale_factor=1.7", "scale_factor={s}", "size=1",
         "scale_factor=0.6, recompute_scale_factor=True"]  # fmt: skip


def sizes(rank: int) -> list[str]:
    return [o.replace("{t}", str((13, 4, 9)[:rank])).replace("{s}", str((0.6, 0.45, 1.3)[:rank])) for o in SIZES]


VALUES = [
    *[
        f"F.interpolate(x{r}, {o}, mode={m!r})"
        for r in (1, 2, 3)
        for m in ("nearest", "nearest-exact", "area")
        for o in sizes(r)
    ],
    *[
        f"F.interpolate(x{r}, {o}, mode={m!r}, align_corners={a})"
        for (m, r), a in product(SMOOTH, (None, False, True))
        for o in sizes(r)
    ],
    *[
        f"F.interpolate(x2, {o}, mode={m!r}, antialias=True)"
        for m in ("bilinear", "bicubic")
        for o in ("size=5", "size=(3, 17)", "scale_factor=0.4", "scale_factor=1.5")
    ],
    *[
        f"F.grid_sample(x{r}, g{r}, {m!r}, {p!r}, {a})"
        for r in (2, 3)
        for m, p, a in product(("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection"), (True, False))
        if (m, r) != ("bicubic", 3)
    ],
    *[f"F.affine_grid(t2, (2, 3, {h}, {w}), {a})" for h, w in ((4, 5), (1, 4)) for a in (True, False)],
    *[f"F.affine_grid(t3, (2, 1, 3, 4, 5), {a})" for a in (True, False)],
    *[f"F.unfold({x}, {o})" for x in ("x2", "one2") for o in ("2", "(2, 3), (1, 2), (1, 0), (2, 1)")],
    *[
        f"F.fold(F.unfold({x}, {o}), (9, 8), {o})"
        for x in ("x2", "one2")
        for o in ("2", "(2, 3), (1, 2), (1, 0), (2, 1)")
    ],
    *split("""
F.upsample(x2, scale_factor=2); F.upsample_nearest(x2, (3, 4)); F.upsample_bilinear(x2, scale_factor=2)
nn.Upsample(scale_factor=2)(x1); nn.Upsample((4, 3), mode="bilinear")(x2); nn.UpsamplingNearest2d(scale_factor=3)(x2)
nn.UpsamplingBilinear2d((5, 20))(x2); nn.Upsample(scale_factor=2, mode="trilinear", align_corners=True)(x3)
F.interpolate(f2, scale_factor=1.3, mode="bilinear"); F.interpolate(f2, (30, 4), mode="bicubic"); F.interpolate(f2, 3)
F.pixel_shuffle(s, 2); F.pixel_unshuffle(s, 2); F.pixel_shuffle(s[0], 2); F.pixel_unshuffle(s[:, None], 2)
F.channel_shuffle(s, 3)
F.channel_shuffle(x3, 3); nn.PixelShuffle(2)(s); nn.PixelUnshuffle(2)(s); nn.ChannelShuffle(4)(s)
nn.Unfold(3, 1, 1, 2)(x2)
nn.Fold((4, 6), 2, stride=2)(F.unfold(s, 2, stride=2)); F.interpolate(x2[:0], 4); F.grid_sample(x2[:0], g2[:0])
"""),
]
ERRORS = split("""
F.interpolate(x2); F.interpolate(x2, 3, 2); F.interpolate(x2, 3, mode="linear"); F.interpolate(x1, 3, mode="bilinear")
F.interpolate(x2, 3, mode="sharp"); F.interpolate(x2, 3, align_corners=True); F.interpolate(x2, (3, 4, 5))
F.interpolate(x2, 0); F.interpolate(x2, scale_factor=(1, 2, 3)); F.interpolate(x2, scale_factor=0.01)
F.interpolate(x2[0, 0], 3)
F.interpolate(e, 3); F.interpolate(x2, 3, antialias=True); F.interpolate(x2, 3, recompute_scale_factor=True)
F.interpolate(x2, -1)
F.grid_sample(x2, g3); F.grid_sample(x2, g2[:1]); F.grid_sample(x3, g3, "bicubic"); F.grid_sample(x2, g2, "cubic")
F.grid_sample(x2, g2, padding_mode="wrap"); F.grid_sample(e, g2); F.affine_grid(t2, (2, 3, 4))
F.affine_grid(t3, (2, 3, 4, 5)); F.affine_grid(t2, (3, 3, 4, 5)); F.affine_grid(t2, (2, 3, 0, 4))
F.pixel_shuffle(x2, 2); F.pixel_shuffle(s, 0)
F.pixel_unshuffle(s, 5); F.channel_shuffle(s, 5); F.unfold(x2, 20); F.unfold(x3, 2); F.fold(x1, (4, 5), 2)
F.fold(x1, (4, 5), (3, 1))
""")
GRADIENTS = [
    *[f"F.interpolate(x{r}, {(5, 12, 3)[:r]}, mode={m!r})" for m, r in SMOOTH],
    *[f"F.interpolate(x{r}, scale_factor=1.7, mode={m!r})" for m, r in SMOOTH],
    *[f"F.interpolate(x{r}, 7, mode={m!r}, align_corners=True)" for m, r in SMOOTH],
    *[f"F.interpolate(x2, (5, 12), mode={m!r})" for m in ("nearest", "nearest-exact", "area")],
    *[f"F.interpolate(x2, (5, 12), mode={m!r}, antialias=True)" for m in ("bilinear", "bicubic")],
    *[
        f"F.grid_sample(x{r}, g{r}, {m!r}, {p!r}, {a})"
        for r, m, p, a in product((2, 3), ("bilinear", "nearest"), ("zeros", "border", "reflection"), (True, False))
    ],
    *[f"F.grid_sample(x2, g2, 'bicubic', {p!r}, False)" for p in ("zeros", "border", "reflection")],
    "F.affine_grid(t2, (2, 3, 4, 5), False)", "F.affine_grid(t3, (2, 3, 4, 5, 2), True)", "F.unfold(x2, 3, 2, 1, 2)",
    "F.fold(F.unfold(x2, 3), (9, 8), 3)", "F.pixel_shuffle(s, 2)", "F.pixel_unshuffle(s, 2)",
]  # fmt: skip


@pytest.mark.parametrize("expression", VALUES)
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, 1e-5 if "f2" in expression else 1e-8, 1e-5 if "f2" in expression else 1e-8)


@pytest.mark.parametrize("expression", ERRORS)
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)


@pytest.mark.parametrize("expression", GRADIENTS)
def test_gradient(expression: str) -> None:
    # of sampling PyTorch has few second derivatives; ours stand against finite differences in tests/ops
    followed = [name for name in ARRAYS if name in expression and name != "e"]
    check_gradient(expression, ARRAYS, followed, second="grid_sample" not in expression)


@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_which_place_is_nearest(mode: str) -> None:
    for n, out in product(range(1, 24), range(1, 24)):
        x = np.arange(n, dtype=np.float64)[None, None]
        got = ox.nn.functional.interpolate(ox.tensor(x), out, mode=mode).numpy()
        assert (got == torch.nn.functional.interpolate(torch.tensor(x), out, mode=mode).numpy()).all(), (n, out)
