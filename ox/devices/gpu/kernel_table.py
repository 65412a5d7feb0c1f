"""Which calls run on kernels of ours on a GPU, of one launch or a few. CuPy runs the others."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

from ox.devices.gpu import attention as cuda_attention
from ox.devices.gpu import batch_norm as cuda_batch_norm
from ox.devices.gpu import conv as cuda_conv
from ox.devices.gpu import elementwise as cuda_elements
from ox.devices.gpu import index as cuda_index
from ox.devices.gpu import matmul as cuda_products
from ox.devices.gpu import pooling as cuda_pool
from ox.devices.gpu import rowwise as cuda_rows
from ox.devices.gpu.elementwise import binary, by_approximation, pointwise, with_alpha_1
from ox.devices.gpu.kernels import are_on
from ox.devices.gpu.multi_tensor import is_on_device
from ox.devices.gpu.rowwise import of_rows
from ox.devices.operator import Operator

Run = Callable[[Any, list[Any], dict[str, Any]], Any]  # xp, arrays, attributes; None: it cannot do this call

# By operator, those of the domain "ox" with it
KERNELS: dict[str, Run] = {
    "Add": binary("ox_add"),
    "Sub": binary("ox_sub"),
    "Mul": binary("ox_mul"),
    "Erf": pointwise("ox_erf_forward"),
    "Relu": pointwise("ox_relu_forward"),
    "Sigmoid": pointwise("ox_sigmoid_forward"),
    "Softplus": pointwise("ox_softplus_forward"),
    "Swish": with_alpha_1("ox_silu_forward"),
    "ox.Silu": pointwise("ox_silu_forward"),
    "Gelu": by_approximation("ox_gelu_forward", "ox_tanh_gelu_forward"),
    "ox.GeluGradient": by_approximation("ox_gelu_backward", "ox_tanh_gelu_backward"),
    "ox.SwishGradient": with_alpha_1("ox_silu_backward"),
    "ox.ReluGradient": pointwise("ox_relu_backward"),
    "ox.TanhGradient": pointwise("ox_tanh_backward"),
    "ox.SigmoidGradient": pointwise("ox_sigmoid_backward"),
    "Softmax": of_rows("ox_device_softmax"),
    "ox.SoftmaxGradient": of_rows("ox_device_softmax_backward"),
    "LogSoftmax": of_rows("ox_device_log_softmax"),
    "ox.LogSoftmaxGradient": of_rows("ox_device_log_softmax_backward"),
    "LayerNormalization": cuda_rows.layer_norm,
    "ox.LayerNormalizationGradient": cuda_rows.layer_norm_gradient,
    "RMSNormalization": cuda_rows.rms_norm,
    "ox.RMSNormalizationGradient": cuda_rows.rms_norm_gradient,
    "ox.CrossEntropy": cuda_rows.weighted_cross_entropy,
    "ox.MeanCrossEntropy": cuda_rows.mean_cross_entropy,
    "ox.CrossEntropyGradient": cuda_rows.cross_entropy_gradient,
    "ox.MeanSmoothedCrossEntropy": cuda_rows.mean_cross_entropy,
    "ox.SmoothedCrossEntropyGradient": cuda_rows.cross_entropy_gradient,
    "ox.WeightedCrossEntropy": cuda_rows.weighted_cross_entropy,
    "ox.WeightedCrossEntropyGradient": cuda_rows.weighted_cross_entropy_gradient,
    "ox.PhiloxDropout": cuda_elements.dropout,
    "ox.RandomUniform": cuda_elements.device_random("ox_uniform_by_device_key"),
    "ox.RandomNormal": cuda_elements.device_random("ox_normal_by_device_key"),
    "MatMul": cuda_products.matmul,
    "Gemm": cuda_products.gemm,
    "ox.ScaledAttention": cuda_products.scaled_attention,
    "ox.ScaledAttentionGradient": cuda_products.scaled_attention_gradient,
    "Conv": cuda_conv.conv,
    "ConvTranspose": cuda_conv.conv_transpose,
    "ox.ConvWeights": cuda_conv.conv_weights,
    "Col2Im": cuda_conv.fold,
    "MaxPool": cuda_pool.max_pool,
    "ox.MaxPoolGradient": cuda_pool.max_pool_gradient,
    "AveragePool": cuda_pool.average_pool,
    "ox.AveragePoolGradient": cuda_pool.average_pool_gradient,
    "BatchNormalization": cuda_batch_norm.batch_norm,
    "ox.BatchNormalizationGradient": cuda_batch_norm.batch_norm_gradient,
    "ox.RunningStatistics": cuda_batch_norm.running_statistics,
    "ox.BlockwiseAttention": cuda_attention.attention,
    "ox.BlockwiseAttentionGradient": cuda_attention.attention_gradient,
    "Gather": cuda_index.gather,
    "GatherElements": cuda_index.gather_elements,
    "ScatterElements": cuda_index.scatter_elements,
    "GatherND": cuda_index.gather_nd,
    "ScatterND": cuda_index.scatter_nd,
    "ox.InRange": cuda_index.in_range,
    "ox.IndexAdd": cuda_index.index_add,
}
# Which take numbers of the host
HOST_NUMBERS = frozenset(
    (
        "ox.PhiloxDropout", "ox.RandomUniform", "ox.RandomNormal", "ox.RunningStatistics", "Col2Im",
        "ox.BlockwiseAttention", "ox.BlockwiseAttentionGradient",
    )
)  # fmt: skip


@cache
def _kernel(op: Operator) -> tuple[Run | None, bool]:
    """The kernel of an operator, and whether it takes numbers of the host."""
    name = f"{op.domain}.{op.name}" if op.domain else op.name
    return KERNELS.get(name) if are_on() else None, name in HOST_NUMBERS


def run(op: Operator, xp: Any, arrays: list[Any], attributes: dict[str, Any], numbers: list[int]) -> Any:
    """The outputs by a kernel; None where there is none for this call.

    Args:
        xp: CuPy, or what stands for it.
        arrays: on one GPU, but for host inputs and `numbers`, the places of arrays of one element on the host.
    """
    kernel, takes_numbers = _kernel(op)
    if kernel is None or (numbers and not takes_numbers) or not is_on_device(arrays[0]):
        return None
    return kernel(xp, arrays, attributes)
