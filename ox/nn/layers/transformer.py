"""Transformer, its encoder and decoder, and their layers. Vaswani et al., "Attention is all you need" (2017)."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np

from ox.core.symbolic import Dim
from ox.dtypes import DType, get_default_dtype
from ox.errors import ArgumentError, ShapeError
from ox.functions.creation import full
from ox.nn import functional as F
from ox.nn import init
from ox.nn.base.module import Module
from ox.nn.layers.attention import MultiheadAttention
from ox.nn.layers.containers import ModuleList
from ox.nn.layers.dropout import Dropout
from ox.nn.layers.linear import Linear
from ox.nn.layers.normalization import LayerNorm
from ox.tensors.tensor import Tensor, make_tensor

__all__ = [
    "Transformer", "TransformerDecoder", "TransformerDecoderLayer", "TransformerEncoder", "TransformerEncoderLayer",
]  # fmt: skip

Activation = str | Callable[[Tensor], Tensor]
_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {"relu": F.relu, "gelu": F.gelu}


class _Layer(Module):
    """What the two layers share: attention to itself, the feed-forward block, and which norm comes when."""

    def __init__(
        self,
        d_model: int,
        nhead: int,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
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
        if self.decodes:
            self.multihead_attn = MultiheadAttention(
                d_model, nhead, dropout, bias, batch_first=batch_first, dtype=dtype
            )
        self.linear1 = Linear(d_model, dim_feedforward, bias, dtype=dtype)
        self.dropout = Dropout(dropout)
        self.linear2 = Linear(dim_feedforward, d_model, bias, dtype=dtype)
        self.norm_first = norm_first
        self.norm1 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.norm2 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        if self.decodes:
            self.norm3 = LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)
        self.dropout1, self.dropout2 = Dropout(dropout), Dropout(dropout)
        if self.decodes:
            self.dropout3 = Dropout(dropout)
        self.activation = _ACTIVATIONS[activation] if isinstance(activation, str) else activation

    decodes = False

    def _around(self, x: Tensor, norm: Module, block: Callable[[Tensor], Any]) -> Any:
        """A block with its residual and its norm, before or after."""
        return x + block(norm(x)) if self.norm_first else norm(x + block(x))

    def _sa_block(
        self, x: Tensor, attn_mask: Tensor | None, key_padding_mask: Tensor | None, is_causal: bool = False
    ) -> Tensor:
        """Attention of `x` to itself, and dropout."""
        out, _ = self.self_attn(
            x, x, x, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False, is_causal=is_causal
        )
        return self.dropout1(out)

    def _ff_block(self, x: Tensor) -> Tensor:
        """The feed-forward block, and dropout."""
        last = self.dropout3 if self.decodes else self.dropout2
        return last(self.linear2(self.dropout(self.activation(self.linear1(x)))))


class TransformerEncoderLayer(_Layer):
    """Self-attention and a feed-forward block, each with dropout, a residual and layer norm.
    `torch.nn.TransformerEncoderLayer`: [T, N, d_model], or [N, T, d_model] with `batch_first`, or [T, d_model].

    Args:
        activation: "relu", "gelu" or a function on tensors.
        norm_first: normalize what goes into each block instead of what comes out.
    """

    def forward(
        self,
        src: Tensor,
        src_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool = False,
    ) -> Tensor:
        """Masks as in `MultiheadAttention`; `is_causal` may replace an equal `src_mask`."""
        x = self._around(
            src, self.norm1, lambda x: self._sa_block(x, src_mask, src_key_padding_mask, is_causal=is_causal)
        )
        return self._around(x, self.norm2, self._ff_block)


class TransformerDecoderLayer(_Layer):
    """Self-attention, attention to the encoder's output, and a feed-forward block, each with dropout, a residual and
    layer norm. `torch.nn.TransformerDecoderLayer`; arguments as for the encoder's layer."""

    decodes = True

    def _mha_block(
        self,
        x: Tensor,
        mem: Tensor,
        attn_mask: Tensor | None,
        key_padding_mask: Tensor | None,
        is_causal: bool = False,
    ) -> Tensor:
        """Attention of `x` to the encoder's output, and dropout."""
        out, _ = self.multihead_attn(
            x, mem, mem, attn_mask=attn_mask, key_padding_mask=key_padding_mask, need_weights=False,
            is_causal=is_causal,
        )  # fmt: skip
        return self.dropout2(out)

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool = False,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """memory is what the encoder gave; masks as in `MultiheadAttention`."""
        x = self._around(tgt, self.norm1, lambda x: self._sa_block(x, tgt_mask, tgt_key_padding_mask, tgt_is_causal))
        x = self._around(
            x,
            self.norm2,
            lambda x: self._mha_block(x, memory, memory_mask, memory_key_padding_mask, memory_is_causal),
        )
        return self._around(x, self.norm3, self._ff_block)


