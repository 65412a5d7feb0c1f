"""RNN, LSTM, GRU."""

from __future__ import annotations

from math import sqrt
from typing import Any

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import ints, on_device_of, zeros
from ox.dtypes import DType
from ox.errors import ArgumentError, OxError, ShapeError
from ox.nn import functional as F
from ox.nn import init
from ox.nn.base.module import Module
from ox.nn.layers.linear import empty, explain_types
from ox.nn.layers.projected_lstm import projected_lstm
from ox.nn.parameter import Parameter
from ox.nn.utils import recorded_packing
from ox.nn.utils.rnn import PackedSequence, lengths_of, packed_places, padded_places
from ox.tensors.tensor import Tensor

__all__ = ["GRU", "LSTM", "RNN", "RNNBase"]

# what a subclass replaces to look at inputs and states
_CHECKS = (
    "check_forward_args", "check_hidden_size", "get_expected_hidden_size", "get_expected_cell_size", "permute_hidden",
)  # fmt: skip
GATES = {"RNN_TANH": 1, "RNN_RELU": 1, "LSTM": 4, "GRU": 3}


def _taken(x: Tensor, places: Any, axis: int) -> Tensor:
    """Parts of x, by numbers of the host or a tensor."""
    return ops.Gather(x, operator.as_input(places).to(x.device), axis=axis)


