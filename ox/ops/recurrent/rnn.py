"""Recurrent networks: RNN GRU LSTM."""

from collections.abc import Sequence
from typing import Any

from ox.core import operator as choke
from ox.core.mode import MODE, switch_mode
from ox.core.operator import OPS, Operator, operator
from ox.core.types import T1, XP, T
from ox.core.upcast import downcast
from ox.devices import cuda_state
from ox.dtypes import FLOATS, HALF_TYPES, float32, int32
from ox.ops.recurrent import array_call
from ox.ops.recurrent.arguments import call, check
from ox.ops.recurrent.decomposition import forward

__all__ = ["GRU", "LSTM", "RNN"]

TANH = ["Tanh", "Tanh"]


class Recurrent(Operator):
    """An operator whose gradient needs the gates, which its kernel computes but does not return. If a gradient
    is followed, a call runs the function-operator that returns them too; a recording sees the operator itself."""

    def __call__(self, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        mode = MODE.get()
        keeping: Any = OPS.get(f"ox.{self.name}Gates")
        if (
            keeping is not None
            and mode.grad
            and (mode.recording is None or mode.recording.keeps_fused)
            and mode.executor is None
            and any(getattr(x, "node", None) is not None for x in inputs)
            and (len(inputs) < 8 or inputs[7] is None)
            and call(self.name, attributes).usual
        ):
            known = {k: v for k, v in attributes.items() if k in keeping.schema.attributes}
            made = keeping(*inputs[:7], **known)
            return made[0] if outputs == 1 else made[:outputs]
        return super().__call__(*inputs, outputs=outputs, **attributes)


def _run(xp: XP, kind: str, arrays: dict[str, Any], hidden: int | None, attributes: dict[str, Any]) -> Any:
    """The outputs and, from the fast loops, what comes behind them."""
    this = call(kind, attributes)
    check(this, hidden, {name: None if a is None else a.shape for name, a in arrays.items()})
    if this.usual and arrays.get("P") is None:
        return array_call.forward(xp, this, *(a for name, a in arrays.items() if name != "P"))
    wide = {k: a.astype(float32) if a is not None and a.dtype in HALF_TYPES else a for k, a in arrays.items()}
    with switch_mode(recording=None, grad=False, autocast=None), cuda_state.taking_host_arrays_along():
        made = forward(this, {k: None if a is None else choke.make_tensor(a) for k, a in wide.items()})
    return tuple(downcast(y.array, arrays["X"].dtype) for y in made)


@operator(
    "Y Y_h", kind="recurrent", cls=Recurrent, T=FLOATS, T1=(int32,), amp="lower", batching="each", weights="W R B"
)
def RNN(
    xp: XP,
    X: T,
    W: T,
    R: T,
    B: T = None,
    sequence_lens: T1 = None,
    initial_h: T = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] = TANH,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
) -> tuple[T, T]:
    """h_t = f(X_t W' + h_(t-1) R' + biases): all states Y [T, directions, N, H] and the last ones [directions, N, H].

    X [T, N, I], or with `layout` 1 batch first throughout. Sequences may end earlier, at `sequence_lens` [N]; Y is 0
    from there on. ONNX RNN.
    """
    arrays = {"X": X, "W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    return _run(
        xp, "RNN", {**arrays, "initial_c": None}, hidden_size,
        {
            "activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": activations,
            "clip": clip, "direction": direction, "layout": layout,
        },
    )[:2]  # fmt: skip


@operator(
    "Y Y_h", kind="recurrent", cls=Recurrent, T=FLOATS, T1=(int32,), amp="lower", batching="each", weights="W R B"
)
def GRU(
    xp: XP,
    X: T,
    W: T,
    R: T,
    B: T = None,
    sequence_lens: T1 = None,
    initial_h: T = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    layout: int = 0,
    linear_before_reset: int = 0,
) -> tuple[T, T]:
    """Gated recurrent unit, gates in the order z r h: all states Y [T, directions, N, H] and the last ones.

    `linear_before_reset` 1 is PyTorch's and cuDNN's form. Shapes as `RNN`. ONNX GRU.
    """
    arrays = {"X": X, "W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    return _run(
        xp, "GRU", {**arrays, "initial_c": None}, hidden_size,
        {
            "activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": activations,
            "clip": clip, "direction": direction, "layout": layout, "linear_before_reset": linear_before_reset,
        },
    )[:2]  # fmt: skip


@operator(
    "Y Y_h Y_c", kind="recurrent", cls=Recurrent, T=FLOATS, T1=(int32,), amp="lower", batching="each", weights="W R B P"
)
def LSTM(
    xp: XP,
    X: T,
    W: T,
    R: T,
    B: T = None,
    sequence_lens: T1 = None,
    initial_h: T = None,
    initial_c: T = None,
    P: T = None,
    *,
    activation_alpha: Sequence[float] | None = None,
    activation_beta: Sequence[float] | None = None,
    activations: Sequence[str] | None = None,
    clip: float | None = None,
    direction: str = "forward",
    hidden_size: int | None = None,
    input_forget: int = 0,
    layout: int = 0,
) -> tuple[T, T, T]:
    """Long short-term memory, gates in the order i o f c: all states Y [T, directions, N, H], the last ones and the
    last cells. `P` holds the peepholes of i, o and f. Shapes as `RNN`. ONNX LSTM."""
    arrays = {"X": X, "W": W, "R": R, "B": B, "sequence_lens": sequence_lens, "initial_h": initial_h}
    return _run(
        xp, "LSTM", {**arrays, "initial_c": initial_c, "P": P}, hidden_size,
        {
            "activation_alpha": activation_alpha, "activation_beta": activation_beta, "activations": activations,
            "clip": clip, "direction": direction, "layout": layout, "input_forget": input_forget,
        },
    )[:3]  # fmt: skip
