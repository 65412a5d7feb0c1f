"""Attention in blocks on a GPU: against NumPy in float64 and the CPU, and what it keeps in memory."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gpu_and_cpu import compare, random

import ox
from ox import nn
from ox.core.operator import OPS

pytestmark = pytest.mark.gpu
F = nn.functional


def in_float64(q: Any, k: Any, v: Any, g: Any, factors: Any = 1.0, added: Any = 0.0) -> list[Any]:
    """Attention with weights times factors, and its gradients."""
    scale = q.shape[-1] ** -0.5
    scores = q @ k.swapaxes(-1, -2) * scale + added
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    back = g @ v.swapaxes(-1, -2) * factors
    slopes = weights * (back - (back * weights).sum(-1, keepdims=True)) * scale
    dropped = weights * factors
    return [dropped @ v, slopes @ k, slopes.swapaxes(-1, -2) @ q, dropped.swapaxes(-1, -2) @ g]


def on_gpu(q: Any, k: Any, v: Any, g: Any, **settings: Any) -> list[Any]:
    own = [x.detach().to("cuda").requires_grad_() for x in (q, k, v)]
    made = F.scaled_dot_product_attention(*own, **settings)
    made.backward(g.to("cuda"))
    return [x.detach().cpu().double().numpy() for x in (made, *[x.grad for x in own])]


@pytest.mark.parametrize(
    ("rows", "keys", "width", "value_width"),
    [(1, 1, 1, 1), (65, 3, 2, 33), (7, 130, 31, 16), (64, 64, 64, 64), (5, 66, 100, 65), (66, 65, 256, 3)],
)
@pytest.mark.parametrize("dtype", [ox.float32, ox.bfloat16, ox.float16], ids=str)
def test_the_formula(rows: int, keys: int, width: int, value_width: int, dtype: Any) -> None:
    sizes = ((2, rows, width), (2, keys, width), (2, keys, value_width), (2, rows, value_width))
    q, k, v, g = (random(*size, dtype=dtype, seed=i) for i, size in enumerate(sizes))
    lower = np.where(np.tril(np.ones((rows, keys), bool)), 0.0, -np.inf)
    for causal in (False, True):
        wanted = in_float64(*(x.double().numpy() for x in (q, k, v, g)), added=lower if causal else 0.0)
        for a, b in zip(on_gpu(q, k, v, g, is_causal=causal), wanted, strict=True):
            allowed = {ox.float32: 2e-6, ox.float16: 2e-3}.get(dtype, 1e-2)
            np.testing.assert_allclose(a, b, rtol=0, atol=allowed * max(1.0, np.abs(b).max()))


@pytest.mark.parametrize("dtype", [ox.float32, ox.bfloat16, ox.float16], ids=str)
def test_heads_that_share_keys_masks_and_views(dtype: Any) -> None:
    generator = np.random.default_rng(0)
    allowed = ox.tensor(generator.random((2, 4, 70, 67)) > 0.5) & (ox.arange(70) != 65).reshape(70, 1)
    bias = ox.tensor(np.where(generator.random((4, 1, 67)) > 0.3, generator.random((4, 1, 67)), -np.inf)).to(dtype)
    heads = random(2, 70, 4, 8, dtype=dtype), random(2, 67, 2, 8, dtype=dtype, seed=1), random(2, 67, 2, 6, dtype=dtype)

    def attend(mask: Any) -> Any:
        def work(q: Any, k: Any, v: Any) -> Any:
            turned = [x.transpose(1, 2) for x in (q, k, v)]
            own = None if mask is None else mask.to(q.device)
            return F.scaled_dot_product_attention(*turned, own, enable_gqa=True, is_causal=mask is None)

        return work

    nowhere = ox.full((70, 67), -np.inf).to(dtype)
    for mask in (None, allowed, bias, allowed[:, :1, :, :1], nowhere):
        compare(attend(mask), *heads)


@pytest.mark.parametrize("mask", [[[True]], [[0.5]], 0.5])
def test_a_mask_of_one_element_on_the_host(mask: Any) -> None:
    q, k, v, g = (random(2, 5, 4, seed=i) for i in range(4))
    for a, b in zip(on_gpu(q, k, v, g, attn_mask=ox.tensor(mask)), on_gpu(q, k, v, g), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-6)  # which adds the same to all scores of a row


@pytest.mark.parametrize("sizes", [(0, 3, 4), (3, 0, 4), (3, 2, 0)])
def test_nothing(sizes: tuple[int, int, int]) -> None:
    rows, keys, width = sizes
    q, k, v = random(2, rows, width), random(2, keys, width), random(2, keys, width)
    for a, b in zip(on_gpu(q, k, v, random(2, rows, width)), (q, q, k, v), strict=True):
        assert a.shape == b.shape and not a.any()


def test_dropout_has_the_numbers_of_the_cpu() -> None:
    """In calls one after the other, captured, and of a generator that goes on."""
    q, k, v = random(2, 3, 67, 4), random(2, 3, 65, 4, seed=1), ox.eye(65).expand(2, 3, 65, 65)

    def dropped(*inputs: Any) -> Any:
        return F.scaled_dot_product_attention(*inputs, dropout_p=0.3)

    found = []
    for device, run in (("cpu", dropped), ("cuda", dropped), ("cuda", ox.compile(dropped))):
        ox.manual_seed(7)
        inputs = [x.to(device) for x in (q, k, v)]
        found.append([run(*inputs).cpu().numpy() for _ in range(4)])
    for cpu, eager, captured in zip(*found, strict=True):
        assert np.array_equal(eager == 0, cpu == 0) and np.array_equal(eager, captured)
        np.testing.assert_allclose(eager, cpu, rtol=1e-5)
    assert not np.array_equal(found[0][0], found[0][1])


def test_gradients_with_dropout() -> None:
    q, k, v, g = (random(1, 66, width, seed=width) for width in (4, 4, 5, 5))
    ox.manual_seed(3)
    kept = F.scaled_dot_product_attention(q, k, ox.eye(66)[None], dropout_p=0.4).numpy() > 0
    ox.manual_seed(3)
    found = on_gpu(q, k, v, g, dropout_p=0.4)
    wanted = in_float64(*(x.double().numpy() for x in (q, k, v, g)), factors=kept / 0.6)
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=5e-6 * np.abs(b).max())


def test_dropout_of_everything_and_pytorchs_numbers() -> None:
    q = random(1, 5, 4)
    assert not on_gpu(q, q, q, q, dropout_p=1.0)[0].any()
    with ox.random.torch_compatible(True):

        def attend(x: Any) -> Any:
            ox.manual_seed(0)
            return F.scaled_dot_product_attention(x, x, x, dropout_p=0.5)

        compare(attend, q)


def test_each_run_gives_the_same_bits() -> None:
    q, k, v, g = (random(2, 4, 130, 16, seed=i) for i in range(4))
    first = on_gpu(q, k, v, g, is_causal=True)
    assert all(np.array_equal(a, b) for a, b in zip(first, on_gpu(q, k, v, g, is_causal=True), strict=True))


@pytest.mark.parametrize("dtype", [ox.float32, ox.float16], ids=str)
@pytest.mark.parametrize("kind", ["plain", "causal", "mask", "bias", "dropout", "layer"])
def test_no_array_has_a_number_for_each_score(kind: str, dtype: Any) -> None:
    import cupy

    length, sizes = 300, list[int]()

    class Sizes(cupy.cuda.MemoryHook):  # type: ignore[misc]
        name = "Sizes"

        def malloc_preprocess(self, **given: Any) -> None:
            sizes.append(given["mem_size"])

    x = random(1, 2, length, 8).to("cuda").to(dtype).requires_grad_()
    x[0, 0] @ x[0, 0].t()  # cuBLAS has its workspace
    layer = nn.MultiheadAttention(8, 2, dropout=0.1, batch_first=True).to("cuda").to(dtype)
    masks = {"mask": ox.ones(1, 2, 1, length, device="cuda") > 0, "bias": ox.ones(length, 1, device="cuda").to(dtype)}
    settings: dict[str, Any] = {"attn_mask": masks.get(kind), "is_causal": kind == "causal"}
    with Sizes():
        if kind == "layer":
            made = layer(x[0], x[0], x[0], key_padding_mask=masks["mask"][0, :, 0] < 0, need_weights=False)[0]
        else:
            made = F.scaled_dot_product_attention(x, x, x, dropout_p=0.1 if kind == "dropout" else 0.0, **settings)
        made.sum().backward()
    assert x.grad is not None and sizes and max(sizes) < length * length  # bytes


def test_wider_heads_keep_their_weights() -> None:
    compare(lambda x: F.scaled_dot_product_attention(x, x, x), random(1, 3, 257))


def test_second_gradients() -> None:
    def norm(q: Any, k: Any, v: Any) -> Any:
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        found = ox.autograd.grad(y.square().sum(), (q, k, v), create_graph=True)
        return sum(g.square().sum() for g in found).reshape(1)

    compare(norm, *[random(1, 5, 4, seed=i) for i in range(3)])


def test_logarithms_are_of_float32() -> None:
    x = random(1, 5, 4, dtype=ox.float16).to("cuda")
    assert OPS["ox.BlockwiseAttention"](x, x, x, outputs=2)[1].dtype == ox.float32
