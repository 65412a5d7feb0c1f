"""RNN, GRU and LSTM over time on a GPU, for one direction: float32 and float64.

The products with the inputs of all steps are one product, and so are those of the gradients of W, R and X. A step is a
product with the state by cuBLAS and one kernel (device_recurrent.cu), on arrays that are allocated once.

Shapes: X [T, N, I], W [k·H, I], R [k·H, H], b [2·k·H] or None, states [N, H]; states over time [T, N, H], whose steps
may lie apart. `alive` [T, N, 1] bool or None: False once a sample has ended; it keeps its state, and its gates are 0.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ox.devices.cpu_kernels.recurrent import FUNCTIONS
from ox.devices.gpu import cudnn_settings
from ox.devices.gpu.cublas import cublas
from ox.devices.gpu.cupy_device import cupy
from ox.devices.gpu.kernels import THREADS, blocks_of_elements, divisor, kernel
from ox.devices.gpu.multi_tensor import is_on_device
from ox.devices.summation import sum_over
from ox.dtypes import float32, float64

FILE = "device_recurrent.cu"
MOST_UNITS = 2**31 - 1  # of all samples, as kernels divide their numbers


def serves(X: Any, hidden: int) -> bool:
    """Whether the kernels do a call on these inputs [T, N, I] with so many hidden units."""
    return is_on_device(X) and X.dtype in (float32, float64) and X.size > 0 and 0 < X.shape[1] * hidden <= MOST_UNITS


def _address(a: Any) -> int:
    return 0 if a is None else int(a.data.ptr)


def _apart(a: Any) -> int:
    """The elements from one step of [T, N, H] to the next."""
    return 0 if a is None else a.strides[0] // a.itemsize


def _over_time(a: Any) -> Any:
    """With the numbers of a step in a row; None stays."""
    if a is None or (a[0].flags.c_contiguous and a.strides[0] >= 0):
        return a
    return cupy().ascontiguousarray(a)


def _rows(a: Any) -> Any:
    """All steps of [T, N, ·] as rows."""
    return a.reshape(-1, a.shape[2])


def _products(xp: Any) -> tuple[Any, Any]:
    """A product, and a repeated one. TF32 is by cuDNN's switch, as for convolutions: in PyTorch, cuDNN does both."""
    handle, tf32 = cublas(xp), cudnn_settings.current().allow_tf32
    return partial(handle.matmul, allow_tf32=tf32), partial(handle.repeated, allow_tf32=tf32)


def _step(name: str, like: Any, *arguments: int) -> Callable[[int], None]:
    """A kernel over the units of a step, as a function of the step's number; `like` [N, H] is a state."""
    function, grid, block = (
        kernel(name, "device_recurrent.cu", like.dtype),
        (blocks_of_elements(like.size),),
        (THREADS,),
    )
    fixed = (like.size, *arguments)
    return lambda step: function(grid, block, (*fixed, step))


def _forward(
    xp: Any, name: str, X: Any, W: Any, R: Any, b: Any, h: Any, alive: Any, reverse: bool, Y: Any, *more: int
) -> None:
    """Walk along the time; `more` are the arguments of the kernel between Y and the sizes."""
    multiply, repeated = _products(xp)
    (T, N, H), R, h = Y.shape, cupy().ascontiguousarray(R), cupy().ascontiguousarray(h)
    b = None if b is None else cupy().ascontiguousarray(b)
    inputs = multiply(_rows(X), W, turn_b=True)
    sums = cupy().empty((N, len(R)), X.dtype)
    product = repeated(h, R, sums, turn_b=True)
    step = _step(
        name, h, _address(inputs), _address(sums), _address(b), _address(alive), _address(h), _address(Y), *more,
        _apart(Y), divisor(H), T, int(reverse),
    )  # fmt: skip
    state, first, between = _address(h), _address(Y), Y.strides[0]
    for k in range(T):
        product(state)
        step(k)
        state = first + (T - 1 - k if reverse else k) * between


def lstm(
    xp: Any, X: Any, W: Any, R: Any, b: Any, h: Any, c: Any, alive: Any, reverse: bool, Y: Any, gates: Any, C: Any
) -> None:
    """Fill Y, gates i o f c [T, 4, N, H] and cells C [T, N, H]."""
    c = cupy().ascontiguousarray(c)
    _forward(xp, "ox_device_lstm", X, W, R, b, h, alive, reverse, Y, _address(c), _address(gates), _address(C))


