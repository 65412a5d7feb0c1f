"""Which calls the compiled kernels of `ox.kernels` run on the CPU: float32, some also bfloat16, from a size on.

Below the sizes here a NumPy kernel is as fast: a call into the library costs about 2 µs.
"""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from ox.devices import dispatch
from ox.devices.cpu_kernels.attention import attention, attention_gradient
from ox.devices.cpu_kernels.conv import (
    average_pool_gradient,
    conv,
    conv_transpose,
    conv_weights,
    max_pool,
    max_pool_gradient,
)
from ox.devices.cpu_kernels.copy import dense, triangle, where
from ox.devices.cpu_kernels.dropout import dropout
from ox.devices.cpu_kernels.matmul import gemm, linear, linear_gradient, matmul
from ox.devices.cpu_kernels.norm import (
    batch_norm,
    batch_norm_gradient,
    group_norm,
    group_norm_gradient,
    instance_norm,
    layer_norm,
    layer_norm_gradient,
    rms_norm,
    rms_norm_gradient,
)
from ox.devices.cpu_kernels.reduce import MAGNITUDES, MAX, MIN, SQUARES, SUM, over_axes, over_images
from ox.devices.cpu_kernels.rowwise import (
    Run,
    cross_entropy,
    cross_entropy_gradient,
    gather,
    index_add,
    mean_cross_entropy,
    mean_smoothed_cross_entropy,
    of_rows,
    smoothed_cross_entropy_gradient,
    soft_cross_entropy,
    soft_cross_entropy_gradient,
    weighted_cross_entropy,
    weighted_cross_entropy_gradient,
)
from ox.devices.machine import threads
from ox.devices.operator import Operator
from ox.dtypes import FROM_ONNX, DType, bfloat16, float32, int32, int64, uint64
from ox.kernels import Library, address, kernels

KEPT_MEMORY = 512 << 20  # bytes of freed arrays that stay with the process for the next step


