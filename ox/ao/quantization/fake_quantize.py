"""`FakeQuantize`: float values with the roundings of integers, while a model trains."""

from __future__ import annotations

from functools import partial
from typing import Any, Self

import numpy as np

from ox.ao.quantization.observer import MovingAverageMinMaxObserver
from ox.ao.quantization.round_trip import WHOLE, round_trip
from ox.nn.base.module import Module
from ox.nn.parameter import Buffer
from ox.tensors.tensor import Tensor


class FakeQuantize(Module):
    """Observes a range, rounds to its steps, and back. `torch.ao.quantization.FakeQuantize`.

    Gradients pass straight through inside the range, and are 0 outside. In eval mode nothing is observed any more
    (in PyTorch it is, until `disable_observer`), so that an evaluation or an export changes nothing.

    Args:
        observer: the class of the observer; `observer_kwargs` are its arguments.
        channels: how many scales there are, for an observer by channel. Without it, its state can only be loaded into a
            module that has run.

    Attributes:
        scale, zero_point: of the last forward in train mode.
    """

    def __init__(
        self, observer: type[Any] = MovingAverageMinMaxObserver, channels: int | None = None, **observer_kwargs: Any
    ) -> None:
        super().__init__()
        self.activation_post_process = observer(**observer_kwargs)
        self.dtype, self.axis = self.activation_post_process.dtype, self.activation_post_process.axis
        self.fake_quant_enabled = self.observer_enabled = True
        shape = () if channels is None or self.axis == WHOLE else (channels,)
        self.activation_post_process.reset(shape)
        self.scale, self.zero_point = Buffer(np.ones(shape, np.float32)), Buffer(np.zeros(shape, self.dtype))

    @classmethod
    def with_args(cls, **kwargs: Any) -> partial[Self]:
        """A maker of such modules with these arguments, for a `QConfig`."""
        return partial(cls, **kwargs)

    def forward(self, x: Tensor) -> Tensor:
        if self.training and self.observer_enabled:
            self.activation_post_process(x)
            scale, zero_point = self.activation_post_process.calculate_qparams()
            self.scale, self.zero_point = (Buffer(t.to(x.device).array) for t in (scale, zero_point))
        return round_trip(x, self.scale, self.zero_point, self.axis) if self.fake_quant_enabled else x

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """The scale and the zero point. Raises ArgumentError before the first forward in train mode."""
        self.activation_post_process.calculate_qparams()
        return self.scale, self.zero_point

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, fake_quant_enabled={self.fake_quant_enabled}"


def enable_fake_quant(module: Module) -> None:
    """Round again; for ``model.apply(enable_fake_quant)``."""
    _switch(module, fake_quant=True)


def disable_fake_quant(module: Module) -> None:
    """Let values pass as they are."""
    _switch(module, fake_quant=False)


def enable_observer(module: Module) -> None:
    """Follow the range of the values again."""
    _switch(module, observer=True)


def disable_observer(module: Module) -> None:
    """Keep scale and zero point: for the last epochs."""
    _switch(module, observer=False)


def _switch(module: Module, fake_quant: bool | None = None, observer: bool | None = None) -> None:
    if isinstance(module, FakeQuantize):
        if fake_quant is not None:
            module.fake_quant_enabled = fake_quant
        if observer is not None:
            module.observer_enabled = observer
