"""The operators: ONNX's names, signatures and meanings, to be called on tensors."""

from ox.ops.activation import Erf, Gelu, LogSoftmax, Relu, Sigmoid, Softmax, Tanh
from ox.ops.arithmetic import Abs, Add, Clip, Cos, Div, Exp, Floor, Log, Max, Min, Mod, Mul, Neg, Pow, Reciprocal
from ox.ops.arithmetic import Sign, Sin, Sqrt, Sub
from ox.ops.comparison import And, BitShift, BitwiseAnd, BitwiseXor, Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from ox.ops.comparison import Not, Or, Where
from ox.ops.conv import Conv, ConvTranspose
from ox.ops.index import Gather, GatherElements, ScatterElements, Slice
from ox.ops.linear import Gemm, MatMul
from ox.ops.norm import BatchNormalization, LayerNormalization
from ox.ops.pad import Pad
from ox.ops.pool import AveragePool, GlobalAveragePool, MaxPool
from ox.ops.random import Philox, RandomNormal, RandomUniform
from ox.ops.reduce import ArgMax, ReduceMax, ReduceMean, ReduceSum
from ox.ops.shape import Concat, Expand, Flatten, Reshape, Split, Squeeze, Transpose, Unsqueeze
from ox.ops.values import Cast, ConstantOfShape, Identity, Range, Shape, Size

__all__ = [
    "Abs", "Add", "And", "ArgMax", "AveragePool", "BatchNormalization", "BitShift", "BitwiseAnd", "BitwiseXor", "Cast", "Clip", "Concat", "Conv", "ConvTranspose",
    "ConstantOfShape", "Cos", "Div", "Equal", "Erf", "Exp", "Expand", "Flatten", "Floor", "Gather", "GatherElements",
    "Gelu", "Gemm", "GlobalAveragePool", "Greater", "GreaterOrEqual", "Identity", "LayerNormalization", "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul",
    "Max", "MaxPool", "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pad", "Philox", "Pow", "RandomNormal", "RandomUniform", "Range", "Reciprocal", "ReduceMax", "ReduceMean",
    "ReduceSum", "Relu", "Reshape", "ScatterElements", "Shape", "Sigmoid", "Sign", "Sin", "Size", "Slice", "Softmax",
    "Split", "Sqrt", "Squeeze", "Sub", "Tanh", "Transpose", "Unsqueeze", "Where",
]  # fmt: skip
