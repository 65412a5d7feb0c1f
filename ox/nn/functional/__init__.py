"""The layers as functions, under the names of `torch.nn.functional`."""

from ox.nn.functional.activation import gelu, log_softmax, logsigmoid, relu, sigmoid, silu, softmax, softplus, tanh
from ox.nn.functional.attention import scaled_dot_product_attention
from ox.nn.functional.adaptive import adaptive_avg_pool2d
from ox.nn.functional.conv import conv2d
from ox.nn.functional.padding import pad
from ox.nn.functional.pool import avg_pool2d, max_pool2d
from ox.nn.functional.dropout import dropout
from ox.nn.functional.linear import embedding, linear
from ox.nn.functional.loss import binary_cross_entropy_with_logits, cross_entropy, l1_loss, mse_loss, nll_loss
from ox.nn.functional.norm import batch_norm, layer_norm

__all__ = [
    "adaptive_avg_pool2d",
    "avg_pool2d",
    "batch_norm",
    "binary_cross_entropy_with_logits",
    "conv2d",
    "cross_entropy",
    "dropout",
    "embedding",
    "gelu",
    "l1_loss",
    "layer_norm",
    "linear",
    "log_softmax",
    "logsigmoid",
    "max_pool2d",
    "mse_loss",
    "nll_loss",
    "pad",
    "relu",
    "scaled_dot_product_attention",
    "sigmoid",
    "silu",
    "softmax",
    "softplus",
    "tanh",
]
