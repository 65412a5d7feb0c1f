"""Attention and the transformer layer against PyTorch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ox import nn
from ox.nn import functional as F

torch = pytest.importorskip("torch")
tF = torch.nn.functional


def array(rng: np.random.Generator, *shape: int) -> Any:
    return rng.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}, {"scale": 0.3}])
def test_scaled_dot_product(parity: Any, rng: Any, options: dict[str, Any]) -> None:
    q, k, v = array(rng, 2, 3, 5, 4), array(rng, 2, 3, 6, 4), array(rng, 2, 3, 6, 7)
    parity(F.scaled_dot_product_attention, tF.scaled_dot_product_attention, q, k, v, **options)


def test_scaled_dot_product_masks(parity: Any, rng: Any) -> None:
    q, k, v = array(rng, 2, 3, 5, 4), array(rng, 2, 3, 6, 4), array(rng, 2, 3, 6, 7)
    allowed = rng.random((2, 1, 5, 6)) > 0.4
    allowed[0, 0, 2] = False  # a row that may go nowhere
    parity(F.scaled_dot_product_attention, tF.scaled_dot_product_attention, q, k, v, attn_mask=allowed)
    added = np.where(allowed, 0.5, -2.0).astype(np.float32)
    parity(F.scaled_dot_product_attention, tF.scaled_dot_product_attention, q, k, v, attn_mask=added)


@pytest.mark.parametrize("batch_first", [True, False])
@pytest.mark.parametrize("need_weights", [True, False])
@pytest.mark.parametrize("bias", [True, False])
def test_self_attention(parity: Any, rng: Any, batch_first: bool, need_weights: bool, bias: bool) -> None:
    ours, theirs = (m.MultiheadAttention(8, 2, batch_first=batch_first, bias=bias) for m in (nn, torch.nn))
    x = array(rng, 3, 5, 8)

    class Self(torch.nn.Module):  # the same tensor three times
        def __init__(self) -> None:
            super().__init__()
            self.inner = theirs

        def forward(self, x: Any) -> Any:
            return self.inner(x, x, x, need_weights=need_weights)

    class Ours(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = ours

        def forward(self, x: Any) -> Any:
            return self.inner(x, x, x, need_weights=need_weights)

    parity(Ours(), Self(), x)


@pytest.mark.parametrize("sizes", [(8, 8), (6, 5)])
def test_cross_attention(parity: Any, rng: Any, sizes: tuple[int, int]) -> None:
    ours, theirs = (m.MultiheadAttention(8, 2, kdim=sizes[0], vdim=sizes[1], batch_first=True) for m in (nn, torch.nn))
    q, k, v = array(rng, 3, 5, 8), array(rng, 3, 4, sizes[0]), array(rng, 3, 4, sizes[1])
    parity(ours, theirs, q, k, v)
    parity(ours, theirs, q, k, v, average_attn_weights=False)
    padding = np.array([[False, True, False, True], [False] * 4, [True, False, False, False]])
    parity(ours, theirs, q, k, v, key_padding_mask=padding)
    mask = np.triu(np.ones((5, 4), bool), 1)
    parity(ours, theirs, q, k, v, attn_mask=mask)
    parity(ours, theirs, q, k, v, attn_mask=mask, key_padding_mask=padding & (np.arange(4) > 0))
    parity(ours, theirs, q, k, v, attn_mask=np.where(mask, -1.5, 0.25).astype(np.float32))
    parity(ours, theirs, q, k, v, attn_mask=np.broadcast_to(mask, (6, 5, 4)).copy())
    parity(ours, theirs, q[0], k[0], v[0], key_padding_mask=padding[0])


@pytest.mark.parametrize("norm_first", [True, False])
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_encoder_layer(parity: Any, rng: Any, norm_first: bool, activation: str) -> None:
    options: Any = {"dropout": 0.0, "activation": activation, "norm_first": norm_first, "batch_first": True}
    ours, theirs = (m.TransformerEncoderLayer(8, 2, 16, **options) for m in (nn, torch.nn))
    x = array(rng, 2, 5, 8)
    parity(ours, theirs, x)
    mask = np.triu(np.ones((5, 5), bool), 1)
    parity(ours, theirs, x, src_mask=mask)
    encoder = torch.nn.TransformerEncoder(theirs, 2, enable_nested_tensor=False)
    parity(nn.TransformerEncoder(ours, 2), encoder, x)
