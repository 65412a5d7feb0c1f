"""TransformerEncoderLayer and TransformerEncoder."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

from ox.dtypes import DType
from ox.errors import ArgumentError
from ox.nn import functional as F
from ox.nn.attention import MultiheadAttention
from ox.nn.containers import ModuleList
from ox.nn.dropout import Dropout
from ox.nn.linear import Linear
from ox.nn.module import Module
from ox.nn.norm import LayerNorm
from ox.tensor import Tensor

_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class TransformerEncoderLayer(Module):
    """Self-attention and a feed-forward block, each with dropout, a residual and layer norm.
    `torch.nn.TransformerEncoderLayer`: [T, N, d_model], or [N, T, d_model] with `batch_first`.

    Args:
        activation: "relu", "gelu" or a function on tensors.
        norm_first: normalise what goes into each block instead of what comes out.
    """

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: str | Callable[[Tensor], Tensor] = "relu",
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if isinstance(activation, str) and activation not in _ACTIVATIONS:
            raise ArgumentError(f"activation is not {activation!r}", expected="'relu', 'gelu' or a function")
        self.self_attn = MultiheadAttention(d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype)
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        self.norm_first = norm_first
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        masks = (src_mask, src_key_padding_mask, is_causal)
        if self.norm_first:
            src = src + self._attention(self.norm1(src), *masks)
            return src + self._feed_forward(self.norm2(src))  # type: ignore[no-any-return]
        src = self.norm1(src + self._attention(src, *masks))
        return self.norm2(src + self._feed_forward(src))  # type: ignore[no-any-return]

    def _attention(self, x: Tensor, mask: Tensor | None, padding: Tensor | None, is_causal: bool) -> Any:
        out, _ = self.self_attn(
            x, x, x, key_padding_mask=padding, need_weights=False, attn_mask=mask, is_causal=is_causal
        )
        return self.dropout1(out)

    def _feed_forward(self, x: Tensor) -> Any:
        return self.dropout2(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after the other. `torch.nn.TransformerEncoder`."""

    def __init__(self, encoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = ModuleList(copy.deepcopy(encoder_layer) for _ in range(num_layers))
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, mask, src_key_padding_mask, is_causal)
        return src if self.norm is None else self.norm(src)
