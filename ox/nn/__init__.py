"""Modules, under the names of `torch.nn`."""

from ox.nn import functional, init, utils
from ox.nn.activation import GELU, Dropout, LogSoftmax, ReLU, Sigmoid, SiLU, Softmax, Tanh
from ox.nn.attention import MultiheadAttention
from ox.nn.containers import ModuleDict, ModuleList, Sequential
from ox.nn.conv import AdaptiveAvgPool2d, AvgPool2d, Conv2d, MaxPool2d
from ox.nn.linear import Embedding, Flatten, Identity, LazyLinear, Linear, Unflatten
from ox.nn.loss import BCEWithLogitsLoss, CrossEntropyLoss, L1Loss, MSELoss, NLLLoss
from ox.nn.module import Module
from ox.nn.norm import BatchNorm1d, BatchNorm2d, LayerNorm
from ox.nn.parameter import Buffer, Parameter
from ox.nn.transformer import TransformerEncoder, TransformerEncoderLayer
from ox.nn.uninitialized import UninitializedBuffer, UninitializedParameter

__all__ = [
    "GELU",
    "AdaptiveAvgPool2d",
    "AvgPool2d",
    "BCEWithLogitsLoss",
    "BatchNorm1d",
    "BatchNorm2d",
    "Buffer",
    "Conv2d",
    "CrossEntropyLoss",
    "Dropout",
    "Embedding",
    "Flatten",
    "Identity",
    "L1Loss",
    "LayerNorm",
    "LazyLinear",
    "Linear",
    "LogSoftmax",
    "MSELoss",
    "MaxPool2d",
    "Module",
    "ModuleDict",
    "ModuleList",
    "MultiheadAttention",
    "NLLLoss",
    "Parameter",
    "ReLU",
    "Sequential",
    "SiLU",
    "Sigmoid",
    "Softmax",
    "Tanh",
    "TransformerEncoder",
    "TransformerEncoderLayer",
    "Unflatten",
    "UninitializedBuffer",
    "UninitializedParameter",
    "functional",
    "init",
    "utils",
]
