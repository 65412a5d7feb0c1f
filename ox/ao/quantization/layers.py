"""Layers with quantized weights: while they train, and when they have."""

from __future__ import annotations

from typing import Any

from ox.ao.quantization.fake_quantize import FakeQuantize
from ox.ao.quantization.round_trip import WHOLE
from ox.nn import functional as F
from ox.nn.base.module import Module
from ox.nn.layers.conv import Conv1d, Conv2d, Conv3d
from ox.nn.layers.linear import Linear
from ox.nn.parameter import Buffer
from ox.ops import DequantizeLinear, QuantizeLinear
from ox.tensors.tensor import Tensor

LAYERS = (Linear, Conv1d, Conv2d, Conv3d)


class QATLayer(Module):
    """A Linear or convolution whose weight is rounded in each forward. Parameters have the names of the layer's;
    `torch.ao.nn.qat` has a class for each layer instead.

    Raises:
        TypeError: another layer.
    """

    def __init__(self, layer: Any, quantizer: FakeQuantize) -> None:
        super().__init__()
        if not isinstance(layer, LAYERS):
            raise TypeError(f"{type(layer).__name__} has no quantized form")
        self.weight, self.bias = layer.weight, layer.bias
        self.weight_fake_quant = quantizer
        object.__setattr__(self, "layer", layer)  # how it is computed; its parameters are those above

    def forward(self, x: Tensor) -> Tensor:
        return compute(self.layer, x, self.weight_fake_quant(self.weight), self.bias)

    def extra_repr(self) -> str:
        return f"{type(self.layer).__name__}({self.layer.extra_repr()})"


class QuantizedLayer(Module):
    """A Linear or convolution with the integers of its weight."""

    def __init__(self, trained: QATLayer) -> None:
        super().__init__()
        quantizer = trained.weight_fake_quant
        scale, zero_point = quantizer.calculate_qparams()
        self.axis = quantizer.axis
        along = {} if self.axis == WHOLE else {"axis": self.axis}
        integers = QuantizeLinear(trained.weight.detach(), scale.detach(), zero_point, **along)
        self.weight, self.weight_scale = Buffer(integers.array), Buffer(scale.detach().array)
        self.weight_zero_point = Buffer(zero_point.array)
        self.bias = trained.bias
        object.__setattr__(self, "layer", trained.layer)

    def forward(self, x: Tensor) -> Tensor:
        along = {} if self.axis == WHOLE else {"axis": self.axis}
        weight = DequantizeLinear(self.weight, self.weight_scale, self.weight_zero_point, **along)
        return compute(self.layer, x, weight, self.bias)

    def extra_repr(self) -> str:
        return f"{type(self.layer).__name__}({self.layer.extra_repr()}), {self.weight.dtype}"


class QuantizeDequantize(Module):
    """Rounds an activation by a scale and a zero point that stay."""

    def __init__(self, quantizer: FakeQuantize) -> None:
        super().__init__()
        scale, zero_point = quantizer.calculate_qparams()
        self.scale, self.zero_point = Buffer(scale.detach().array), Buffer(zero_point.array)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = DequantizeLinear(QuantizeLinear(x, self.scale, self.zero_point), self.scale, self.zero_point)
        return y


def compute(layer: Any, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """What a layer computes, with another weight."""
    result: Tensor = F.linear(x, weight, bias) if isinstance(layer, Linear) else layer._conv_forward(x, weight, bias)
    return result
