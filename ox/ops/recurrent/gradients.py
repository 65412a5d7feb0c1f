"""The gradients of RNN GRU LSTM, and the forms of GRU and LSTM that keep their gates for them."""

from collections.abc import Sequence
from typing import Any

from ox.core.function import function
from ox.core.tensor import TensorBase
from ox.core.types import T1, XP, T
from ox.dtypes import FLOATS, int32
from ox.ops.recurrent import array_call, decomposition
from ox.ops.recurrent.arguments import call, check
from ox.ops.recurrent.rnn import GRU, LSTM, RNN, TANH

NAMES = ("X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c")


def _run_and_save(xp: XP, kind: str, arrays: tuple[Any, ...], hidden: int | None, attributes: dict[str, Any]) -> Any:
    this = call(kind, attributes)
    check(this, hidden, {n: None if a is None else a.shape for n, a in zip(NAMES, arrays, strict=False)})
    return array_call.forward(xp, this, *[*arrays, *[None] * 4][:7])


@function("Y Y_h gates", kind="recurrent", T=FLOATS, T1=(int32,), amp="lower", batching="each")
def GRUGates(
    X: T, W: T, R: T, B: T = None, sequence_lens: T1 = None, initial_h: T = None, *, direction: str = "forward",
    hidden_size: int | None = None, layout: int = 0, linear_before_reset: int = 0,
) -> tuple[T, T, T]:  # fmt: skip
    """GRU that also gives z, r, the new value and what r multiplies, [directions, T, 4, N, H]."""
    attributes = {"direction": direction, "layout": layout, "linear_before_reset": linear_before_reset}
    inputs = (X, W, R, B, sequence_lens, initial_h)
    Y, Y_h = GRU(*inputs, outputs=2, hidden_size=hidden_size or R.static_shape[2], **attributes)
    tensors = dict(zip(NAMES, inputs, strict=False))
    return (Y, Y_h, *decomposition.gates(call("GRU", attributes), tensors, Y))


@GRUGates.fast
def _(xp: XP, *arrays: Any, hidden_size: int | None = None, **attributes: Any) -> Any:
    return _run_and_save(xp, "GRU", arrays, hidden_size, attributes)


@function("Y Y_h Y_c gates cells", kind="recurrent", T=FLOATS, T1=(int32,), amp="lower", batching="each")
def LSTMGates(
    X: T, W: T, R: T, B: T = None, sequence_lens: T1 = None, initial_h: T = None, initial_c: T = None, *,
    direction: str = "forward", hidden_size: int | None = None, layout: int = 0,
) -> tuple[T, T, T, T, T]:  # fmt: skip
    """LSTM that also gives i, o, f, c [directions, T, 4, N, H] and all cells [directions, T, N, H]."""
    attributes = {"direction": direction, "layout": layout}
    inputs = (X, W, R, B, sequence_lens, initial_h, initial_c)
    Y, Y_h, Y_c = LSTM(*inputs, outputs=3, hidden_size=hidden_size or R.static_shape[2], **attributes)
    gates, cells = decomposition.gates(call("LSTM", attributes), dict(zip(NAMES, inputs, strict=False)), Y)
    return Y, Y_h, Y_c, gates, cells


@LSTMGates.fast
def _(xp: XP, *arrays: Any, hidden_size: int | None = None, **attributes: Any) -> Any:
    return _run_and_save(xp, "LSTM", arrays, hidden_size, attributes)


def _body(kind: str, inputs: tuple[Any, ...], P: Any, cotangents: Any, Y: Any, attributes: Any) -> Any:
    this = call(kind, attributes)
    tensors = {**dict(zip(NAMES, (*inputs, None), strict=False)), "P": P}
    gY, gY_h, gY_c = cotangents
    return decomposition.gradient(this, tensors, gY, gY_h, gY_c, Y)


def _fast(by_body: Any, kind: str, to_x: int) -> Any:
    """The kernel of a gradient: the fast loops where they serve the call, else the body."""

    def kernel(xp: XP, *arrays: Any, outputs: int, **attributes: Any) -> Any:
        this = call(kind, attributes)
        lstm = kind == "LSTM"
        given = [*arrays, *[None] * (13 if lstm else 10)]
        if not this.usual or (lstm and given[7] is not None):
            return by_body(xp, *arrays, **attributes)[:outputs]
        if lstm:
            inputs, rest = given[:7], given[8:14]
        else:
            gY, gh, Y, gates = given[6:10]
            inputs, rest = [*given[:6], None], [gY, gh, None, Y, gates, None]
        given = [*inputs, *rest, outputs > to_x]
        return array_call.backward(xp, this, *given)[:outputs]

    return kernel