class Kernel:
    """The offer of a compiled kernel for an operator; see `ox.devices.dispatch.Accelerated`."""

    __slots__ = ("_fallback", "_library", "_run", "_smallest")

    def __init__(self, library: Library, smallest: int, run: Run, fallback: dispatch.Accelerated | None) -> None:
        self._library, self._smallest, self._run, self._fallback = library, smallest, run, fallback

    def worthwhile(self, arrays: list[Any]) -> bool:
        """Whether the first array is large enough for it."""
        return bool(arrays[0].size >= self._smallest)

    def run_with(self, library: Any, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        """The outputs by the functions of a library, or of what stands for one; None for what the kernel cannot do."""
        return self._run(library, arrays, attributes)

    def run(self, op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        """The outputs; what the kernel cannot do, the next best executor does."""
        result = self._run(self._library, arrays, attributes)
        if result is not None:
            return result
        if self._fallback is not None and self._fallback.worthwhile(arrays):
            return self._fallback.run(op, arrays, attributes)
        return op.kernel(np, *arrays, **attributes)


def _of_type(library: Library, name: str, array: Any) -> Any:
    """The kernel for the element type of an array."""
    return getattr(library, name if array.dtype == float32 else f"{name}_bfloat16")


def unary(name: str) -> Run:
    """A kernel of one input and one output of its shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        (x,) = arrays
        y = np.empty_like(x)
        if y.strides != x.strides:  # not dense: a transposed array is, and its output lies as it does
            return None
        _of_type(library, name, x)(x.size, address(x), address(y))
        return y

    return run


def gradient(name: str) -> Run:
    """A kernel of an output's gradient and a saved array of the same shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        g, saved = arrays
        if g.shape != saved.shape or g.dtype != saved.dtype:
            return None
        if saved.flags.c_contiguous:
            g = dense(library, g)
        result = np.empty_like(saved)
        if not result.strides == saved.strides == g.strides:
            return None
        _of_type(library, name, g)(g.size, address(g), address(saved), address(result))
        return result

    return run


def binary(name: str) -> Run:
    """A kernel of two inputs of one shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        a, b = arrays
        if a.shape != b.shape or a.dtype != b.dtype or not (a.flags.c_contiguous or b.flags.c_contiguous):
            return None
        a, b = dense(library, a), dense(library, b)
        y = np.empty_like(a)
        _of_type(library, name, a)(a.size, address(a), address(b), address(y))
        return y

    return run


def gelu(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gelu, by `approximate`."""
    run = GELU.get(attributes.get("approximate", "none"))
    return None if run is None else run(library, arrays, attributes)


def gelu_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """GeluGradient, by `approximate`."""
    run = GELU_GRADIENT.get(attributes.get("approximate", "none"))
    return None if run is None else run(library, arrays, attributes)


def with_alpha_1(run: Run) -> Run:
    """For kernels that know no other `alpha`."""
    return lambda library, arrays, attributes: (
        run(library, arrays, attributes) if attributes.get("alpha", 1.0) == 1.0 else None
    )


def cast(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Cast between float32 and bfloat16."""
    (x,) = arrays
    to = FROM_ONNX.get(attributes["to"])
    if to is None or {x.dtype, to} != {float32, bfloat16}:
        return None
    return bfloat16_cast(library, x, to)


def bfloat16_cast(library: Library, x: Any, dtype: DType) -> Any:
    """A float32 or bfloat16 array as the other type, its elements in the same order in memory; None if they do not lie
    densely."""
    y = np.empty_like(x, dtype)
    if [stride * x.itemsize for stride in y.strides] != [stride * y.itemsize for stride in x.strides]:
        return None
    run = library.ox_to_bfloat16 if dtype == bfloat16 else library.ox_from_bfloat16
    run(x.size, address(x), address(y))
    return y


GELU = {"none": unary("ox_gelu_forward"), "tanh": unary("ox_tanh_gelu_forward")}
GELU_GRADIENT = {"none": gradient("ox_gelu_backward"), "tanh": gradient("ox_tanh_gelu_backward")}


BESIDE = (np.dtype(bool), int32, int64, uint64)  # masks are bool, indices, classes and random counters integers
FIRST = {"Where": (np.dtype(bool),), "Trilu": (float32, np.dtype(bool))}  # of the first input, where not float32
# By operator (those of the domain "ox" with it): from which number of elements of the first input on, and the kernel.
KERNELS: dict[str, tuple[int, Run]] = {
    "Exp": (2_000, unary("ox_exp_forward")),
    "Log": (2_000, unary("ox_log_forward")),
    "Erf": (256, unary("ox_erf_forward")),
    "Tanh": (1_000, unary("ox_tanh_forward")),
    "Sigmoid": (512, unary("ox_sigmoid_forward")),
    "Softplus": (256, unary("ox_softplus_forward")),
    "Swish": (512, with_alpha_1(unary("ox_silu_forward"))),
    "ox.Silu": (512, unary("ox_silu_forward")),
    "Gelu": (256, gelu),
    "ox.GeluGradient": (256, gelu_gradient),
    "ox.SwishGradient": (512, with_alpha_1(gradient("ox_silu_backward"))),
    "ox.ReluGradient": (0, gradient("ox_relu_backward")),
    "ox.TanhGradient": (2_000, gradient("ox_tanh_backward")),
    "ox.SigmoidGradient": (2_000, gradient("ox_sigmoid_backward")),
    "Softmax": (256, of_rows("ox_softmax")),
    "ox.SoftmaxGradient": (256, of_rows("ox_softmax_backward")),
    "LogSoftmax": (256, of_rows("ox_log_softmax")),
    "ox.LogSoftmaxGradient": (256, of_rows("ox_log_softmax_backward")),
    "ox.CrossEntropy": (0, cross_entropy),
    "ox.MeanCrossEntropy": (0, mean_cross_entropy),
    "ox.CrossEntropyGradient": (0, cross_entropy_gradient),
    "ox.MeanSmoothedCrossEntropy": (0, mean_smoothed_cross_entropy),
    "ox.SmoothedCrossEntropyGradient": (0, smoothed_cross_entropy_gradient),
    "ox.WeightedCrossEntropy": (0, weighted_cross_entropy),
    "ox.WeightedCrossEntropyGradient": (0, weighted_cross_entropy_gradient),
    "ox.SoftCrossEntropy": (64, soft_cross_entropy),
    "ox.SoftCrossEntropyGradient": (0, soft_cross_entropy_gradient),
    "LayerNormalization": (256, layer_norm),
    "ox.LayerNormalizationGradient": (256, layer_norm_gradient),
    "RMSNormalization": (256, rms_norm),
    "ox.RMSNormalizationGradient": (256, rms_norm_gradient),
    "GroupNormalization": (256, group_norm),
    "ox.GroupNormalizationGradient": (256, group_norm_gradient),
    "InstanceNormalization": (256, instance_norm),
    "BatchNormalization": (64, batch_norm),
    "ox.BatchNormalizationGradient": (1_000, batch_norm_gradient),
    "Relu": (2_000, unary("ox_relu_forward")),
    "Add": (8_000, binary("ox_add")),
    "Sub": (8_000, binary("ox_sub")),
    "Mul": (8_000, binary("ox_mul")),
    "Cast": (2_000, cast),
    "ox.PhiloxDropout": (512, dropout),
    "ReduceSum": (8_000, over_axes(SUM)),
    "ReduceMean": (8_000, over_axes(SUM, mean=True)),
    "ReduceL1": (8_000, over_axes(MAGNITUDES)),
    "ReduceL2": (4_000, over_axes(SQUARES, root=True)),
    "ReduceSumSquare": (4_000, over_axes(SQUARES)),
    "GlobalAveragePool": (4_000, over_images),
    "ReduceMax": (4_000, over_axes(MAX)),
    "ReduceMin": (4_000, over_axes(MIN)),
    "Where": (1_000, where),
    "Trilu": (500, triangle),
    "Gather": (256, gather),
    "ox.IndexAdd": (64, index_add),
    "MatMul": (64, matmul),
    "Gemm": (64, gemm),
    "ox.Linear": (0, linear),
    "ox.LinearGradient": (0, linear_gradient),
    "ox.BlockwiseAttention": (0, attention),
    "ox.BlockwiseAttentionGradient": (0, attention_gradient),
    "MaxPool": (0, max_pool),
    "ox.MaxPoolGradient": (0, max_pool_gradient),
    "ox.AveragePoolGradient": (0, average_pool_gradient),
    "Conv": (0, conv),
    "ConvTranspose": (0, conv_transpose),
    "ox.ConvWeights": (0, conv_weights),
}
# Of bfloat16 there are those of one statement for each element, and products.
OF_BFLOAT16 = frozenset(
    (
        "Exp", "Log", "Erf", "Tanh", "Sigmoid", "Softplus", "Swish", "ox.Silu", "Gelu", "ox.GeluGradient", "Relu",
        "ox.SwishGradient", "ox.ReluGradient", "ox.TanhGradient", "ox.SigmoidGradient", "Add", "Sub", "Mul", "Cast",
        "MatMul", "Gemm",
    )
)  # fmt: skip


@cache
def library() -> Library | None:
    """The kernels of this process with this machine's threads, None where there are none."""
    found = kernels()
    if found is not None:
        found.set_threads(threads())
        found.keep_memory(KEPT_MEMORY)
    return found


def set_threads(count: int) -> None:
    """The number of threads of the compiled kernels, where there are any; results do not depend on it."""
    found = library()
    if found is not None:
        found.set_threads(count)


def offer(op: Operator, arrays: list[Any]) -> Kernel | None:
    """A compiled kernel for this operator on these element types, where there is one and a library to run it."""
    name = f"{op.domain}.{op.name}" if op.domain else op.name
    entry, dtype = KERNELS.get(name), arrays[0].dtype if arrays else None
    usual, half = dtype in FIRST.get(op.name, (float32,)), dtype == bfloat16 and name in OF_BFLOAT16
    if entry is None or not (usual or half):
        return None
    numbers = bfloat16 if half else float32
    if not all(a is None or (isinstance(a, np.ndarray) and a.dtype in (numbers, *BESIDE)) for a in arrays):
        return None
    found = library()
    if found is None:
        return None
    return Kernel(found, *entry, next((other for each in _others() if (other := each(op, arrays)) is not None), None))


def _others() -> list[Any]:
    return [each for each in dispatch.accelerators if each is not offer]


dispatch.accelerators.insert(0, offer)
