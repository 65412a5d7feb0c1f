"""Embedding, EmbeddingBag."""

from __future__ import annotations

from typing import Any

from ox.dtypes import DType
from ox.errors import ArgumentError, ShapeError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.base.module import Module
from ox.nn.layers.linear import empty
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

__all__ = ["Embedding", "EmbeddingBag"]


class _Table(Module):
    """A table of rows; what Embedding and EmbeddingBag share."""

    weight: Parameter

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None,
        max_norm: float | None,
        norm_type: float,
        scale_grad_by_freq: bool,
        sparse: bool,
        weight: Tensor | None,
        freeze: bool,
        device: str | None,
        dtype: DType | None,
    ) -> None:
        super().__init__()
        if padding_idx is not None and not -num_embeddings <= padding_idx < num_embeddings:
            raise ArgumentError(
                "padding_idx is not in the table", expected=f"0 to {num_embeddings - 1}", got=str(padding_idx)
            )
        self.num_embeddings, self.embedding_dim = num_embeddings, embedding_dim
        self.padding_idx = None if padding_idx is None else padding_idx % num_embeddings
        self.max_norm, self.norm_type = max_norm, norm_type
        self.scale_grad_by_freq, self.sparse = scale_grad_by_freq, sparse
        if weight is None:
            self.weight = empty(num_embeddings, embedding_dim, dtype=dtype)
            self.reset_parameters()
        else:
            if list(weight.static_shape) != [num_embeddings, embedding_dim]:
                raise ShapeError(
                    "the rows given are not those of this table",
                    expected=str([num_embeddings, embedding_dim]),
                    got=str(list(weight.static_shape)),
                )
            self.weight = Parameter(weight.array)
        if freeze:
            self.weight.requires_grad_(False)
        if device is not None:
            self.to(device)

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        init.normal_(self.weight)
        if self.padding_idx is not None:
            self.weight.array[self.padding_idx] = 0

    @classmethod
    def from_pretrained(cls, embeddings: Tensor, freeze: bool = True, **options: Any) -> Any:
        """A table with the rows of `embeddings` [entries, features], by default not trained."""
        if embeddings.array.ndim != 2:
            raise ShapeError("pretrained rows are a matrix", got=str(list(embeddings.static_shape)))
        given: Any = {"_weight": embeddings, "_freeze": freeze, **options}
        entries, features = embeddings.static_shape
        return cls(entries, features, **given)

    def extra_repr(self) -> str:
        text = f"{self.num_embeddings}, {self.embedding_dim}"
        padding = "" if self.padding_idx is None else f", padding_idx={self.padding_idx}"
        mode = getattr(self, "mode", None)
        if mode is None:
            text += padding
        if self.max_norm is not None:
            text += f", max_norm={self.max_norm}"
        if self.norm_type != 2:
            text += f", norm_type={self.norm_type}"
        if self.scale_grad_by_freq:
            text += ", scale_grad_by_freq=True"
        return text if mode is None else f"{text}, mode={mode!r}{padding}"


class Embedding(_Table):
    """Integer indices [...] to rows [..., embedding_dim] of a table. `torch.nn.Embedding`, ONNX Gather.

    weight [num_embeddings, embedding_dim] from N(0, 1); the row `padding_idx` starts as zeros and gets no gradient;
    the other options as for `ox.nn.functional.embedding`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        padding_idx: int | None = None,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        sparse: bool = False,
        _weight: Tensor | None = None,
        _freeze: bool = False,
        device: str | None = None,
        dtype: DType | None = None,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            _freeze, device, dtype,
        )  # fmt: skip

    def forward(self, input: Tensor) -> Tensor:
        return F.embedding(
            input, self.weight, self.padding_idx, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.sparse
        )


class EmbeddingBag(_Table):
    """The sum, mean or greatest of the rows of each bag of indices. `torch.nn.EmbeddingBag`.

    weight [num_embeddings, embedding_dim] from N(0, 1); the options as for `ox.nn.functional.embedding_bag`.
    """

    def __init__(
        self,
        num_embeddings: int,
        embedding_dim: int,
        max_norm: float | None = None,
        norm_type: float = 2.0,
        scale_grad_by_freq: bool = False,
        mode: str = "mean",
        sparse: bool = False,
        _weight: Tensor | None = None,
        include_last_offset: bool = False,
        padding_idx: int | None = None,
        device: str | None = None,
        dtype: DType | None = None,
        _freeze: bool = False,
    ) -> None:
        super().__init__(
            num_embeddings, embedding_dim, padding_idx, max_norm, norm_type, scale_grad_by_freq, sparse, _weight,
            _freeze, device, dtype,
        )  # fmt: skip
        self.mode, self.include_last_offset = mode, include_last_offset

    def forward(self, input: Tensor, offsets: Tensor | None = None, per_sample_weights: Tensor | None = None) -> Tensor:
        return F.embedding_bag(
            input, self.weight, offsets, self.max_norm, self.norm_type, self.scale_grad_by_freq, self.mode,
            self.sparse, per_sample_weights, self.include_last_offset, self.padding_idx,
        )  # fmt: skip
