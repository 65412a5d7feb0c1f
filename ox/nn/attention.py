"""MultiheadAttention."""

from __future__ import annotations

from typing import Any

from ox import ops
from ox.dtypes import DType, bool_
from ox.errors import ArgumentError, OxError, ShapeError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.functional.attention import attend, causal_mask
from ox.nn.functional.common import ints, number, shaped
from ox.nn.linear import Linear, empty, explain_types
from ox.nn.module import Module
from ox.nn.parameter import Parameter
from ox.ops.explain import place
from ox.tensor import Tensor


class MultiheadAttention(Module):
    """Attention of several heads. `torch.nn.MultiheadAttention`.

    query [T, N, E], key [S, N, kdim], value [S, N, vdim], or with `batch_first` [N, T, E] and so on; without a batch
    [T, E]. Returns the output in the layout of the query, and the weights [N, T, S] (mean over heads) or None.

    Args:
        dropout: probability of dropping a weight while training.
        kdim, vdim: features of key and value; default `embed_dim`, and then the three projections are one matrix.
    """

    in_proj_weight: Parameter | None
    q_proj_weight: Parameter | None
    k_proj_weight: Parameter | None
    v_proj_weight: Parameter | None
    in_proj_bias: Parameter | None

    def __init__(
        self,
        embed_dim: int,
        num_heads: int,
        dropout: float = 0.0,
        bias: bool = True,
        *,
        kdim: int | None = None,
        vdim: int | None = None,
        batch_first: bool = False,
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
        self.out_proj = Linear(embed_dim, embed_dim, bias=bias, dtype=dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        for weight in (self.in_proj_weight, self.q_proj_weight, self.k_proj_weight, self.v_proj_weight):
            if weight is not None:
                init.xavier_uniform_(weight)
        if self.in_proj_bias is not None and self.out_proj.bias is not None:
            init.zeros_(self.in_proj_bias)
            init.zeros_(self.out_proj.bias)

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
            is_causal: position t sees positions up to t; may stand for an `attn_mask` that says the same.
        """
        if query.data.ndim == 2:
            out, weights = self._single(
                query, key, value, key_padding_mask, need_weights, attn_mask, average_attn_weights, is_causal
            )
            return out, weights
        if query.data.ndim != 3 or key.data.ndim != 3 or value.data.ndim != 3:
            raise ShapeError(
                "MultiheadAttention does not take these dimensions",
                where=place(),
                expected="query [batch, T, E], key and value [batch, S, E]" if self.batch_first else "[T, batch, E]",
                got=", ".join(str(list(x.data.shape)) for x in (query, key, value)),
            )
        q, k, v = self._project(query, key, value)
        if not self.batch_first:
            q, k, v = (ops.Transpose(x, perm=[1, 0, 2]) for x in (q, k, v))
        n, t = q.shape[0], q.shape[1]
        s, h, d = k.shape[1], self.num_heads, self.head_dim
        q = ops.Transpose(shaped(q, [n, t, h, d]), perm=[0, 2, 1, 3])
        k = ops.Transpose(shaped(k, [n, s, h, d]), perm=[0, 2, 1, 3])
        v = ops.Transpose(shaped(v, [n, s, h, d]), perm=[0, 2, 1, 3])
        mask = self._mask(key_padding_mask, attn_mask, n, t, s, is_causal, q)
        causal = is_causal and attn_mask is None and key_padding_mask is None
        heads, weights = attend(q, k, v, mask, self.dropout if self.training else 0.0, causal, None)
        merged = shaped(ops.Transpose(heads, perm=[0, 2, 1, 3]), [n, t, self.embed_dim])
        out = self.out_proj(merged)
        if not self.batch_first:
            out = ops.Transpose(out, perm=[1, 0, 2])
        if not need_weights:
            return out, None
        return out, ops.ReduceMean(weights, ints(1), keepdims=0) if average_attn_weights else weights

    def _single(
        self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, *rest: Any
    ) -> tuple[Tensor, Tensor | None]:
        """The same for one sequence without a batch."""
        axis = ints(0 if self.batch_first else 1)
        q, k, v = (ops.Unsqueeze(x, axis) for x in (query, key, value))
        if key is query:
            k = q
        if value is key:
            v = k
        out, weights = self.forward(q, k, v, None if padding is None else ops.Unsqueeze(padding, ints(0)), *rest)
        return ops.Squeeze(out, axis), None if weights is None else ops.Squeeze(weights, ints(0))

    def _project(self, query: Tensor, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        w, b = self.in_proj_weight, self.in_proj_bias
        if w is not None and query is key and key is value:
            return ops.Split(F.linear(query, w, b), axis=-1, num_outputs=3, outputs=3)  # type: ignore[no-any-return]
        if w is not None:
            weights = ops.Split(w, axis=0, num_outputs=3, outputs=3)
        else:
            weights = (self.q_proj_weight, self.k_proj_weight, self.v_proj_weight)
        biases = (None,) * 3 if b is None else ops.Split(b, axis=0, num_outputs=3, outputs=3)
        q, k, v = (
            F.linear(x, *wb) for x, wb in zip((query, key, value), zip(weights, biases, strict=True), strict=True)
        )
        return q, k, v

    def _mask(
        self, padding: Tensor | None, mask: Tensor | None, n: Any, t: Any, s: Any, is_causal: bool, like: Tensor
    ) -> Tensor | None:
        """Both masks as one: bool with True where attention may go if both are bool, else floats to add."""
        parts: list[Tensor] = []
        if padding is not None:
            parts.append(shaped(padding, [n, 1, 1, s]))
        if mask is not None:
            if mask.data.ndim == 3:
                mask = shaped(mask, [n, self.num_heads, t, s])
            parts.append(mask)
        if all(part.data.dtype == bool_ for part in parts) and not (is_causal and mask is None):
            if not parts:
                return None
            return ops.Not(parts[0] if len(parts) == 1 else ops.Or(*parts))
        if is_causal and mask is None and not parts:
            return None
        added = [
            ops.Where(part, number(-1e30 if like.data.dtype.itemsize > 2 else -30000.0, like), number(0.0, like))
            if part.data.dtype == bool_
            else part
            for part in parts
        ]
        if is_causal and mask is None:
            added.append(causal_mask(t, s, like.data.dtype))
        return added[0] if len(added) == 1 else ops.Add(*added)

    def explain(self, error: OxError, *args: Any) -> None:
        weight = self.in_proj_weight if self.in_proj_weight is not None else self.q_proj_weight
        if weight is not None and explain_types(error, args[0], weight):
            return
        if args[0].data.shape[-1] != self.embed_dim:
            error.expected, error.got = f"query [..., {self.embed_dim}]", f"query {list(args[0].data.shape)}"
            error.hint = f"nn.MultiheadAttention({args[0].data.shape[-1]}, ...), or check what comes before it"

    def extra_repr(self) -> str:
        return f"embed_dim={self.embed_dim}, num_heads={self.num_heads}, batch_first={self.batch_first}"
