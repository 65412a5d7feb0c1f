"""Which calls go to ONNX Runtime on the CPU: the allow-list, and from which size on.

Every number was measured by `benchmarks/bench_executors.py` on 2 cores with AVX-512 and rounded up: below it a NumPy
kernel is as fast or faster, since a one-node session costs 4 to 5 µs before it does anything. Not here, because NumPy
was as fast or faster at every size: Neg Abs Sqrt Log Pow Div Min Max, additions of a scalar, reductions over leading
axes, and all that NumPy does as a view.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from math import prod
from typing import Any

import numpy as np

from ox.devices import dispatch, summation
from ox.devices.cpu_kernels import recurrent as compiled_recurrent
from ox.devices.onnxruntime import node_session
from ox.devices.operator import Operator
from ox.dtypes import FROM_ONNX, DType, float16, float32, float64

SizeCheck = Callable[[list[Any]], bool]
Run = Callable[["Operator", list[Any], dict[str, Any]], Any]


def elements(minimum: int) -> SizeCheck:
    """From `minimum` elements of the first input on; worth a copy of a strided input too."""
    return lambda arrays: arrays[0].size >= minimum


def contiguous(minimum: int) -> SizeCheck:
    """The same where the work is so light that a copy would eat the gain."""
    return lambda arrays: bool(arrays[0].size >= minimum and arrays[0].flags.c_contiguous)


def pair(minimum: int) -> SizeCheck:
    """For light binary operators: the larger input decides, and a scalar partner is left to NumPy."""

    def worth(arrays: list[Any]) -> bool:
        a, b = arrays
        if a.size < minimum and b.size < minimum:
            return False
        return bool(a.size > 1 and b.size > 1 and a.flags.c_contiguous and b.flags.c_contiguous)

    return worth


def any_of(minimum: int) -> SizeCheck:
    """From `minimum` elements of any input on."""
    return lambda arrays: max([a.size for a in arrays if a is not None]) >= minimum


def third(minimum: int) -> SizeCheck:
    """From `minimum` elements of the third input on."""
    return lambda arrays: arrays[2].size >= minimum


def trailing(minimum: int) -> SizeCheck:
    """For reductions: over all axes or the last ones."""

    def worth(arrays: list[Any]) -> bool:
        x = arrays[0]
        if x.size < minimum or not x.flags.c_contiguous:
            return False
        axes = arrays[1] if len(arrays) > 1 else None
        if axes is None or axes.size == 0:
            return True
        rank = x.ndim
        return sorted([int(a) % rank for a in axes]) == list(range(rank - len(axes), rank))

    return worth


# OpenBLAS wakes its own threads above 64 * 64 * 64 multiplications, and these then spin for a tenth of a second beside
# ONNX Runtime's. So from there on no product goes to NumPy, in either of the types that ONNX Runtime multiplies fast.
THREADED_PRODUCT = 1 << 18


def product(arrays: list[Any]) -> bool:
    """From the size on at which NumPy's BLAS would start its threads."""
    a, b = arrays[0], arrays[1]
    return bool(a.size * (b.shape[-1] if b.ndim > 1 else 1) > THREADED_PRODUCT)


def gemm(arrays: list[Any]) -> bool:
    a, b = arrays[0], arrays[1]
    return bool(a.size * max(b.shape, default=1) > THREADED_PRODUCT)