def gru(xp: Any, X: Any, W: Any, R: Any, b: Any, h: Any, alive: Any, reverse: bool, Y: Any, gates: Any) -> None:
    """Fill Y and the gates z r n q [T, 4, N, H] of a GRU whose reset multiplies the product with the state, q."""
    _forward(xp, "ox_device_gru", X, W, R, b, h, alive, reverse, Y, _address(gates))


def gru_before_product(
    xp: Any, X: Any, W: Any, R: Any, b: Any, h: Any, alive: Any, reverse: bool, Y: Any, gates: Any
) -> None:
    """Fill Y and the gates z r n q [T, 4, N, H] of a GRU whose reset multiplies the state, q, before its product: two
    products and two kernels a step."""
    multiply, repeated = _products(xp)
    (T, N, H), R, h = Y.shape, cupy().ascontiguousarray(R), cupy().ascontiguousarray(h)
    b = None if b is None else cupy().ascontiguousarray(b)
    inputs = multiply(_rows(X), W, turn_b=True)
    sums, resets, product = (cupy().empty((N, size), X.dtype) for size in (2 * H, H, H))
    of_states = repeated(h, R[: 2 * H], sums, turn_b=True)
    of_resets = repeated(resets, R[2 * H :], product, turn_b=True)
    arrays, sizes = tuple(map(_address, (b, alive, h, Y, gates))), (_apart(Y), divisor(H), T, int(reverse))
    to_gates = _step("ox_device_gru_gates", h, _address(inputs), _address(sums), *arrays, _address(resets), *sizes)
    to_state = _step("ox_device_gru_state", h, _address(inputs), _address(product), *arrays, *sizes)
    state, first, between = _address(h), _address(Y), Y.strides[0]
    for k in range(T):
        of_states(state)
        to_gates(k)
        of_resets(_address(resets))
        to_state(k)
        state = first + (T - 1 - k if reverse else k) * between


def rnn(xp: Any, X: Any, W: Any, R: Any, b: Any, h: Any, alive: Any, reverse: bool, function: str, Y: Any) -> None:
    """Fill Y of a plain RNN of tanh, relu or sigmoid."""
    _forward(xp, "ox_device_rnn", X, W, R, b, h, alive, reverse, Y, FUNCTIONS[function])


def _backward(
    xp: Any, name: str, X: Any, W: Any, R: Any, Y: Any, h: Any, alive: Any, reverse: bool, gY: Any, dh: Any, to_x: bool,
    more: tuple[int, ...], two: bool = False,
) -> tuple[Any, ...]:  # fmt: skip
    """Walk back along the time: the gradients of W, R, the bias of inputs, that of states, X (None unless wanted), and
    the first state.

    Args:
        more: the arguments of the kernel between the slopes and the sizes.
        two: the products with the states have other slopes than those with the inputs.
    """
    multiply, repeated = _products(xp)
    Y, gY, R, h = _over_time(Y), _over_time(gY), cupy().ascontiguousarray(R), cupy().ascontiguousarray(h)
    T, N, H = Y.shape
    to_h, starts = cupy().array(dh, order="C"), cupy().empty((T, N, H), X.dtype)
    slopes = [cupy().empty((T, N, len(R)), X.dtype) for _ in range(1 + two)]
    of_inputs, of_states = slopes[0], slopes[-1]
    product = repeated(of_states[0], R, to_h, added=True)
    step = _step(
        name, h, _address(alive), _address(h), _address(Y), _address(gY), _address(to_h), _address(starts),
        *map(_address, slopes), *more, _apart(Y), _apart(gY), divisor(H), T, int(reverse),
    )  # fmt: skip
    first, between = _address(of_states), of_states.strides[0]
    for k in range(T):
        step(k)
        product(first + (k if reverse else T - 1 - k) * between)
    to_w = multiply(_rows(of_inputs), _rows(X), turn_a=True)
    to_r = multiply(_rows(of_states), _rows(starts), turn_a=True)
    result = multiply(_rows(of_inputs), W).reshape(X.shape) if to_x else None
    to_b = [sum_over(xp, _rows(each), (0,)) for each in slopes]
    return to_w, to_r, to_b[0], to_b[-1], result, to_h


