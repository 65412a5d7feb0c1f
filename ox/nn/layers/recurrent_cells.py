"""One step of a recurrent network: RNNCell, LSTMCell, GRUCell."""

from __future__ import annotations

from math import sqrt
from typing import Any

from ox import ops
from ox.core.constants import ints, scalar_like, zeros
from ox.dtypes import DType
from ox.errors import ArgumentError, OxError, ShapeError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.base.module import Module
from ox.nn.layers.linear import empty, explain_types
from ox.nn.parameter import Parameter
from ox.tensors.tensor import Tensor

__all__ = ["GRUCell", "LSTMCell", "RNNCell", "RNNCellBase"]


class RNNCellBase(Module):
    """What the cells share: weight_ih [gates·H, I], weight_hh [gates·H, H] and two biases, all from U(±1/sqrt(H))."""

    weight_ih: Parameter
    weight_hh: Parameter
    bias_ih: Parameter | None
    bias_hh: Parameter | None

    def __init__(
        self, input_size: int, hidden_size: int, bias: bool, num_chunks: int, *, dtype: DType | None = None
    ) -> None:
        super().__init__()
        self.input_size, self.hidden_size, self.bias = input_size, hidden_size, bias
        rows = num_chunks * hidden_size
        self.weight_ih, self.weight_hh = empty(rows, input_size, dtype=dtype), empty(rows, hidden_size, dtype=dtype)
        for name in ("bias_ih", "bias_hh"):
            self.register_parameter(name, empty(rows, dtype=dtype) if bias else None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / sqrt(self.hidden_size) if self.hidden_size > 0 else 0
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def _start(self, input: Tensor, states: tuple[Tensor | None, ...]) -> tuple[Tensor, bool, list[Tensor]]:
        """The input as [N, I], whether it came without a batch, and the states as [N, H], zeros where left out."""
        if input.array.ndim not in (1, 2):
            raise ShapeError(
                f"{type(self).__name__} takes one step",
                expected=f"input [N, {self.input_size}] or [{self.input_size}]",
                got=f"input {list(input.static_shape)}",
            )
        single = input.array.ndim == 1
        if single:
            input = ops.Unsqueeze(input, ints(0))
        made = []
        for state in states:
            if state is None:
                made.append(zeros([input.shape[0], self.hidden_size], input))
                continue
            wanted = input.static_shape[:1] * (not single) + (self.hidden_size,)
            if state.static_shape != wanted:
                raise ShapeError(
                    f"{type(self).__name__} does not take this state",
                    expected=f"hidden {list(wanted)}",
                    got=f"hidden {list(state.static_shape)}",
                )
            made.append(ops.Unsqueeze(state, ints(0)) if single else state)
        return input, single, made

    def explain(self, error: OxError, *args: Any) -> None:
        if explain_types(error, args[0], self.weight_ih) or args[0].static_shape[-1] == self.input_size:
            return
        error.expected, error.got = f"input [N, {self.input_size}]", f"input {list(args[0].static_shape)}"

    def extra_repr(self) -> str:
        return f"{self.input_size}, {self.hidden_size}" + ("" if self.bias else ", bias=False")


def _unbatch(x: Tensor, single: bool) -> Tensor:
    return ops.Squeeze(x, ints(0)) if single else x


class RNNCell(RNNCellBase):
    """h' = tanh or relu of W x + b + R h + b'. input [N, I], hidden [N, H] or None for zeros. `torch.nn.RNNCell`."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        bias: bool = True,
        nonlinearity: str = "tanh",
        *,
        dtype: DType | None = None,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNNCell has no nonlinearity {nonlinearity!r}", expected="'tanh' or 'relu'")
        super().__init__(input_size, hidden_size, bias, 1, dtype=dtype)
        self.nonlinearity = nonlinearity

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, single, (h,) = self._start(input, (hx,))
        total = F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh)
        return _unbatch(ops.Tanh(total) if self.nonlinearity == "tanh" else ops.Relu(total), single)

    def extra_repr(self) -> str:
        return super().extra_repr() + ("" if self.nonlinearity == "tanh" else f", nonlinearity={self.nonlinearity}")


class LSTMCell(RNNCellBase):
    """One step of `LSTM`: input [N, I] and (h, c), each [N, H], or None for zeros; returns (h, c).
    `torch.nn.LSTMCell`."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: DType | None = None) -> None:
        super().__init__(input_size, hidden_size, bias, 4, dtype=dtype)

    def forward(self, input: Tensor, hx: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        x, single, (h, c) = self._start(input, (None, None) if hx is None else hx)
        total = F.linear(x, self.weight_ih, self.bias_ih) + F.linear(h, self.weight_hh, self.bias_hh)
        i, f, g, o = ops.Split(total, axis=-1, num_outputs=4, outputs=4)
        c = ops.Sigmoid(f) * c + ops.Sigmoid(i) * ops.Tanh(g)
        return _unbatch(ops.Sigmoid(o) * ops.Tanh(c), single), _unbatch(c, single)


class GRUCell(RNNCellBase):
    """One step of `GRU`: input [N, I], hidden [N, H] or None for zeros. `torch.nn.GRUCell`."""

    def __init__(self, input_size: int, hidden_size: int, bias: bool = True, *, dtype: DType | None = None) -> None:
        super().__init__(input_size, hidden_size, bias, 3, dtype=dtype)

    def forward(self, input: Tensor, hx: Tensor | None = None) -> Tensor:
        x, single, (h,) = self._start(input, (hx,))
        xr, xz, xn = ops.Split(F.linear(x, self.weight_ih, self.bias_ih), axis=-1, num_outputs=3, outputs=3)
        hr, hz, hn = ops.Split(F.linear(h, self.weight_hh, self.bias_hh), axis=-1, num_outputs=3, outputs=3)
        z = ops.Sigmoid(xz + hz)
        n = ops.Tanh(xn + ops.Sigmoid(xr + hr) * hn)
        return _unbatch((scalar_like(1, z) - z) * n + z * h, single)
