"""`LearnableFakeQuantize`: the scale is a parameter."""

from __future__ import annotations

from typing import Any

import numpy as np

from ox.ao.quantization.fake_quantize import FakeQuantize
from ox.ao.quantization.observer import EPS, MovingAverageMinMaxObserver
from ox.ao.quantization.round_trip import WHOLE, learning_share, round_trip
from ox.autograd import no_grad
from ox.errors import ArgumentError
from ox.nn.parameter import Buffer, Parameter
from ox.tensors.tensor import Tensor


class LearnableFakeQuantize(FakeQuantize):
    """As `FakeQuantize`, with a scale that learns: Esser et al., "Learned Step Size Quantization" (2020); PyTorch's
    `torch.ao.quantization._learnable_fake_quantize`. The first forward in train mode observes where it begins.

    Args:
        channels: how many scales there are, for an observer by channel.
    """

    def __init__(
        self, observer: type[Any] = MovingAverageMinMaxObserver, channels: int | None = None, **observer_kwargs: Any
    ) -> None:
        super().__init__(observer, channels, **observer_kwargs)
        if self.axis != WHOLE and channels is None:
            raise ArgumentError("scales by channel need the number of channels", hint="channels=weight.shape[0]")
        start = self.scale.numpy()
        del self.scale
        self.register_parameter("scale", Parameter(start))
        self.started = Buffer(np.array(False))

    def forward(self, x: Tensor) -> Tensor:
        if self.training and not bool(self.started.numpy()):
            self.activation_post_process(x)
            scale, zero_point = self.activation_post_process.calculate_qparams()
            with no_grad():
                self.scale.copy_(scale)
            self.zero_point, self.started = Buffer(zero_point.array), Buffer(np.array(True))
        if self.training:
            with no_grad():
                self.scale.clamp_(min=EPS)  # a scale of 0 or less has no steps
        share = learning_share(x.numel() // max(1, self.scale.numel()), self.dtype) if self.training else 0.0
        return round_trip(x, self.scale, self.zero_point, self.axis, share) if self.fake_quant_enabled else x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point. Raises ArgumentError before the first forward in train mode."""
        if not bool(self.started.numpy()):
            raise ArgumentError("the scale has not begun", hint="a forward of the prepared model in train mode")
        return self.scale, self.zero_point