def lstm_backward(
    xp: Any, X: Any, W: Any, R: Any, Y: Any, h: Any, c: Any, alive: Any, reverse: bool, gates: Any, C: Any, gY: Any,
    dh: Any, dc: Any, to_x: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of W, R, the bias of inputs, that of states, X (None unless wanted), the first state and cell."""
    gates, c, C = (cupy().ascontiguousarray(a) for a in (gates, c, C))
    to_c = cupy().array(dc, order="C")
    more = _address(gates), _address(c), _address(C), _address(to_c)
    return (*_backward(xp, "ox_device_lstm_backward", X, W, R, Y, h, alive, reverse, gY, dh, to_x, more), to_c)


def gru_backward(
    xp: Any, X: Any, W: Any, R: Any, Y: Any, h: Any, alive: Any, reverse: bool, gates: Any, gY: Any, dh: Any, to_x: bool
) -> tuple[Any, ...]:
    """The gradients of W, R, the bias of inputs, that of states, X (None unless wanted), and the first state."""
    gates = cupy().ascontiguousarray(gates)
    name, more = "ox_device_gru_backward", (_address(gates),)
    return _backward(xp, name, X, W, R, Y, h, alive, reverse, gY, dh, to_x, more, two=True)


def gru_before_product_backward(
    xp: Any, X: Any, W: Any, R: Any, Y: Any, h: Any, alive: Any, reverse: bool, gates: Any, gY: Any, dh: Any, to_x: bool
) -> tuple[Any, ...]:
    """Those of `gru_before_product`, as of `gru_backward`."""
    multiply, repeated = _products(xp)
    Y, gY, gates = _over_time(Y), _over_time(gY), cupy().ascontiguousarray(gates)
    R, h, to_h = cupy().ascontiguousarray(R), cupy().ascontiguousarray(h), cupy().array(dh, order="C")
    T, N, H = Y.shape
    slopes, starts, resets = (cupy().empty((T, N, size), X.dtype) for size in (3 * H, H, H))
    product, sizes = cupy().empty((N, H), X.dtype), (divisor(H), T, int(reverse))
    through_reset = repeated(slopes[0][:, 2 * H :], R[2 * H :], product)
    through_gates = repeated(slopes[0][:, : 2 * H], R[: 2 * H], to_h, added=True)
    arrays = map(_address, (alive, h, Y, gY, to_h, starts, slopes, gates, resets))
    of_state = _step("ox_device_gru_state_backward", h, *arrays, _apart(Y), _apart(gY), *sizes)
    arrays = map(_address, (alive, product, to_h, slopes, gates))
    of_gates = _step("ox_device_gru_gates_backward", h, *arrays, *sizes)
    first, between = _address(slopes), slopes.strides[0]
    for k in range(T):
        slope = first + (k if reverse else T - 1 - k) * between
        of_state(k)
        through_reset(slope + 2 * H * slopes.itemsize)
        of_gates(k)
        through_gates(slope)
    rows, to_r = _rows(slopes), cupy().empty(R.shape, R.dtype)
    to_w = multiply(rows, _rows(X), turn_a=True)
    multiply(rows[:, : 2 * H], _rows(starts), out=to_r[: 2 * H], turn_a=True)
    multiply(rows[:, 2 * H :], _rows(resets), out=to_r[2 * H :], turn_a=True)
    result = multiply(rows, W).reshape(X.shape) if to_x else None
    to_b = sum_over(xp, rows, (0,))
    return to_w, to_r, to_b, to_b, result, to_h


def rnn_backward(
    xp: Any, X: Any, W: Any, R: Any, Y: Any, h: Any, alive: Any, reverse: bool, function: str, gY: Any, dh: Any,
    to_x: bool,
) -> tuple[Any, ...]:  # fmt: skip
    """The gradients of W, R, the bias of inputs, that of states, X (None unless wanted), and the first state."""
    name, more = "ox_device_rnn_backward", (FUNCTIONS[function],)
    return _backward(xp, name, X, W, R, Y, h, alive, reverse, gY, dh, to_x, more)
