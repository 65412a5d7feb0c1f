"""`fuse_modules`: what one integer kernel computes, as one layer."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from ox.errors import ArgumentError
from ox.nn.base.module import Module
from ox.nn.layers.batch_norm import BatchNorm1d, BatchNorm2d, BatchNorm3d
from ox.nn.layers.conv import Conv1d, Conv2d, Conv3d
from ox.nn.layers.linear import Identity, Linear
from ox.nn.layers.rectifier import ReLU
from ox.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

NORMS = (BatchNorm1d, BatchNorm2d, BatchNorm3d)
CONVS = (Conv1d, Conv2d, Conv3d)


def fuse_modules(
    model: Module, modules_to_fuse: Sequence[str] | Sequence[Sequence[str]], inplace: bool = False
) -> Module:
    """Folds batch norms into the convolution or Linear before them, and leaves the values between a layer and its ReLU
    without a rounding of their own. `torch.ao.quantization.fuse_modules`; the norms' statistics stay what they are.

    Args:
        modules_to_fuse: names of modules in a row: conv, norm; conv, norm, relu; conv, relu; linear, relu ...

    Returns:
        A copy, or with `inplace` the model, in which the norms are Identity.

    Raises:
        ArgumentError: a row that cannot be fused, or a model in train mode.
    """
    model = model if inplace else deepcopy(model)
    one = bool(modules_to_fuse) and isinstance(modules_to_fuse[0], str)
    rows: Sequence[Any] = [modules_to_fuse] if one else modules_to_fuse
    for names in rows:
        _fuse(model, list(names))
    return model


def _fuse(model: Module, names: list[str]) -> None:
    modules = [model.get_submodule(name) for name in names]
    kinds = [_kind(module) for module in modules]
    if kinds not in (["layer", "norm"], ["layer", "norm", "relu"], ["layer", "relu"]):
        raise ArgumentError(
            "these modules cannot be fused",
            expected="a convolution or Linear, then a batch norm, a ReLU or both",
            got=", ".join(f"{name} {type(m).__name__}" for name, m in zip(names, modules, strict=True)),
        )
    layer = modules[0]
    if "norm" in kinds:
        fold = fuse_linear_bn_eval if isinstance(layer, Linear) else fuse_conv_bn_eval
        layer = fold(layer, modules[1])
        _set(model, names[1], Identity())
    if kinds[-1] == "relu":
        layer.quantized_after = names[-1]  # where the values of this layer are rounded
    _set(model, names[0], layer)


def _kind(module: Module) -> str:
    kinds: dict[str, tuple[type, ...]] = {"layer": (*CONVS, Linear), "norm": NORMS, "relu": (ReLU,)}
    return next((kind for kind, classes in kinds.items() if isinstance(module, classes)), type(module).__name__)


def _set(model: Module, name: str, module: Module) -> None:
    parent, _, last = name.rpartition(".")
    model.get_submodule(parent)._modules[last] = module
