"""`QConfig`: how activations and weights of a module are quantized."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ox.ao.quantization.fake_quantize import FakeQuantize
from ox.ao.quantization.learnable import LearnableFakeQuantize
from ox.ao.quantization.observer import MovingAverageMinMaxObserver, PerChannelMinMaxObserver
from ox.dtypes import DType, int8, uint8


@dataclass(frozen=True)
class QConfig:
    """Makers of `FakeQuantize` modules, by `FakeQuantize.with_args`. `torch.ao.quantization.QConfig`.

    `weight` is called with ``channels=``, the number of the weight's.
    """

    activation: Callable[..., FakeQuantize]
    weight: Callable[..., FakeQuantize]


def get_default_qat_qconfig(weight: DType = int8, activation: DType = uint8) -> QConfig:
    """Activations by moving averages of their ranges, weights by channel, symmetric: what ONNX Runtime's CPU kernels
    take. `torch.ao.quantization.get_default_qat_qconfig`, whose argument names a backend of PyTorch instead."""
    return QConfig(
        FakeQuantize.with_args(observer=MovingAverageMinMaxObserver, dtype=activation),
        FakeQuantize.with_args(observer=PerChannelMinMaxObserver, dtype=weight),
    )


def get_learnable_qat_qconfig(weight: DType = int8, activation: DType = uint8) -> QConfig:
    """The same types with scales that learn."""
    return QConfig(
        LearnableFakeQuantize.with_args(observer=MovingAverageMinMaxObserver, dtype=activation),
        LearnableFakeQuantize.with_args(observer=PerChannelMinMaxObserver, dtype=weight),
    )
