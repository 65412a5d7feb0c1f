"""Which calls the compiled kernels of `ox.kernels` run on the CPU: float32, contiguous, from a size on.

Below the sizes here a NumPy kernel is as fast: a call into the library costs about 2 µs.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import prod
from typing import Any

import numpy as np

from ox.devices import dispatch
from ox.devices.compiled_attention import attention, attention_gradient
from ox.devices.compiled_conv import conv, conv_transpose, conv_weights, max_pool, max_pool_gradient
from ox.devices.compiled_matmul import gemm, matmul
from ox.devices.machine import threads
from ox.devices.operator import Operator
from ox.dtypes import float32, int32, int64
from ox.kernels import Library, address, kernels

Run = Callable[[Library, list[Any], dict[str, Any]], Any]
KEPT_MEMORY = 512 << 20  # bytes of freed arrays that stay with the process for the next step
PARTS = 16  # pieces in which gradients of weights are summed, whatever the threads


class Kernel:
    """The offer of a compiled kernel for an operator; see `ox.devices.dispatch.Accelerated`."""

    __slots__ = ("_fallback", "_library", "_run", "_smallest")

    def __init__(self, library: Library, smallest: int, run: Run, fallback: dispatch.Accelerated | None) -> None:
        self._library, self._smallest, self._run, self._fallback = library, smallest, run, fallback

    def worthwhile(self, arrays: list[Any]) -> bool:
        """Whether the first array is large enough for it."""
        return bool(arrays[0].size >= self._smallest)

    def run(self, op: Operator, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        """The outputs; what the kernel cannot do, the next best executor does."""
        result = self._run(self._library, arrays, attributes)
        if result is not None:
            return result
        if self._fallback is not None and self._fallback.worthwhile(arrays):
            return self._fallback.run(op, arrays, attributes)
        return op.kernel(np, *arrays, **attributes)


def unary(name: str) -> Run:
    """A kernel of one input and one output of its shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        (x,) = arrays
        y = np.empty_like(x)
        if y.strides != x.strides:  # not dense: a transposed array is, and its output lies as it does
            return None
        getattr(library, name)(x.size, address(x), address(y))
        return y

    return run


def gradient(name: str) -> Run:
    """A kernel of an output's gradient and a saved array of the same shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        g, saved = arrays
        if g.shape != saved.shape:
            return None
        if saved.flags.c_contiguous:
            g = np.ascontiguousarray(g)
        result = np.empty_like(saved)
        if not result.strides == saved.strides == g.strides:
            return None
        getattr(library, name)(g.size, address(g), address(saved), address(result))
        return result

    return run


def binary(name: str) -> Run:
    """A kernel of two inputs of one shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        a, b = arrays
        if a.shape != b.shape or not (a.flags.c_contiguous and b.flags.c_contiguous):
            return None
        y = np.empty_like(a)
        getattr(library, name)(a.size, address(a), address(b), address(y))
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


GELU = {"none": unary("ox_gelu_forward"), "tanh": unary("ox_tanh_gelu_forward")}
GELU_GRADIENT = {"none": gradient("ox_gelu_backward"), "tanh": gradient("ox_tanh_gelu_backward")}


