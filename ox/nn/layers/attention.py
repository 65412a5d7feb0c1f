"""MultiheadAttention."""

from __future__ import annotations

from typing import Any

from ox.backends.sdp import SDPBackend as SDPBackend
from ox.backends.sdp import sdpa_kernel as sdpa_kernel
from ox.dtypes import DType
from ox.errors import ArgumentError, OxError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.base.module import Module
from ox.nn.layers.linear import NonDynamicallyQuantizableLinear, empty, explain_types
from ox.nn.parameter import Parameter
from ox.random import is_torch_compatible
from ox.tensors.tensor import Tensor

__all__ = ["MultiheadAttention"]


class MultiheadAttention(Module):
    """Attention of several heads. `torch.nn.MultiheadAttention`.

    query [T, N, E], key [S, N, kdim], value [S, N, vdim], or with `batch_first` [N, T, E] and so on; without a batch
    [T, E]. Returns the output in the layout of the query, and the weights [N, T, S] (mean over heads) or None.

    Args:
        dropout: probability of dropping a weight while training.
        add_bias_kv: learn one more key and value for every sequence.
        add_zero_attn: one more key and value of zeros.
        kdim, vdim: features of key and value; default `embed_dim`, and then the three projections are one matrix.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None
    bias_k: Parameter | None
    bias_v: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        add_bias_kv: bool = False,
        add_zero_attn: bool = False,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if num_heads < 1 or embed_dim % num_heads:
            raise ArgumentError("num_heads must divide embed_dim", got=f"{embed_dim} and {num_heads}")
        self.embed_dim, self.num_heads, self.head_dim = embed_dim, num_heads, embed_dim // num_heads
        self.dropout, self.batch_first = dropout, batch_first
        self.kdim, self.vdim = kdim or embed_dim, vdim or embed_dim
        joint = self.kdim == embed_dim and self.vdim == embed_dim
        self.register_parameter("in_proj_weight", empty(3 * embed_dim, embed_dim, dtype=dtype) if joint else None)
        for name, features in (("q", embed_dim), ("k", self.kdim), ("v", self.vdim)):
            weight = None if joint else empty(embed_dim, features, dtype=dtype)
            self.register_parameter(f"{name}_proj_weight", weight)
        self.register_parameter("in_proj_bias", empty(3 * embed_dim, dtype=dtype) if bias else None)
        self.out_proj = NonDynamicallyQuantizableLinear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        for name in ("bias_k", "bias_v"):
            self.register_parameter(name, empty(1, 1, embed_dim, dtype=dtype) if add_bias_kv else None)
        self.add_zero_attn = add_zero_attn
        self._qkv_same_embed_dim = joint
        self._reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        self._reset_parameters()

    def _reset_parameters(self) -> None:
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None and self.out_proj.bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)
        for extra in (self.bias_k, self.bias_v):
            if extra is not None:
                init.xavier_normal_(extra)

    def forward(
        self,
        query: Tensor,
        key: Tensor,
        value: Tensor,
        key_padding_mask: Tensor | None = None,
        need_weights: bool = True,
        attn_mask: Tensor | None = None,
        average_attn_weights: bool = True,
        is_causal: bool = False,
    ) -> tuple[Tensor, Tensor | None]:
        """Masks are bool with True where attention must not go (the opposite of `scaled_dot_product_attention`), or
        floats that are added. A row that may go nowhere gives zeros, where PyTorch gives NaN.

        Args:
            key_padding_mask: [N, S].
            attn_mask: [T, S] or [N·heads, T, S].
            is_causal: position t sees positions up to t; may replace an equal `attn_mask`.
        """
        out, weights = F.multi_head_attention_forward(
            query,
            key,
            value,
            self.embed_dim,
            self.num_heads,
            self.in_proj_weight,
            self.in_proj_bias,
            self.bias_k,
            self.bias_v,
            self.add_zero_attn,
            self.dropout,
            self.out_proj.weight,
            self.out_proj.bias,
            training=self.training,
            key_padding_mask=key_padding_mask,
            need_weights=need_weights,
            attn_mask=attn_mask,
            use_separate_proj_weight=self.in_proj_weight is None,
            q_proj_weight=self.q_proj_weight,
            k_proj_weight=self.k_proj_weight,
            v_proj_weight=self.v_proj_weight,
            average_attn_weights=average_attn_weights,
            is_causal=is_causal,
            batch_first=self.batch_first,
        )
        if self.batch_first and query.array.ndim == 3 and is_torch_compatible():
            # PyTorch's result is laid out by time; a dropout after it draws its numbers in that order
            out = out.transpose(0, 1).contiguous().transpose(0, 1)
        return out, weights

    def explain(self, error: OxError, *args: Any) -> None:
        weight = self.in_proj_weight if self.in_proj_weight is not None else self.q_proj_weight
        if weight is not None and explain_types(error, args[0], weight):
            return
        if args[0].static_shape[-1] != self.embed_dim:
            error.expected, error.got = f"query [..., {self.embed_dim}]", f"query {list(args[0].static_shape)}"
            error.hint = f"nn.MultiheadAttention({args[0].static_shape[-1]}, ...), or check what comes before it"
