"""A weight as a length and a direction (Salimans and Kingma, 2016), computed before each forward."""

from __future__ import annotations

from typing import Any, TypeVar

from ox import functions as F
from ox.core.mode import switch_mode
from ox.core.promotion import upcast_half
from ox.errors import ArgumentError
from ox.nn.base.module import Module
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

M = TypeVar("M", bound=Module)


@upcast_half
def norm_except_dim(v: Tensor, dim: int | None) -> Tensor:
    """The 2-norm over all dimensions but `dim` (None or -1: over all), which stay as ones."""
    if dim is None or dim == -1:
        return F.sqrt((v * v).sum())
    rank = v.array.ndim
    others = tuple(i for i in range(rank) if i != dim % rank)
    return F.sqrt((v * v).sum(others, keepdim=True)) if others else F.abs(v)


class WeightNorm:
    """The hook: sets ``module.weight`` from ``module.weight_g`` and ``module.weight_v``."""

    def __init__(self, name: str, dim: int | None) -> None:
        self.name, self.dim = name, dim

    def compute(self, module: Module) -> Tensor:
        g, v = getattr(module, f"{self.name}_g"), getattr(module, f"{self.name}_v")
        return v * (g / norm_except_dim(v, self.dim))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute(module))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Replace a parameter by its length `<name>_g`, one for each index of `dim`, and its direction `<name>_v`.
    `torch.nn.utils.weight_norm`; `parametrizations.weight_norm` is the newer form.

    Raises:
        ArgumentError: it has weight_norm already; AttributeError: no such parameter.
    """
    if find_hooks(module, WeightNorm, name):
        raise ArgumentError(f"{type(module).__name__}.{name} has weight_norm already")
    weight = module.get_parameter(name)
    hook = WeightNorm(name, dim)
    delattr(module, name)
    with switch_mode(grad=False):
        module.register_parameter(f"{name}_g", Parameter(norm_except_dim(weight, dim)))
        module.register_parameter(f"{name}_v", Parameter(weight.detach().clone()))
    hook(module, ())
    module.register_forward_pre_hook(hook)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Make the weight as it is now a parameter again. Raises ArgumentError where there is no weight_norm."""
    hook = remove_hook(module, WeightNorm, name, "weight_norm")
    with switch_mode(grad=False):
        weight = hook.compute(module)
    for held in (name, f"{name}_g", f"{name}_v"):
        delattr(module, held)
    module.register_parameter(name, Parameter(weight))
    return module


def find_hooks(module: Module, kind: type, name: str) -> list[Any]:
    """The hooks of a kind that stand before the module's forward and compute this parameter."""
    return [hook for hook in module._hooks_of("pre") if isinstance(hook, kind) and hook.name == name]  # type: ignore[attr-defined]


def remove_hook(module: Module, kind: type, name: str, what: str) -> Any:
    """Take that hook away. Raises ArgumentError where there is none."""
    hooks = find_hooks(module, kind, name)
    if not hooks or module._hooks is None:
        raise ArgumentError(f"{type(module).__name__}.{name} has no {what}")
    module._hooks.pre[:] = [entry for entry in module._hooks.pre if entry[0] is not hooks[0]]
    return hooks[0]
