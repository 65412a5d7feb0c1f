"""The layers of `einops.layers.torch`, as modules of ox: same arguments, same names in `state_dict`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

try:
    from einops.layers import RearrangeMixin, ReduceMixin
    from einops.layers._einmix import _EinmixMixin
except ModuleNotFoundError as error:
    raise ModuleNotFoundError("ox.einops needs einops: pip install einops", name=error.name) from None

from ox.functions import einsum
from ox.functions.creation import empty
from ox.nn.base.module import Module
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor


class Rearrange(RearrangeMixin, Module):  # type: ignore[misc]
    """`einops.rearrange` as a layer, for Sequential. `einops.layers.torch.Rearrange`."""

    def forward(self, input: Tensor) -> Any:
        return self._apply_recipe(input)


class Reduce(ReduceMixin, Module):  # type: ignore[misc]
    """`einops.reduce` as a layer: 'min', 'max', 'sum', 'mean', 'prod', 'any', 'all' or a function of a tensor and
    dimensions. `einops.layers.torch.Reduce`."""

    def forward(self, input: Tensor) -> Any:
        return self._apply_recipe(input)


class EinMix(_EinmixMixin, Module):  # type: ignore[misc]
    """A linear map over named dimensions, with its weight and, where `bias_shape` is given, a bias.
    `einops.layers.torch.EinMix`."""

    def _create_parameters(
        self, weight_shape: Sequence[int], weight_bound: float, bias_shape: Sequence[int] | None, bias_bound: float
    ) -> None:
        self.weight = Parameter(empty(*weight_shape).uniform_(-weight_bound, weight_bound))
        self.bias = None if bias_shape is None else Parameter(empty(*bias_shape).uniform_(-bias_bound, bias_bound))

    def _create_rearrange_layers(
        self,
        pre_reshape_pattern: str | None,
        pre_reshape_lengths: dict[str, int] | None,
        post_reshape_pattern: str | None,
        post_reshape_lengths: dict[str, int] | None,
    ) -> None:
        self.pre_rearrange = _rearrange(pre_reshape_pattern, pre_reshape_lengths)
        self.post_rearrange = _rearrange(post_reshape_pattern, post_reshape_lengths)

    def forward(self, input: Tensor) -> Any:
        if self.pre_rearrange is not None:
            input = self.pre_rearrange(input)
        result = einsum(self.einsum_pattern, input, self.weight)
        if self.bias is not None:
            result = result + self.bias
        return result if self.post_rearrange is None else self.post_rearrange(result)


def _rearrange(pattern: str | None, lengths: dict[str, int] | None) -> Rearrange | None:
    return None if pattern is None else Rearrange(pattern, **(lengths or {}))  # type: ignore[call-arg]


__all__ = ["EinMix", "Rearrange", "Reduce"]
