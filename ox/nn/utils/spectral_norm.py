"""A weight divided by its largest singular value (Miyato et al., 2018), which power iteration finds over time."""

from __future__ import annotations

from typing import Any, TypeVar

from ox import functions as F
from ox import random
from ox.core.mode import switch_mode
from ox.core.promotion import upcast_half
from ox.errors import ArgumentError
from ox.nn.base.module import Module
from ox.nn.parameter import Buffer, Parameter
from ox.nn.utils.weight_norm import find_hooks, remove_hook
from ox.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)


def as_matrix(weight: Tensor, dim: int) -> Tensor:
    """[size of `dim`, everything else]."""
    if dim:
        weight = weight.permute(dim, *(d for d in range(weight.array.ndim) if d != dim))
    return weight.reshape(weight.static_shape[0], -1)


@upcast_half
def unit(x: Tensor, eps: float) -> Tensor:
    return x / F.clamp(F.sqrt((x * x).sum()), min=eps)


def started(weight: Tensor, size: int, eps: float) -> Buffer:
    """A random direction, in the weight's type and on its device."""
    with switch_mode(grad=False):
        kind = weight.array.dtype if random.is_torch_compatible() else None
        drawn = random.normal((size,), kind, kind="initial_normal").to(weight.array.dtype).to(weight.device)
        return Buffer(unit(drawn, eps))


def iterate(matrix: Tensor, u: Tensor, v: Tensor, times: int, eps: float, u_first: bool) -> None:
    """Bring u and v nearer to the first singular vectors, in place."""
    with switch_mode(grad=False):
        for _ in range(times):
            for first in (u_first, not u_first):
                if first:
                    u.assign(unit(F.matmul(matrix, v), eps), "spectral_norm")
                else:
                    v.assign(unit(F.matmul(matrix.t(), u), eps), "spectral_norm")


@upcast_half
def largest(matrix: Tensor, u: Tensor, v: Tensor) -> Tensor:
    """u·W·v, on copies, so that a backward may come after the next iteration."""
    return F.matmul(u.detach().clone(), F.matmul(matrix, v.detach().clone()))


class SpectralNorm:
    """The hook: sets ``module.weight`` from ``module.weight_orig``."""

    def __init__(self, name: str, times: int, dim: int, eps: float) -> None:
        self.name, self.times, self.dim, self.eps = name, times, dim, eps

    def compute(self, module: Module, iterating: bool) -> Tensor:
        weight, u, v = (getattr(module, f"{self.name}_{part}") for part in ("orig", "u", "v"))
        matrix = as_matrix(weight, self.dim)
        if iterating:
            iterate(matrix, u, v, self.times, self.eps, u_first=False)
        return weight / largest(matrix, u, v)

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module, module.training))


def spectral_norm(
    module: M, name: str = "weight", n_power_iterations: int = 1, eps: float = 1e-12, dim: int | None = None
) -> M:
    """Divide a parameter by its largest singular value before each forward; in training mode the estimate of that
    takes `n_power_iterations` steps. `torch.nn.utils.spectral_norm`; `parametrizations.spectral_norm` is newer.

    Args:
        dim: of the outputs; None is 0, and 1 for transposed convolutions.
        eps: the least norm that is divided by.

    Raises:
        ArgumentError: it has spectral_norm already, or n_power_iterations is below 1; AttributeError: no parameter.
    """
    if find_hooks(module, SpectralNorm, name):
        raise ArgumentError(f"{type(module).__name__}.{name} has spectral_norm already")
    if n_power_iterations < 1:
        raise ArgumentError("n_power_iterations is 1 or more", got=str(n_power_iterations))
    weight = module.get_parameter(name)
    hook = SpectralNorm(name, n_power_iterations, output_dim(module) if dim is None else dim, eps)
    matrix = as_matrix(weight.detach(), hook.dim)
    delattr(module, name)
    module.register_parameter(f"{name}_orig", weight)
    setattr(module, name, weight.detach())
    for part, size in zip("uv", matrix.static_shape, strict=True):
        module.register_buffer(f"{name}_{part}", started(weight, size, eps))
    module.register_forward_pre_hook(hook)
    return module


def output_dim(module: Module) -> int:
    """Where the weight of a module has its outputs: second in transposed convolutions, else first."""
    return int(type(module).__name__.removeprefix("Lazy").startswith("ConvTranspose"))


def remove_spectral_norm(module: M, name: str = "weight") -> M:
    """Make the divided weight a parameter again. Raises ArgumentError where there is no spectral_norm."""
    hook = remove_hook(module, SpectralNorm, name, "spectral_norm")
    with switch_mode(grad=False):
        weight = hook.compute(module, iterating=False)
    for held in (name, f"{name}_orig", f"{name}_u", f"{name}_v"):
        delattr(module, held)
    module.register_parameter(name, Parameter(weight))
    return module