@function("dW dR dB dinitial_h dX", kind="gradient", T=FLOATS, T1=(int32,), amp="widest", batching="each")
def RNNGradient(
    X: T, W: T, R: T, B: T = None, sequence_lens: T1 = None, initial_h: T = None,
    gY: T = None, gY_h: T = None, Y: T = None, *,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] = TANH, clip: float | None = None, direction: str = "forward", layout: int = 0,
    outputs: int = 5,
) -> tuple[T, T, T, T, T]:  # fmt: skip
    """The gradients of RNN's inputs from those of its outputs (None where not used)."""
    attributes = {
        "activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": activations,
        "clip": clip, "direction": direction, "layout": layout,
    }  # fmt: skip
    return _body("RNN", (X, W, R, B, sequence_lens, initial_h), None, (gY, gY_h, None), Y, attributes)


@function("dW dR dB dinitial_h dX", kind="gradient", T=FLOATS, T1=(int32,), amp="widest", batching="each")
def GRUGradient(
    X: T, W: T, R: T, B: T = None, sequence_lens: T1 = None, initial_h: T = None,
    gY: T = None, gY_h: T = None, Y: T = None, gates: T = None, *,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None, clip: float | None = None, direction: str = "forward",
    layout: int = 0, linear_before_reset: int = 0, outputs: int = 5,
) -> tuple[T, T, T, T, T]:  # fmt: skip
    """The gradients of GRU's inputs from those of its outputs (None where not used)."""
    attributes = {
        "activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": activations,
        "clip": clip, "direction": direction, "layout": layout, "linear_before_reset": linear_before_reset,
    }  # fmt: skip
    return _body("GRU", (X, W, R, B, sequence_lens, initial_h), None, (gY, gY_h, None), Y, attributes)


@function("dW dR dB dinitial_h dinitial_c dX dP", kind="gradient", T=FLOATS, T1=(int32,), amp="widest", batching="each")
def LSTMGradient(
    X: T, W: T, R: T, B: T = None, sequence_lens: T1 = None, initial_h: T = None, initial_c: T = None, P: T = None,
    gY: T = None, gY_h: T = None, gY_c: T = None, Y: T = None, gates: T = None, cells: T = None, *,
    activation_alpha: Sequence[float] | None = None, activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None, clip: float | None = None, direction: str = "forward",
    input_forget: int = 0, layout: int = 0, outputs: int = 7,
) -> tuple[T, T, T, T, T, T, T]:  # fmt: skip
    """The gradients of LSTM's inputs from those of its outputs (None where not used); dP only where there is a P."""
    attributes = {
        "activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": activations,
        "clip": clip, "direction": direction, "layout": layout, "input_forget": input_forget,
    }  # fmt: skip
    return _body("LSTM", (X, W, R, B, sequence_lens, initial_h, initial_c), P, (gY, gY_h, gY_c), Y, attributes)


for _made, _kind, _to_x in ((RNNGradient, "RNN", 4), (GRUGradient, "GRU", 4), (LSTMGradient, "LSTM", 5)):
    _made.fast(_fast(_made.kernel, _kind, _to_x))


def _cut(made: Any, B: Any, h: Any, *, to_x: bool) -> Any:
    """W, R, B, h, X in the order of the operators' inputs X, W, R, B, h."""
    dW, dR, dB, dh, *dX = made
    return (dX[0] if to_x else None, dW, dR, None if B is None else dB, None if h is None else dh)


@RNN.gradient("X", "W", "R", "B", "initial_h")
def _(
    gY: Any, gY_h: Any, X: TensorBase, W: TensorBase, R: TensorBase, B: Any, sequence_lens: Any,
    initial_h: Any, Y: TensorBase,
    activation_alpha: Any, activation_beta: Any, activations: Any, clip: Any, direction: Any, layout: Any, needs: Any,
) -> Any:  # fmt: skip
    made = RNNGradient(
        X, W, R, B, sequence_lens, initial_h, gY, gY_h, Y, outputs=5 if needs[0] else 4,
        activation_alpha=activation_alpha, activation_beta=activation_beta, activations=activations, clip=clip,
        direction=direction, layout=layout,
    )  # fmt: skip
    return _cut(made, B, initial_h, to_x=needs[0])


