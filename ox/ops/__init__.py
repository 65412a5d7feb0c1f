"""The operators: ONNX's names, signatures and meanings, to be called on tensors."""

from ox.ops.activation import Erf, Gelu, LogSoftmax, Relu, Sigmoid, Softmax, Tanh
from ox.ops.arithmetic import Abs, Add, Clip, Cos, Div, Exp, Floor, Log, Max, Min, Mod, Mul, Neg, Pow, Reciprocal
from ox.ops.arithmetic import Sign, Sin, Sqrt, Sub
from ox.ops.comparison import And, BitShift, BitwiseAnd, BitwiseXor, Equal, Greater, GreaterOrEqual, Less, LessOrEqual
from ox.ops.comparison import Not, Or, Where
from ox.ops.linear import Gemm, MatMul
from ox.ops.reduce import ArgMax, ReduceMax, ReduceMean, ReduceSum

__all__ = [
    "Abs", "Add", "And", "ArgMax", "BitShift", "BitwiseAnd", "BitwiseXor", "Clip", "Cos", "Div", "Equal", "Erf", "Exp",
    "Floor", "Gelu", "Gemm", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Log", "LogSoftmax", "MatMul", "Max",
    "Min", "Mod", "Mul", "Neg", "Not", "Or", "Pow", "Reciprocal", "ReduceMax", "ReduceMean", "ReduceSum", "Relu",
    "Sigmoid", "Sign", "Sin", "Softmax", "Sqrt", "Sub", "Tanh", "Where",
]  # fmt: skip
