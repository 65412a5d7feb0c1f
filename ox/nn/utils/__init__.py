"""Gradients, vectors, normalized weights and fused layers, under the names of `torch.nn.utils`."""

from ox.nn.utils import parametrizations, parametrize, prune, rnn, stateless
from ox.nn.utils.clip_grad import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from ox.nn.utils.convert_parameters import parameters_to_vector, vector_to_parameters
from ox.nn.utils.fusion import fuse_conv_bn_eval, fuse_conv_bn_weights, fuse_linear_bn_eval, fuse_linear_bn_weights
from ox.nn.utils.skip import skip_init
from ox.nn.utils.spectral_norm import remove_spectral_norm, spectral_norm
from ox.nn.utils.weight_norm import remove_weight_norm, weight_norm

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "fuse_conv_bn_eval",
    "fuse_conv_bn_weights",
    "fuse_linear_bn_eval",
    "fuse_linear_bn_weights",
    "get_total_norm",
    "parameters_to_vector",
    "parametrizations",
    "parametrize",
    "prune",
    "remove_spectral_norm",
    "remove_weight_norm",
    "rnn",
    "skip_init",
    "spectral_norm",
    "stateless",
    "vector_to_parameters",
    "weight_norm",
]