def of_rows(name: str, inputs: int) -> Run:
    """A kernel along the last axis, of one or two arrays of one shape."""

    def run(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
        x = arrays[0]
        if attributes.get("axis", -1) not in (-1, x.ndim - 1) or not x.size:
            return None
        if not all(a.flags.c_contiguous and a.shape == x.shape for a in arrays):
            return None
        y, columns = np.empty_like(x), x.shape[-1]
        getattr(library, name)(x.size // columns, *[address(a) for a in arrays], address(y), columns)
        return y

    return run


def cross_entropy(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropy."""
    scores, target = arrays
    rows, classes = scores.shape
    if not scores.size or target.shape != (rows,) or not scores.flags.c_contiguous:
        return None
    target = np.ascontiguousarray(target, np.int64)
    losses, logs = np.empty(rows, np.float32), np.empty(rows, np.float32)
    library.ox_cross_entropy(
        rows, address(scores), address(target), address(losses), address(logs), attributes["ignore_index"], classes
    )
    return losses if attributes.get("outputs") == 1 else (losses, logs)


def cross_entropy_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """CrossEntropyGradient."""
    g, scores, target, logs = arrays
    rows, classes = scores.shape
    if not scores.size or any(a.shape != (rows,) for a in (g, target, logs)):
        return None
    if not (scores.flags.c_contiguous and logs.flags.c_contiguous):
        return None
    g, target = np.ascontiguousarray(g), np.ascontiguousarray(target, np.int64)
    result = np.empty_like(scores)
    library.ox_cross_entropy_backward(
        rows, address(g), address(scores), address(target), address(logs), address(result),
        attributes["ignore_index"], classes,
    )  # fmt: skip
    return result


def gather(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """Gather of whole rows: along the first axis."""
    rows, places = arrays
    if attributes.get("axis", 0) not in (0, -rows.ndim) or not rows.size or not places.size:
        return None
    if not rows.flags.c_contiguous or places.min() < -len(rows) or places.max() >= len(rows):
        return None
    places = np.ascontiguousarray(places, np.int64)
    result = np.empty((*places.shape, *rows.shape[1:]), np.float32)
    library.ox_take_rows(
        len(rows), places.size, rows.size // len(rows), address(places), address(rows), address(result)
    )
    return result


def index_add(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """IndexAdd."""
    rows, places = arrays
    if not rows.size or places.shape != rows.shape[:1] or not rows.flags.c_contiguous:
        return None
    places = np.ascontiguousarray(places, np.int64)
    result = np.empty((attributes["size"], *rows.shape[1:]), np.float32)
    library.ox_index_add(
        len(result), len(rows), rows.size // len(rows), address(places), address(rows), address(result)
    )
    return result


def _inner(x: Any, axis: int) -> tuple[tuple[int, ...], int]:
    """The shape of the dimensions from an axis on, and the number of elements."""
    shape = x.shape[axis % x.ndim :]
    return shape, prod(shape)


def layer_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalization with a scale and bias of the normalized shape."""
    x, scale, *rest = arrays
    bias = rest[0] if rest else None
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or attributes.get("stash_type", 1) != 1:
        return None
    if not (x.flags.c_contiguous and scale.flags.c_contiguous):
        return None
    if bias is not None and not (bias.shape == inner and bias.flags.c_contiguous):
        return None
    rows, y = x.size // columns, np.empty_like(x)
    statistics = (*x.shape[: x.ndim - len(inner)], *[1] * len(inner))
    mean, inverse = np.empty(statistics, np.float32), np.empty(statistics, np.float32)
    library.ox_layer_norm(
        rows, address(x), address(scale), 0 if bias is None else address(bias), address(y), address(mean),
        address(inverse), attributes.get("epsilon", 1e-5), columns,
    )  # fmt: skip
    return y if attributes.get("outputs", 1) == 1 else (y, mean, inverse)


def layer_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """LayerNormalizationGradient."""
    g, x, scale, mean, inverse = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or g.shape != x.shape:
        return None
    if not all(a.flags.c_contiguous for a in arrays):
        return None
    rows = x.size // columns
    parts = max(1, min(PARTS, rows // 8))
    result, sums = np.empty_like(x), np.empty((2, parts, columns), np.float32)
    library.ox_layer_norm_backward(
        parts, address(g), address(x), address(scale), address(mean), address(inverse), address(result),
        address(sums), address(sums) + 4 * parts * columns, rows, columns,
    )  # fmt: skip
    to_scale, to_bias = sums.sum(axis=1)
    return result, to_scale.reshape(inner), to_bias.reshape(inner)


def rms_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalization with a scale of the normalized shape."""
    x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not columns or scale.shape != inner or attributes.get("stash_type", 1) != 1:
        return None
    if not (x.flags.c_contiguous and scale.flags.c_contiguous):
        return None
    rows, y = x.size // columns, np.empty_like(x)
    inverse = np.empty(rows, np.float32)
    library.ox_rms_norm(
        rows, address(x), address(scale), address(y), address(inverse), attributes.get("epsilon", 1e-5), columns
    )
    return y


def rms_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """RMSNormalizationGradient."""
    g, x, scale = arrays
    inner, columns = _inner(x, attributes.get("axis", -1))
    if not x.size or scale.shape != inner or g.shape != x.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    rows = x.size // columns
    parts = max(1, min(PARTS, rows // 8))
    result, sums = np.empty_like(x), np.empty((parts, columns), np.float32)
    library.ox_rms_norm_backward(
        parts, address(g), address(x), address(scale), address(result), address(sums), attributes.get("epsilon", 1e-5),
        rows, columns,
    )  # fmt: skip
    return result, sums.sum(axis=0).reshape(inner)


def group_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """GroupNormalization of (N, C, ...)."""
    return _group_norm(library, arrays, attributes, attributes["num_groups"])


def instance_norm(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """InstanceNormalization of (N, C, ...): a group is a channel."""
    return _group_norm(library, arrays, attributes, arrays[0].shape[1] if arrays[0].ndim > 1 else 0)


def _group_norm(library: Library, arrays: list[Any], attributes: dict[str, Any], groups: int) -> Any:
    x, scale, bias = arrays
    if x.ndim < 2 or not x.size or groups < 1 or x.shape[1] % groups or scale.shape != x.shape[1:2]:
        return None
    if bias.shape != scale.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    rows, channels, size = x.shape[0] * groups, x.shape[1] // groups, prod(x.shape[2:])
    y, mean, inverse = np.empty_like(x), np.empty(rows, np.float32), np.empty(rows, np.float32)
    library.ox_group_norm(
        rows, address(x), address(scale), address(bias), address(y), address(mean), address(inverse),
        attributes.get("epsilon", 1e-5), groups, channels, size,
    )  # fmt: skip
    return y


def group_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """GroupNormalizationGradient of (N, C, ...)."""
    g, x, scale = arrays
    if x.ndim < 2 or not x.size or g.shape != x.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    samples, planes, groups = x.shape[0], x.shape[1], attributes["num_groups"]
    result, sums = np.empty_like(x), np.empty((2, samples, planes), np.float32)
    library.ox_group_norm_backward(
        samples * groups, address(g), address(x), address(scale), address(result), address(sums),
        address(sums) + 4 * samples * planes, attributes.get("epsilon", 1e-5), groups, planes // groups,
        prod(x.shape[2:]),
    )  # fmt: skip
    to_scale, to_bias = sums.sum(axis=1)
    return result, to_scale, to_bias


def batch_norm_gradient(library: Library, arrays: list[Any], attributes: dict[str, Any]) -> Any:
    """BatchNormalizationGradient of (N, C, ...)."""
    g, x, scale = arrays
    if x.ndim < 2 or not x.size or g.shape != x.shape or not all(a.flags.c_contiguous for a in arrays):
        return None
    samples, channels, size = x.shape[0], x.shape[1], prod(x.shape[2:])
    result = np.empty_like(x)
    to_scale, to_bias = np.empty(channels, np.float32), np.empty(channels, np.float32)
    library.ox_batch_norm_backward(
        channels, address(g), address(x), address(scale), address(result), address(to_scale), address(to_bias),
        attributes.get("epsilon", 1e-5), samples, size,
    )  # fmt: skip
    return result, to_scale, to_bias


TAKEN = (float32, np.dtype(bool), int32, int64)  # masks are bool, indices and classes integers
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
    "ox.ReluGradient": (8_000, gradient("ox_relu_backward")),
    "ox.TanhGradient": (2_000, gradient("ox_tanh_backward")),
    "ox.SigmoidGradient": (2_000, gradient("ox_sigmoid_backward")),
    "Softmax": (256, of_rows("ox_softmax", 1)),
    "ox.SoftmaxGradient": (256, of_rows("ox_softmax_backward", 2)),
    "LogSoftmax": (256, of_rows("ox_log_softmax", 1)),
    "ox.LogSoftmaxGradient": (256, of_rows("ox_log_softmax_backward", 2)),
    "ox.CrossEntropy": (64, cross_entropy),
    "ox.CrossEntropyGradient": (0, cross_entropy_gradient),
    "LayerNormalization": (256, layer_norm),
    "ox.LayerNormalizationGradient": (256, layer_norm_gradient),
    "RMSNormalization": (256, rms_norm),
    "ox.RMSNormalizationGradient": (256, rms_norm_gradient),
    "GroupNormalization": (256, group_norm),
    "ox.GroupNormalizationGradient": (256, group_norm_gradient),
    "InstanceNormalization": (256, instance_norm),
    "ox.BatchNormalizationGradient": (1_000, batch_norm_gradient),
    "Relu": (8_000, unary("ox_relu_forward")),
    "Add": (8_000, binary("ox_add")),
    "Sub": (8_000, binary("ox_sub")),
    "Mul": (8_000, binary("ox_mul")),
    "Gather": (256, gather),
    "ox.IndexAdd": (64, index_add),
    "MatMul": (64, matmul),
    "Gemm": (64, gemm),
    "ox.BlockwiseAttention": (0, attention),
    "ox.BlockwiseAttentionGradient": (0, attention_gradient),
    "MaxPool": (0, max_pool),
    "ox.MaxPoolGradient": (0, max_pool_gradient),
    "Conv": (0, conv),
    "ConvTranspose": (0, conv_transpose),
    "ox.ConvWeights": (0, conv_weights),
}


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
    entry = KERNELS.get(f"{op.domain}.{op.name}" if op.domain else op.name)
    if entry is None or not all(a is None or (isinstance(a, np.ndarray) and a.dtype in TAKEN) for a in arrays):
        return None
    if arrays[0].dtype != float32:
        return None
    found = library()
    if found is None:
        return None
    return Kernel(found, *entry, next((other for each in _others() if (other := each(op, arrays)) is not None), None))


def _others() -> list[Any]:
    return [each for each in dispatch.accelerators if each is not offer]


dispatch.accelerators.insert(0, offer)
