"""Quantization-aware training, with the names of `torch.ao.quantization`: QuantizeLinear and DequantizeLinear.

Imports ox.nn, ox.ops, ox.functions, ox.autograd, ox.core, ox.devices and ox.tensors only.
"""

from __future__ import annotations

from ox.ao.quantization.fake_quantize import (
    FakeQuantize,
    disable_fake_quant,
    disable_observer,
    enable_fake_quant,
    enable_observer,
)
from ox.ao.quantization.fuse import fuse_modules
from ox.ao.quantization.learnable import LearnableFakeQuantize
from ox.ao.quantization.observer import MinMaxObserver, MovingAverageMinMaxObserver, PerChannelMinMaxObserver
from ox.ao.quantization.prepare import convert, prepare_qat
from ox.ao.quantization.qconfig import QConfig, get_default_qat_qconfig, get_learnable_qat_qconfig
from ox.ao.quantization.stubs import DeQuantStub, QuantStub, QuantWrapper
from ox.core.lazy import lazy_modules

__all__ = [
    "DeQuantStub",
    "FakeQuantize",
    "LearnableFakeQuantize",
    "MinMaxObserver",
    "MovingAverageMinMaxObserver",
    "PerChannelMinMaxObserver",
    "QConfig",
    "QuantStub",
    "QuantWrapper",
    "convert",
    "disable_fake_quant",
    "disable_observer",
    "enable_fake_quant",
    "enable_observer",
    "fuse_modules",
    "get_default_qat_qconfig",
    "get_learnable_qat_qconfig",
    "prepare_qat",
]

__getattr__, __dir__ = lazy_modules(__name__, ())
