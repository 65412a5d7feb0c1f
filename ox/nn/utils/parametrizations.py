"""Ready parametrizations of `torch.nn.utils.parametrizations`: length and direction, spectral norm, orthogonality."""

from __future__ import annotations

from typing import Any

from ox.errors import ArgumentError, BoundsError
from ox.nn.base.module import Module
from ox.nn.parameter import Buffer
from ox.nn.utils.orthogonal import MAPS, InvertibleOrthogonal, Orthogonal
from ox.nn.utils.parametrize import register_parametrization
from ox.nn.utils.spectral_norm import as_matrix, iterate, largest, output_dim, started, unit
from ox.nn.utils.weight_norm import norm_except_dim
from ox.tensors.tensor import Tensor


class _WeightNorm(Module):
    def __init__(self, dim: int | None) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, g: Tensor, v: Tensor) -> Tensor:
        return v * (g / norm_except_dim(v, self.dim))

    def right_inverse(self, weight: Tensor) -> tuple[Tensor, Tensor]:
        return norm_except_dim(weight, self.dim), weight


def weight_norm(module: Module, name: str = "weight", dim: int | None = 0) -> Module:
    """A weight as its length (`original0`), one for each index of `dim`, and its direction (`original1`).
    `torch.nn.utils.parametrizations.weight_norm`."""
    return register_parametrization(module, name, _WeightNorm(dim), unsafe=True)


class _SpectralNorm(Module):
    _u: Buffer
    _v: Buffer

    def __init__(self, weight: Tensor, n_power_iterations: int, dim: int, eps: float) -> None:
        super().__init__()
        rank = weight.array.ndim
        if not -rank <= dim < rank:
            raise BoundsError(f"dim {dim} is not a dimension of the weight", expected=f"{-rank} to {rank - 1}")
        if n_power_iterations < 1:
            raise ArgumentError("n_power_iterations is 1 or more", got=str(n_power_iterations))
        self.n_power_iterations, self.dim, self.eps = n_power_iterations, dim % rank, eps
        if rank > 1:
            matrix = as_matrix(weight.detach(), self.dim)
            self._u, self._v = (started(weight, size, eps) for size in matrix.static_shape)
            iterate(matrix, self._u, self._v, 15, eps, u_first=True)

    def forward(self, weight: Tensor) -> Tensor:
        if weight.array.ndim == 1:
            return unit(weight, self.eps)
        matrix = as_matrix(weight, self.dim)
        if self.training:
            iterate(matrix, self._u, self._v, self.n_power_iterations, self.eps, u_first=True)
        return weight / largest(matrix, self._u, self._v)

    def right_inverse(self, value: Tensor) -> Tensor:
        return value


def spectral_norm(
    module: Module, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> Module:
    """A weight divided by its largest singular value. `torch.nn.utils.parametrizations.spectral_norm`; arguments as in
    `ox.nn.utils.spectral_norm`."""
    weight = _existing(module, name)
    dim = output_dim(module) if dim is None else dim
    return register_parametrization(module, name, _SpectralNorm(weight, n_power_iterations, dim, eps))


def orthogonal(
    module: Module, name: str = "weight", orthogonal_map: str | None = None, *, use_trivialization: bool = True
) -> Module:
    """A weight whose rows or columns, whichever are fewer, are orthonormal.

    `torch.nn.utils.parametrizations.orthogonal`.

    Args:
        orthogonal_map: "matrix_exp" (the default for square weights), "cayley", or "householder" (for others).
        use_trivialization: start from the weight as it is (made orthogonal), by a fixed factor `base`.
    """
    weight = _existing(module, name)
    if weight.array.ndim < 2:
        raise ArgumentError("orthogonal needs a matrix", got=f"shape {list(weight.static_shape)}")
    square = weight.static_shape[-1] == weight.static_shape[-2]
    kind = orthogonal_map or ("matrix_exp" if square else "householder")
    if kind not in MAPS:
        raise ArgumentError(f"there is no orthogonal_map {kind!r}", expected=", ".join(MAPS))
    invertible = use_trivialization or kind == "householder"
    made = (InvertibleOrthogonal if invertible else Orthogonal)(weight.static_shape, kind, use_trivialization)
    return register_parametrization(module, name, made, unsafe=True)


def _existing(module: Module, name: str) -> Any:
    weight = getattr(module, name, None)
    if not isinstance(weight, Tensor):
        raise ArgumentError(f"{type(module).__name__} has no tensor '{name}'")
    return weight
