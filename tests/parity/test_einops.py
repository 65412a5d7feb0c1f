"""einops' documented patterns and its layers, beside PyTorch: values and gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sides import check_gradient, check_value, torch

import ox

einops = pytest.importorskip("einops", reason="einops is an extra of the tests")

import einops.layers.torch as theirs_of  # noqa: E402
from einops_patterns import ARRAYS, BATCH, PLAIN  # noqa: E402

import ox.einops  # noqa: E402

NAMES = {
    name: getattr(einops, name) for name in ("einsum", "pack", "parse_shape", "rearrange", "reduce", "repeat", "unpack")
}
INPUTS = {**ARRAYS, **NAMES}


@pytest.mark.parametrize("text", [text for text in BATCH + PLAIN if "asnumpy" not in text])
def test_values(text: str) -> None:
    check_value(text, INPUTS)


@pytest.mark.parametrize("text", [text for text in BATCH if "'prod'" not in text])
def test_gradients(text: str) -> None:
    check_gradient(text, INPUTS, ["ims", "x", "seq", "v", "q", "k", "m", "square"])


LAYERS = [
    ("Rearrange", ("b c (h p1) (w p2) -> b (h w) (p1 p2 c)",), {"p1": 2, "p2": 2}, (2, 3, 4, 6)),
    ("Rearrange", ("b ... c -> b c ...",), {}, (2, 5, 4, 3)),
    ("Rearrange", ("... -> ... 1",), {}, (2, 5)),
    ("Reduce", ("b c (h 2) (w 2) -> b c h w", "max"), {}, (2, 3, 4, 6)),
    ("Reduce", ("b ... -> b", "mean"), {}, (2, 5, 4, 3)),
    ("Reduce", ("b c -> b", "prod"), {}, (2, 5)),
    ("EinMix", ("t b cin -> t b cout", "cin cout", "cout"), {"cin": 3, "cout": 5}, (2, 4, 3)),
    ("EinMix", ("b h w c -> b hout w c", "h hout", "hout"), {"h": 4, "hout": 6}, (2, 4, 5, 3)),
    ("EinMix", ("t b c -> t b c", "c"), {"c": 3}, (2, 4, 3)),
    ("EinMix", ("t b (head cin) -> t b (head cout)", "head cin cout"), {"head": 2, "cin": 3, "cout": 4}, (2, 4, 6)),
    ("EinMix", ("b c ... -> b cout ...", "c cout"), {"c": 3, "cout": 2}, (2, 3, 4, 5)),
    ("EinMix", ("b (hi h) (wi w) c -> b (h w) co", "h w c co"), {"h": 2, "w": 2, "c": 3, "co": 4, "hi": 1, "wi": 1},
     (2, 2, 2, 3)),
]  # fmt: skip


@pytest.mark.parametrize("name, args, sizes, shape", LAYERS, ids=[f"{n}-{a[0]}" for n, a, _, _ in LAYERS])
def test_layers(name: str, args: tuple[str, ...], sizes: dict[str, int], shape: tuple[int, ...]) -> None:
    theirs = getattr(theirs_of, name)(*args, **sizes)
    ours: Any = getattr(ox.einops, name)(*args, **sizes)
    assert repr(ours) == repr(theirs) and list(ours.state_dict()) == list(theirs.state_dict())
    ours.load_state_dict({k: ox.from_numpy(v.numpy()) for k, v in theirs.state_dict().items()})
    array = np.random.default_rng(0).random(shape, dtype=np.float32)
    x, y = ox.tensor(array, requires_grad=True), torch.tensor(array, requires_grad=True)
    made, expected = ours(x), theirs(y)
    np.testing.assert_allclose(made.detach().numpy(), expected.detach().numpy(), rtol=1e-5, atol=1e-6)
    made.square().sum().backward()
    expected.square().sum().backward()
    np.testing.assert_allclose(x.grad.numpy(), y.grad.numpy(), rtol=1e-5, atol=1e-5)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        np.testing.assert_allclose(p.grad.numpy(), q.grad.numpy(), rtol=1e-4, atol=1e-5)