@GRU.gradient("X", "W", "R", "B", "initial_h")
def _(
    gY: Any, gY_h: Any, X: TensorBase, W: TensorBase, R: TensorBase, B: Any, sequence_lens: Any,
    initial_h: Any, Y: TensorBase,
    activation_alpha: Any, activation_beta: Any, activations: Any, clip: Any, direction: Any, layout: Any,
    linear_before_reset: Any, needs: Any,
) -> Any:  # fmt: skip
    made = GRUGradient(
        X, W, R, B, sequence_lens, initial_h, gY, gY_h, Y, outputs=5 if needs[0] else 4,
        activation_alpha=activation_alpha, activation_beta=activation_beta, activations=activations, clip=clip,
        direction=direction, layout=layout, linear_before_reset=linear_before_reset,
    )  # fmt: skip
    return _cut(made, B, initial_h, to_x=needs[0])


@GRUGates.gradient("X", "W", "R", "B", "initial_h")
def _(
    gY: Any, gY_h: Any, g_gates: Any, X: TensorBase, W: TensorBase, R: TensorBase, B: Any, sequence_lens: Any,
    initial_h: Any, Y: TensorBase, gates: TensorBase, direction: Any, layout: Any, linear_before_reset: Any, needs: Any,
) -> Any:  # fmt: skip
    made = GRUGradient(
        X, W, R, B, sequence_lens, initial_h, gY, gY_h, Y, gates, outputs=5 if needs[0] else 4,
        direction=direction, layout=layout, linear_before_reset=linear_before_reset,
    )  # fmt: skip
    return _cut(made, B, initial_h, to_x=needs[0])


def _lstm_cut(made: Any, B: Any, h: Any, c: Any, *, to_x: bool) -> Any:
    dW, dR, dB, dh, dc, *rest = made
    first = _cut((dW, dR, dB, dh, *rest), B, h, to_x=to_x)
    return (*first, None if c is None else dc, *rest[1:])


@LSTM.gradient("X", "W", "R", "B", "initial_h", "initial_c", "P")
def _(
    gY: Any, gY_h: Any, gY_c: Any, X: TensorBase, W: TensorBase, R: TensorBase, B: Any, sequence_lens: Any,
    initial_h: Any,
    initial_c: Any, P: Any, Y: TensorBase, activation_alpha: Any, activation_beta: Any, activations: Any, clip: Any,
    direction: Any, input_forget: Any, layout: Any, needs: Any,
) -> Any:  # fmt: skip
    made = LSTMGradient(
        X, W, R, B, sequence_lens, initial_h, initial_c, P, gY, gY_h, gY_c, Y,
        outputs=7 if P is not None else 6 if needs[0] else 5, activation_alpha=activation_alpha,
        activation_beta=activation_beta, activations=activations, clip=clip, direction=direction,
        input_forget=input_forget, layout=layout,
    )  # fmt: skip
    found = _lstm_cut(made, B, initial_h, initial_c, to_x=needs[0])
    return (*found, None) if P is None else found


@LSTMGates.gradient("X", "W", "R", "B", "initial_h", "initial_c")
def _(
    gY: Any, gY_h: Any, gY_c: Any, g_gates: Any, g_cells: Any, X: TensorBase, W: TensorBase, R: TensorBase, B: Any,
    sequence_lens: Any, initial_h: Any, initial_c: Any, Y: TensorBase, gates: TensorBase, cells: TensorBase,
    direction: Any,
    layout: Any, needs: Any,
) -> Any:  # fmt: skip
    made = LSTMGradient(
        X, W, R, B, sequence_lens, initial_h, initial_c, None, gY, gY_h, gY_c, Y, gates, cells,
        outputs=6 if needs[0] else 5, direction=direction, layout=layout,
    )  # fmt: skip
    return _lstm_cut(made, B, initial_h, initial_c, to_x=needs[0])