class RNNBase(Module):
    """What the recurrent layers share. `torch.nn.RNNBase`.

    Input [T, N, input_size], with `batch_first` [N, T, input_size], or without a batch [T, input_size], or a
    PackedSequence. Returns the states of the last layer at every step [T, N, directions·H] in the layout of the input,
    and the last states of all layers [layers·directions, N, H] (for LSTM also the last cells).

    A layer runs, and is exported, as one ONNX operator. Parameters have PyTorch's names and order of gates
    (weight_ih_l0, weight_hh_l0, bias_ih_l0, bias_hh_l0, ..._reverse), all from U(±1/sqrt(hidden_size)).

    Args:
        mode: "RNN_TANH", "RNN_RELU", "LSTM" or "GRU".
        dropout: probability of dropping an output of each layer but the last while training.
        proj_size: for LSTM, the size to which each state is projected.
    """

    def __init__(
        self,
        mode: str,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        bias: bool = True,
        batch_first: bool = False,
        dropout: float = 0.0,
        bidirectional: bool = False,
        proj_size: int = 0,
        *,
        dtype: DType | None = None,
    ) -> None:
        super().__init__()
        if mode not in GATES:
            raise ArgumentError(f"there is no recurrent mode {mode!r}", expected=", ".join(GATES))
        for name, size in (("input_size", input_size), ("hidden_size", hidden_size), ("num_layers", num_layers)):
            if not isinstance(size, int) or size < (0 if name == "input_size" else 1):
                raise ArgumentError(f"{name} is a whole number above 0", got=repr(size))
        if isinstance(dropout, bool) or not 0 <= dropout <= 1:
            raise ArgumentError("dropout is a probability", expected="0 to 1", got=repr(dropout))
        if proj_size < 0 or proj_size >= hidden_size or (proj_size and mode != "LSTM"):
            raise ArgumentError(
                "proj_size must be less than hidden_size, and needs an LSTM", got=f"{proj_size} for {hidden_size}"
            )
        self.mode, self.input_size, self.hidden_size, self.num_layers = mode, input_size, hidden_size, num_layers
        self.bias, self.batch_first, self.dropout = bias, batch_first, float(dropout)
        self.bidirectional, self.proj_size = bidirectional, proj_size
        self._suffixes = [f"_l{k}{d}" for k in range(num_layers) for d in ("", "_reverse")[: 1 + bidirectional]]
        self._kinds = ["weight_ih", "weight_hh", *["bias_ih", "bias_hh"][: 2 * bias], *["weight_hr"][: proj_size > 0]]
        rows, state = GATES[mode] * hidden_size, proj_size or hidden_size
        for i, suffix in enumerate(self._suffixes):
            columns = input_size if i < 1 + bidirectional else state * (1 + bidirectional)
            shapes = {
                "weight_ih": (rows, columns), "weight_hh": (rows, state), "bias_ih": (rows,), "bias_hh": (rows,),
                "weight_hr": (proj_size, hidden_size),
            }  # fmt: skip
            for kind in self._kinds:
                setattr(self, kind + suffix, empty(*shapes[kind], dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw new initial values."""
        bound = 1 / sqrt(self.hidden_size)
        for weight in self.parameters():
            init.uniform_(weight, -bound, bound)

    def flatten_parameters(self) -> None:
        """Nothing to do: there is no other layout that would be faster."""

    @property
    def all_weights(self) -> list[list[Parameter]]:
        """The parameters of each layer and direction."""
        return [[getattr(self, name) for name in names] for names in self._all_weights]

    @property
    def _all_weights(self) -> list[list[str]]:
        return [[kind + suffix for kind in self._kinds] for suffix in self._suffixes]

    @property
    def _flat_weights_names(self) -> list[str]:
        return [name for names in self._all_weights for name in names]

    @property
    def _flat_weights(self) -> list[Parameter]:
        return [getattr(self, name) for name in self._flat_weights_names]

    # -- running -----------------------------------------------------------------------------------------------

    def forward(self, input: Any, hx: Any = None) -> Any:
        """`hx` are the first states [layers·directions, N, H] (for LSTM a pair with the first cells), else zeros."""
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        rank = input.array.ndim
        if rank not in (2, 3):
            raise self._wrong(input, f"[T, N, {self.input_size}], or [T, {self.input_size}] without a batch")
        batched = input if rank == 3 else ops.Unsqueeze(input, ints(0 if self.batch_first else 1))
        if rank == 2 and hx is not None:
            self._check_kind(hx)
            hx = tuple(self._batched(s) for s in hx) if self.mode == "LSTM" else self._batched(hx)
        states = self._started(batched, hx, None, None)
        x = ops.Transpose(batched, perm=[1, 0, 2]) if self.batch_first else batched
        if not x.static_shape[0]:
            raise self._wrong(input, "at least one step")
        y, last = self._run(x, states, None)
        if rank == 2:
            y, last = ops.Squeeze(y, ints(1)), tuple(ops.Squeeze(s, ints(1)) for s in last)
        elif self.batch_first:
            y = ops.Transpose(y, perm=[1, 0, 2])
        return y, self.permute_hidden(last if self.mode == "LSTM" else last[0], None)

    def _started(self, input: Tensor, hx: Any, batch_sizes: Tensor | None, order: Tensor | None) -> Any:
        """The first states, checked, in the order of the sequences of a PackedSequence; None for zeros."""
        if hx is None:
            self._check_zeros(input, batch_sizes)
            return None
        self._check_kind(hx)
        hx = self.permute_hidden(hx, order)
        self.check_forward_args(input, hx, batch_sizes)
        return hx if self.mode == "LSTM" else (hx,)

    def _check_zeros(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """`check_forward_args` where the states are zeros: as they are only made for a subclass that looks at them, for
        an operator starts with zeros by itself."""
        if all(getattr(type(self), name) is getattr(RNNBase, name) for name in _CHECKS):
            self.check_input(input, batch_sizes)
            return
        h = zeros(self.get_expected_hidden_size(input, batch_sizes), input)
        if self.mode == "LSTM":
            cells = zeros(self.get_expected_cell_size(input, batch_sizes), input)
            self.check_forward_args(input, self.permute_hidden((h, cells), None), batch_sizes)
        else:
            self.check_forward_args(input, self.permute_hidden(h, None), batch_sizes)

    def permute_hidden(self, hx: Any, permutation: Tensor | None) -> Any:
        """States (for LSTM the pair) with the sequences in another order; as they are for None."""
        if permutation is None:
            return hx
        if self.mode == "LSTM":
            return tuple(_taken(s, permutation, axis=1) for s in hx)
        return _taken(hx, permutation, axis=1)

    def _batched(self, state: Tensor) -> Tensor:
        if state.array.ndim != 2:
            raise ShapeError(
                f"{type(self).__name__} without a batch takes states without one",
                expected="[layers·directions, H]",
                got=str(list(state.static_shape)),
            )
        return ops.Unsqueeze(state, ints(1))

    def _packed(self, input: PackedSequence, hx: Any) -> Any:
        """Through the padded form and the lengths."""
        states = self._started(input.data, hx, input.batch_sizes, input.sorted_indices)
        if recorded_packing.is_recorded(input.batch_sizes):
            alive = recorded_packing.alive_of(input.batch_sizes)
            x = recorded_packing.padded_data(input.data, alive)
            y, last = self._run(x, states, recorded_packing.lengths_of(alive))
            data = recorded_packing.packed_data(y, alive)
        else:
            lengths = lengths_of(input)
            x = _taken(input.data, padded_places(lengths), axis=0)
            y, last = self._run(x, states, on_device_of(operator.as_input(lengths.astype(np.int32)), x))
            flat = ops.Reshape(y, ints(-1, y.static_shape[-1]))
            data = _taken(flat, packed_places(lengths), axis=0)
        ends = self.permute_hidden(last if self.mode == "LSTM" else last[0], input.unsorted_indices)
        return input._replace(data=data), ends

    def _run(self, x: Tensor, states: Any, lens: Any) -> tuple[Tensor, tuple[Tensor, ...]]:
        """[T, N, I] through all layers."""
        count, ends = 1 + self.bidirectional, []
        for layer in range(self.num_layers):
            if layer and self.dropout and self.training:
                x = F.dropout(x, self.dropout, True)
            own = self._states(states, layer * count, count)
            weights = self.all_weights[layer * count : (layer + 1) * count]
            if self.proj_size:
                y, *end = projected_lstm(x, weights, lens, own, bias=self.bias)
            else:
                y, *end = self._layer(x, weights, lens, own)
            if count == 1:
                x = ops.Squeeze(y, ints(1))
            else:
                width = count * (self.proj_size or self.hidden_size)
                x = ops.Reshape(ops.Transpose(y, perm=[0, 2, 1, 3]), ints(0, 0, width))
            ends.append(end)
        joined = tuple(parts[0] if len(parts) == 1 else ops.Concat(*parts, axis=0) for parts in zip(*ends, strict=True))
        return x, joined

    def _states(self, states: Any, start: int, count: int) -> list[Tensor | None]:
        """Those of one layer, [directions, N, H]."""
        if states is None:
            return [None] * (2 if self.mode == "LSTM" else 1)
        if self.num_layers == 1:
            return list(states)
        return [ops.Slice(s, ints(start), ints(start + count), ints(0)) for s in states]

    def _layer(self, x: Tensor, weights: list[list[Parameter]], lens: Any, states: list[Tensor | None]) -> Any:
        """One ONNX operator: Y [T, directions, N, H] and the last states."""
        kinds = [self._stacked([w[i] for w in weights]) for i in range(2)]
        bias = None
        if self.bias:
            bias = ops.Concat(*(self._stacked([w[i] for w in weights]) for i in (2, 3)), axis=1)
        options: dict[str, Any] = {
            "hidden_size": self.hidden_size,
            "direction": "bidirectional" if self.bidirectional else "forward",
        }
        inputs = (x, *kinds, bias, lens, *states)
        if self.mode == "LSTM":
            return ops.LSTM(*inputs, outputs=3, **options)
        if self.mode == "GRU":
            return ops.GRU(*inputs, outputs=2, linear_before_reset=1, **options)
        function = "Tanh" if self.mode == "RNN_TANH" else "Relu"
        return ops.RNN(*inputs, outputs=2, activations=[function] * len(weights), **options)

    def _stacked(self, weights: list[Parameter]) -> Tensor:
        """The directions' weights along a new first axis, gates in the order of ONNX."""
        stacked = [ops.Unsqueeze(self._to_onnx_gate_order(w), ints(0)) for w in weights]
        return stacked[0] if len(stacked) == 1 else ops.Concat(*stacked, axis=0)

    def _to_onnx_gate_order(self, weight: Tensor) -> Tensor:
        h = self.hidden_size
        if self.mode == "LSTM":  # i f g o to i o f g
            i, fg, o = ops.Split(weight, ints(h, 2 * h, h), axis=0, outputs=3)
            return ops.Concat(i, o, fg, axis=0)
        if self.mode == "GRU":  # r z n to z r n
            r, z, n = ops.Split(weight, axis=0, num_outputs=3, outputs=3)
            return ops.Concat(z, r, n, axis=0)
        return weight

    # -- errors ------------------------------------------------------------------------------------------------

    def _check_kind(self, hx: Any) -> None:
        if self.mode == "LSTM" and (not isinstance(hx, (tuple, list)) or len(hx) != 2):
            raise ArgumentError("an LSTM takes its states as a pair (h_0, c_0)", got=type(hx).__name__)

    def check_input(self, input: Tensor, batch_sizes: Tensor | None) -> None:
        """Raise ShapeError unless the input has the features of this layer; `batch_sizes` are those of a
        PackedSequence, whose data has no dimension of steps."""
        wanted = 3 if batch_sizes is None else 2
        if input.array.ndim != wanted:
            raise self._wrong(input, f"{wanted} dimensions")
        if input.static_shape[-1] != self.input_size:
            raise self._wrong(input, f"input_size {self.input_size}")

    def get_expected_hidden_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of the states: [layers·directions, N, H]."""
        return self._state_size(input, batch_sizes, self.proj_size or self.hidden_size)

    def get_expected_cell_size(self, input: Tensor, batch_sizes: Tensor | None) -> tuple[int, int, int]:
        """The shape of an LSTM's cells: [layers·directions, N, H]."""
        return self._state_size(input, batch_sizes, self.hidden_size)

    def _state_size(self, input: Tensor, batch_sizes: Tensor | None, size: int) -> tuple[int, int, int]:
        batch = input.shape[0 if self.batch_first else 1] if batch_sizes is None else int(batch_sizes.array[0])
        return self.num_layers * (1 + self.bidirectional), batch, size

    def check_hidden_size(self, hx: Tensor, expected_hidden_size: tuple[int, int, int], msg: str = "h_0") -> None:
        """Raise ShapeError unless states have the expected shape."""
        if tuple(hx.shape) != tuple(expected_hidden_size):
            raise ShapeError(
                f"{type(self).__name__} does not take this {msg}",
                expected=f"{msg} {list(expected_hidden_size)}",
                got=f"{msg} {list(hx.shape)}",
            )

    def check_forward_args(self, input: Tensor, hidden: Any, batch_sizes: Tensor | None) -> None:
        """Raise an error for an input or for first states (for LSTM the pair) that do not fit this layer."""
        self.check_input(input, batch_sizes)
        expected = self.get_expected_hidden_size(input, batch_sizes)
        if self.mode == "LSTM":
            self.check_hidden_size(hidden[0], expected, "h_0")
            self.check_hidden_size(hidden[1], self.get_expected_cell_size(input, batch_sizes), "c_0")
        else:
            self.check_hidden_size(hidden, expected, "h_0")

    def _wrong(self, input: Tensor, expected: str) -> ShapeError:
        return ShapeError(
            f"{type(self).__name__} does not take this input",
            expected=f"input of {expected}",
            got=f"input {list(input.static_shape)}",
        )

    def explain(self, error: OxError, *args: Any) -> None:
        explain_types(error, args[0], self.all_weights[0][0])

    def extra_repr(self) -> str:
        parts = [f"{self.input_size}, {self.hidden_size}"]
        usual = {
            "proj_size": 0, "num_layers": 1, "bias": True, "batch_first": False, "dropout": 0.0, "bidirectional": False,
        }  # fmt: skip
        parts += [f"{name}={getattr(self, name)}" for name, value in usual.items() if getattr(self, name) != value]
        return ", ".join(parts)


class RNN(RNNBase):
    """Layers of h_t = tanh or relu of W x_t + b + R h_(t-1) + b'. See `RNNBase`. `torch.nn.RNN`, ONNX RNN."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        num_layers: int = 1,
        nonlinearity: str = "tanh",
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if nonlinearity not in ("tanh", "relu"):
            raise ArgumentError(f"RNN has no nonlinearity {nonlinearity!r}", expected="'tanh' or 'relu'")
        super().__init__(f"RNN_{nonlinearity.upper()}", input_size, hidden_size, num_layers, *args, **kwargs)
        self.nonlinearity = nonlinearity


class LSTM(RNNBase):
    """Long short-term memory. See `RNNBase`; the states are a pair (h, c). `torch.nn.LSTM`, ONNX LSTM.

    With `proj_size` the states are projected, which ONNX's operator has not: a layer is then exported as a Scan.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("LSTM", *args, **kwargs)


class GRU(RNNBase):
    """Gated recurrent units. See `RNNBase`. `torch.nn.GRU`, ONNX GRU with linear_before_reset."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__("GRU", *args, **kwargs)