class TransformerEncoder(Module):
    """`num_layers` copies of a layer, one after the other. `torch.nn.TransformerEncoder`.

    Args:
        norm: comes last.
        enable_nested_tensor, mask_check: taken for compatibility: nothing is skipped, and padded places of the output
            hold what attention from there gives.
    """

    def __init__(
        self,
        encoder_layer: Module,
        num_layers: int,
        norm: Module | None = None,
        enable_nested_tensor: bool = True,
        mask_check: bool = True,
    ) -> None:
        super().__init__()
        self.layers = _copies(encoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        src: Tensor,
        mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        is_causal: bool | None = None,
    ) -> Tensor:
        for layer in self.layers:
            src = layer(src, src_mask=mask, src_key_padding_mask=src_key_padding_mask, is_causal=bool(is_causal))
        return src if self.norm is None else self.norm(src)


class TransformerDecoder(Module):
    """`num_layers` copies of a decoder's layer, one after the other. `torch.nn.TransformerDecoder`."""

    def __init__(self, decoder_layer: Module, num_layers: int, norm: Module | None = None) -> None:
        super().__init__()
        self.layers = _copies(decoder_layer, num_layers)
        self.num_layers = num_layers
        self.norm = norm

    def forward(
        self,
        tgt: Tensor,
        memory: Tensor,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        for layer in self.layers:
            tgt = layer(
                tgt,
                memory,
                tgt_mask=tgt_mask,
                memory_mask=memory_mask,
                tgt_key_padding_mask=tgt_key_padding_mask,
                memory_key_padding_mask=memory_key_padding_mask,
                tgt_is_causal=bool(tgt_is_causal),
                memory_is_causal=memory_is_causal,
            )
        return tgt if self.norm is None else self.norm(tgt)


def _copies(layer: Module, count: int) -> ModuleList:
    return ModuleList(copy.deepcopy(layer) for _ in range(count))


class Transformer(Module):
    """Encoder and decoder: src [S, N, d_model] and tgt [T, N, d_model] to [T, N, d_model], or with `batch_first`
    [N, S, d_model] and so on, or without a batch. `torch.nn.Transformer`.

    Args:
        custom_encoder, custom_decoder: in place of those made here.
    """

    def __init__(
        self,
        d_model: int = 512,
        nhead: int = 8,
        num_encoder_layers: int = 6,
        num_decoder_layers: int = 6,
        dim_feedforward: int = 2048,
        dropout: float = 0.1,
        activation: Activation = "relu",
        custom_encoder: Module | None = None,
        custom_decoder: Module | None = None,
        layer_norm_eps: float = 1e-5,
        batch_first: bool = False,
        norm_first: bool = False,
        bias: bool = True,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        options: Any = (dim_feedforward, dropout, activation, layer_norm_eps, batch_first, norm_first, bias)

        def norm() -> LayerNorm:
            return LayerNorm(d_model, layer_norm_eps, bias=bias, dtype=dtype)

        if custom_encoder is None:
            first = TransformerEncoderLayer(d_model, nhead, *options, dtype=dtype)
            custom_encoder = TransformerEncoder(first, num_encoder_layers, norm())
        if custom_decoder is None:
            second = TransformerDecoderLayer(d_model, nhead, *options, dtype=dtype)
            custom_decoder = TransformerDecoder(second, num_decoder_layers, norm())
        self.encoder, self.decoder = custom_encoder, custom_decoder
        self.d_model, self.nhead, self.batch_first = d_model, nhead, batch_first
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for p in self.parameters():
            if p.array.ndim > 1:
                init.xavier_uniform_(p)

    def forward(
        self,
        src: Tensor,
        tgt: Tensor,
        src_mask: Tensor | None = None,
        tgt_mask: Tensor | None = None,
        memory_mask: Tensor | None = None,
        src_key_padding_mask: Tensor | None = None,
        tgt_key_padding_mask: Tensor | None = None,
        memory_key_padding_mask: Tensor | None = None,
        src_is_causal: bool | None = None,
        tgt_is_causal: bool | None = None,
        memory_is_causal: bool = False,
    ) -> Tensor:
        """Masks as in `MultiheadAttention`."""
        s, t = src.static_shape, tgt.static_shape
        batch = int(not self.batch_first)
        if len(s) != len(t) or (len(s) == 3 and s[batch] != t[batch]) or {s[-1], t[-1]} != {self.d_model}:
            raise ShapeError(
                "src and tgt do not fit this Transformer",
                expected=f"one batch size, and {self.d_model} features",
                got=f"{list(s)} and {list(t)}",
            )
        memory = self.encoder(src, mask=src_mask, src_key_padding_mask=src_key_padding_mask, is_causal=src_is_causal)
        return self.decoder(
            tgt,
            memory,
            tgt_mask=tgt_mask,
            memory_mask=memory_mask,
            tgt_key_padding_mask=tgt_key_padding_mask,
            memory_key_padding_mask=memory_key_padding_mask,
            tgt_is_causal=tgt_is_causal,
            memory_is_causal=memory_is_causal,
        )

    @staticmethod
    def generate_square_subsequent_mask(sz: int, device: str | None = None, dtype: DType | None = None) -> Tensor:
        """[sz, sz] to add to scores: 0 where position t may see position s <= t, -inf elsewhere."""
        kind = dtype or get_default_dtype()
        if isinstance(sz, Dim):
            made: Tensor = full((sz, sz), -np.inf, dtype=kind).triu(1)
        else:
            made = make_tensor(np.triu(np.full((sz, sz), -np.inf, np.float32), 1).astype(kind))
        return made if device is None else made.to(device)
