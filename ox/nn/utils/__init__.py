"""Gradients, vectors, normalised weights and fused layers, under the names of `torch.nn.utils`."""

from ox.nn.utils import rnn
from ox.nn.utils.clip import clip_grad_norm_, clip_grad_value_, clip_grads_with_norm_, get_total_norm
from ox.nn.utils.vector import parameters_to_vector, vector_to_parameters

__all__ = [
    "clip_grad_norm_",
    "clip_grad_value_",
    "clip_grads_with_norm_",
    "get_total_norm",
    "parameters_to_vector",
    "rnn",
    "vector_to_parameters",
]
