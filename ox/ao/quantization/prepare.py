"""`prepare_qat` and `convert`."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

from ox.ao.quantization.fake_quantize import FakeQuantize
from ox.ao.quantization.layers import LAYERS, QATLayer, QuantizeDequantize, QuantizedLayer
from ox.ao.quantization.qconfig import QConfig
from ox.ao.quantization.stubs import QuantStub
from ox.errors import ArgumentError
from ox.nn.base.module import Module
from ox.nn.layers.activation import Hardswish
from ox.nn.layers.rectifier import ReLU, ReLU6

ROUNDED = (*LAYERS, QuantStub, ReLU, ReLU6, Hardswish)  # modules whose outputs are quantized
POST = "activation_post_process"


def prepare_qat(model: Module, inplace: bool = False) -> Module:
    """Puts `FakeQuantize` modules on the weights of Linear and convolutions, and behind them, ReLU and `QuantStub`.
    `torch.ao.quantization.prepare_qat`. Make the optimizer afterwards: parameters may be new.

    A module is quantized by its own ``qconfig`` or that of the module around it; ``qconfig = None`` leaves it in float.

    Raises:
        ArgumentError: no module has a qconfig, or the model is in eval mode or prepared already.
    """
    if not model.training:
        raise ArgumentError("prepare_qat takes a model in train mode", hint="model.train()")
    if any(isinstance(module, FakeQuantize) for module in model.modules()):
        raise ArgumentError("the model is prepared already")
    model = model if inplace else deepcopy(model)
    found = list(_quantized(model, "", getattr(model, "qconfig", None)))
    if not found:
        raise ArgumentError(
            "no module is to be quantized",
            expected="Linear, convolutions, ReLU or QuantStub with a qconfig",
            hint="model.qconfig = ox.ao.quantization.get_default_qat_qconfig()",
        )
    for name, module, qconfig in found:
        prepared = module
        if isinstance(module, LAYERS):
            prepared = QATLayer(module, qconfig.weight(channels=module.weight.shape[0]))
            prepared.train(module.training)
            if not name:
                raise ArgumentError("a layer alone cannot be prepared", hint="ox.ao.quantization.QuantWrapper(layer)")
            _replace(model, name, prepared)
        if getattr(module, "quantized_after", None) is None:
            prepared.add_module(POST, qconfig.activation())
            prepared.register_forward_hook(_round_output)
    return model


def convert(model: Module, inplace: bool = False) -> Module:
    """The model with integers for weights and scales that stay: what `ox.export.save` writes as QDQ.
    `torch.ao.quantization.convert`.

    Raises:
        ArgumentError: the model is not prepared, is in train mode, or has not run in train mode.
    """
    if model.training:
        raise ArgumentError("convert takes a model in eval mode", hint="model.eval()")
    if not any(isinstance(module, FakeQuantize) for module in model.modules()):
        raise ArgumentError("the model is not prepared", hint="ox.ao.quantization.prepare_qat(model), then training")
    model = model if inplace else deepcopy(model)
    for name, module in list(model.named_modules()):
        after = module._modules.get(POST)
        if isinstance(module, FakeQuantize) or not (isinstance(module, QATLayer) or isinstance(after, FakeQuantize)):
            continue
        done = module
        try:
            if isinstance(module, QATLayer):
                done = QuantizedLayer(module).eval()
                _replace(model, name, done)
            if isinstance(after, FakeQuantize):
                done._modules[POST] = QuantizeDequantize(after).eval()
        except ArgumentError as error:
            error.where = name
            raise
        if done is not module and after is not None:
            done.register_forward_hook(_round_output)
    return model


def _round_output(module: Any, args: Any, output: Any) -> Any:
    return getattr(module, POST)(output)


def _quantized(module: Module, name: str, qconfig: QConfig | None) -> Iterator[tuple[str, Any, QConfig]]:
    """The modules to be quantized, each with its qconfig."""
    qconfig = module.__dict__.get("qconfig", qconfig)
    if isinstance(module, ROUNDED):
        if qconfig is not None:
            yield name, module, qconfig
        return
    for child_name, child in module._modules.items():
        if child is not None:
            yield from _quantized(child, f"{name}.{child_name}" if name else child_name, qconfig)


def _replace(model: Module, name: str, module: Module) -> None:
    parent, _, last = name.rpartition(".")
    model.get_submodule(parent)._modules[last] = module