def rows(minimum: int) -> SizeCheck:
    """For Gather: from `minimum` gathered elements on (counted as if along the first axis)."""

    def worth(arrays: list[Any]) -> bool:
        data, indices = arrays
        if not data.ndim or not data.shape[0]:
            return False
        return bool(indices.size * (data.size // data.shape[0]) >= minimum and data.flags.c_contiguous)

    return worth


def always(arrays: list[Any]) -> bool:
    return bool(arrays[0].size)  # with no channels ONNX Runtime leaves its output unwritten


def never(arrays: list[Any]) -> bool:
    return False


LONG_ROW = 1 << 14  # elements from which ONNX Runtime's sum of a row, or of products, rounds too often


def run(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Run the call as a session. What ONNX Runtime refuses, the reference kernel does, or explains better."""
    found = node_session.call(op, arrays, attributes)
    if not isinstance(found, str):
        try:  # (contextlib.suppress costs as much as a small kernel)
            return found(arrays)
        except Exception:
            pass
    return op.kernel(np, *arrays, **attributes)


def _transposed(a: Any) -> bool:
    """Whether an array is a matrix (or a stack of matrices) whose last two axes were swapped by a view."""
    return bool(a.ndim > 1 and not a.flags.c_contiguous and a.swapaxes(-1, -2).flags.c_contiguous)


def run_matmul(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MatMul; operands that are transposed views are read as they lie (FusedMatMul) rather than copied. Long sums go to
    the kernel, which adds their parts in float64."""
    a, b = arrays
    if a.ndim and a.shape[-1] > LONG_ROW:
        return op.kernel(np, *arrays, **attributes)
    turn_a, turn_b = _transposed(a), _transposed(b)
    if (turn_a or turn_b) and a.dtype == float32 and a.ndim > 1 and b.ndim > 1:
        found = node_session.vendor_session(
            "FusedMatMul", (a.dtype, b.dtype), (("transA", int(turn_a)), ("transB", int(turn_b)))
        )
        # a stack of matrices times one matrix is one large product; only plain MatMul sees that by itself
        flat = a.reshape(-1, a.shape[-1]) if a.ndim > 2 and b.ndim == 2 and a.flags.c_contiguous else a
        try:
            y = found([flat.swapaxes(-1, -2) if turn_a else flat, b.swapaxes(-1, -2) if turn_b else b])
            return y if flat is a else y.reshape(*a.shape[:-1], b.shape[-1])
        except Exception:
            pass
    return run(op, arrays, attributes)


def run_gemm(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gemm; an operand that is a transposed view turns its flag rather than copied. Long sums as in `run_matmul`."""
    a, b = arrays[0], arrays[1]
    if a.ndim == 2 and a.shape[0 if attributes.get("transA") else 1] > LONG_ROW:
        return op.kernel(np, *arrays, **attributes)
    if a.ndim == 2 and b.ndim == 2:
        arrays = list(arrays)
        attributes = dict(attributes)
        for i, flag in ((0, "transA"), (1, "transB")):
            if _transposed(arrays[i]):
                arrays[i] = arrays[i].T
                attributes[flag] = 1 - attributes.get(flag, 0)
    return run(op, arrays, attributes)


def run_cast(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Cast between float32 and float16, which NumPy does number by number; its other casts are as fast."""
    pair = {arrays[0].dtype, FROM_ONNX.get(attributes.get("to", 0))}
    return run(op, arrays, attributes) if pair == {float32, float16} else op.kernel(np, *arrays, **attributes)


def run_scatter(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """ScatterElements; reductions go to the kernel, for ONNX Runtime adds what meets at a place one after the other
    and loses NaN in a maximum."""
    writes = attributes.get("reduction", "none") == "none"
    return run(op, arrays, attributes) if writes else op.kernel(np, *arrays, **attributes)


def run_rows(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Softmax and its like: a long row goes to the kernel, which adds in blocks."""
    x, axis = arrays[0], attributes.get("axis", -1)
    long = x.ndim and -x.ndim <= axis < x.ndim and x.shape[axis] > LONG_ROW
    return op.kernel(np, *arrays, **attributes) if long else run(op, arrays, attributes)


def run_layer_norm(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalization, as `run_rows`."""
    long = arrays[1].size > LONG_ROW
    return op.kernel(np, *arrays, **attributes) if long else run(op, arrays, attributes)


def run_batch_norm(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BatchNormalization; the statistics of a large batch are the kernel's work, which adds in blocks."""
    x = arrays[0]
    large = attributes.get("training_mode") and x.ndim > 1 and x.size > LONG_ROW // 4 * x.shape[1]
    return op.kernel(np, *arrays, **attributes) if large else run(op, arrays, attributes)


LARGE_WINDOW = 256  # elements


def run_sound(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Where ONNX Runtime passes over a NaN: one that vanishes in a MaxPool never stops a run at its loss. So an input
    that is not finite goes to NumPy, which keeps it. A sum finds that in a fraction of the operator's own time."""
    with np.errstate(all="ignore"):
        sound = np.isfinite(np.add.reduce(arrays[0], axis=None))
    return run(op, arrays, attributes) if sound else op.kernel(np, *arrays, **attributes)


def _window_fits(x: Any, attributes: dict[str, Any]) -> bool:
    """Whether a pool's window fits into the padded input. Where not, ONNX Runtime makes an output out of nothing."""
    kernel = attributes["kernel_shape"]
    pads = attributes.get("pads") or [0] * (2 * len(kernel))
    dilations = attributes.get("dilations") or [1] * len(kernel)
    return x.ndim == len(kernel) + 2 and all(
        n + pads[i] + pads[i + len(kernel)] > dilations[i] * (kernel[i] - 1) for i, n in enumerate(x.shape[2:])
    )


def run_average(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """AveragePool; a window that does not fit goes to the kernel, which raises the error, and a large one, too, for
    ONNX Runtime adds its elements one after the other."""
    checked = attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID")
    if prod(attributes["kernel_shape"]) > LARGE_WINDOW or (checked and not _window_fits(arrays[0], attributes)):
        return op.kernel(np, *arrays, **attributes)
    return run(op, arrays, attributes)


def run_maximum(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """MaxPool; as `run_average` and `run_sound`."""
    if attributes.get("auto_pad", "NOTSET") in ("NOTSET", "VALID") and not _window_fits(arrays[0], attributes):
        return op.kernel(np, *arrays, **attributes)
    return run_sound(op, arrays, attributes)


def run_recurrent(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RNN, GRU or LSTM; the compiled kernels do the usual ones, from the kernel of the operator."""
    # that of ONNX Runtime overflows above 88
    softplus = "softplus" in [name.lower() for name in attributes.get("activations") or ()]
    if softplus or compiled_recurrent.serves(op.name, arrays, attributes):
        return op.kernel(np, *arrays, **attributes)
    # ONNX Runtime refuses a call without hidden_size, which ONNX says is optional
    return run(op, arrays, {**attributes, "hidden_size": attributes.get("hidden_size") or arrays[2].shape[-1]})


def run_resize(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Resize, but for cubics, which NumPy does faster, and aligned corners by scales, which ONNX Runtime rounds."""
    by_scale = len(arrays) > 2 and arrays[2] is not None
    if attributes.get("mode") == "cubic" or (
        by_scale and attributes.get("coordinate_transformation_mode") == "align_corners"
    ):
        return op.kernel(np, *arrays, **attributes)
    return run_sound(op, arrays, attributes)


class Products:
    """NumPy, but with ONNX Runtime's matrix products, for kernels that are mostly these."""

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)

    @staticmethod
    def matmul(a: Any, b: Any) -> Any:
        """Of two float32 matrices, which may be transposed views."""
        if a.size * b.shape[-1] <= THREADED_PRODUCT or a.shape[-1] > LONG_ROW:
            return summation.matmul(np, a, b)
        turn_a, turn_b = _transposed(a), _transposed(b)
        flags = (("transA", int(turn_a)), ("transB", int(turn_b)))
        try:
            found = node_session.vendor_session("FusedMatMul", (a.dtype, b.dtype), flags)
            return found([a.T if turn_a else a, b.T if turn_b else b])
        except Exception:
            return np.matmul(a, b)


products = Products()


def run_large(op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """The kernel that a function-operator has for large arrays, on these products."""
    return op.large(products, *arrays, **attributes)  # type: ignore[attr-defined]


SINGLE = (float32,)
BOTH = (float32, float64)

ALLOWED: dict[str, tuple[tuple[DType, ...], SizeCheck, Run]] = {
    **{name: (SINGLE, pair(100_000), run) for name in ("Add", "Sub", "Mul")},
    **{name: (SINGLE, pair(150_000), run) for name in ("Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual")},
    "Relu": (SINGLE, contiguous(50_000), run),
    "Exp": (SINGLE, contiguous(32_000), run),
    "Tanh": (SINGLE, contiguous(120_000), run),
    "Clip": (SINGLE, contiguous(16_000), run),
    "Where": ((np.dtype(bool),), any_of(8_000), run),
    "Cast": ((float32, float16), contiguous(4_000), run_cast),
    "Gather": (SINGLE, rows(50_000), run),
    "ScatterElements": (SINGLE, third(8_000), run_scatter),
    "Sigmoid": (SINGLE, elements(4_000), run),
    "LeakyRelu": (SINGLE, contiguous(100_000), run),
    **{name: (SINGLE, contiguous(50_000), run) for name in ("Softsign", "HardSigmoid", "HardSwish")},
    "ThresholdedRelu": (SINGLE, contiguous(16_000), run),
    "Erf": (SINGLE, elements(128), run),
    "Gelu": (SINGLE, elements(128), run),
    "Softmax": (SINGLE, elements(256), run_rows),
    "LogSoftmax": (SINGLE, elements(256), run_rows),
    "LayerNormalization": (SINGLE, elements(256), run_layer_norm),
    "BatchNormalization": (SINGLE, elements(4_000), run_batch_norm),
    **{name: (SINGLE, trailing(4_000), run_sound) for name in ("ReduceMax", "ReduceMin")},
    "MatMul": (BOTH, product, run_matmul),
    "Gemm": (BOTH, gemm, run_gemm),
    "Conv": (SINGLE, always, run),
    "ConvTranspose": (SINGLE, always, run),
    "MaxPool": (SINGLE, always, run_maximum),
    "AveragePool": (SINGLE, always, run_average),
    "Resize": (SINGLE, elements(8_000), run_resize),
    "GridSample": (SINGLE, always, run_sound),
    **{name: (SINGLE, elements(32_000), run_recurrent) for name in ("RNN", "GRU", "LSTM")},
}

LARGE: tuple[tuple[DType, ...], SizeCheck, Run] = (SINGLE, elements(1 << 15), run_large)


class OneNode:
    """The offer of a one-node session for an operator; see `ox.devices.dispatch.Accelerated`."""

    __slots__ = ("run", "worthwhile")

    def __init__(self, worth: SizeCheck, run: Run) -> None:
        self.worthwhile, self.run = worth, run
        _made.append(self)


_made: list[OneNode] = []


def offer(op: Operator, arrays: list[Any]) -> OneNode | None:
    """A session for this operator on these element types, where the list has it and ONNX Runtime is installed."""
    entry = ALLOWED.get(op.name) if not op.domain else LARGE if getattr(op, "large", None) else None
    if entry is None or not isinstance(arrays[0], np.ndarray) or arrays[0].dtype not in entry[0]:
        return None
    if op.name == "Where" and arrays[1].dtype != float32:
        return None
    return OneNode(entry[1], entry[2]) if node_session.installed() else None


def stay_on_numpy() -> None:
    """In a forked child the threads of the shared pool are gone, and a session would wait for them forever."""
    node_session.forked = True
    for made in _made:
        made.worthwhile = never
    ALLOWED.clear()


dispatch.accelerators.append(offer)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=stay_on_numpy)
