"""Where a model enters and leaves integers."""

from __future__ import annotations

from typing import Any

from ox.nn.base.module import Module
from ox.tensors.tensor import Tensor


class QuantStub(Module):
    """Passes its input; `prepare_qat` quantizes it here. `torch.ao.quantization.QuantStub`."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class DeQuantStub(Module):
    """Passes its input: the end of the quantized part. `torch.ao.quantization.DeQuantStub`. After each
    DequantizeLinear there are floats anyway, so nothing is done here."""

    def forward(self, x: Tensor) -> Tensor:
        return x


class QuantWrapper(Module):
    """A module whose input is quantized. `torch.ao.quantization.QuantWrapper`."""

    def __init__(self, module: Module) -> None:
        super().__init__()
        self.quant, self.module, self.dequant = QuantStub(), module, DeQuantStub()

    def forward(self, x: Tensor) -> Any:
        return self.dequant(self.module(self.quant(x)))
