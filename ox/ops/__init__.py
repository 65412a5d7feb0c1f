"""The operators: ONNX's names, signatures and meanings, to be called on tensors."""

from ox.ops import factor as factor
from ox.ops import matrix as matrix
from ox.ops import recurrent_gradient as recurrent_gradient
from ox.ops.activation import Erf, Gelu, Hardmax, LogSoftmax, Relu, Sigmoid, Softmax, Tanh
from ox.ops.arithmetic import (
    Abs,
    Add,
    Clip,
    Div,
    Exp,
    Log,
    Max,
    Mean,
    Min,
    Mod,
    Mul,
    Neg,
    Pow,
    Reciprocal,
    Sign,
    Sqrt,
    Sub,
    Sum,
)
from ox.ops.attention import Attention
from ox.ops.bernoulli_loss import BinaryCrossEntropy
from ox.ops.blocks import CenterCropPad, DepthToSpace, ReverseSequence, SpaceToDepth, Tile
from ox.ops.branch import If
from ox.ops.causal_conv import CausalConvWithState
from ox.ops.chance import Bernoulli, Multinomial, RandomNormalLike, RandomUniformLike
from ox.ops.choose import Compress, NonZero, OneHot
from ox.ops.comparison import (
    And,
    BitShift,
    BitwiseAnd,
    BitwiseNot,
    BitwiseOr,
    BitwiseXor,
    Equal,
    Greater,
    GreaterOrEqual,
    IsInf,
    IsNaN,
    Less,
    LessOrEqual,
    Not,
    Or,
    Where,
    Xor,
)
from ox.ops.conv import Conv, ConvTranspose
from ox.ops.cumulative import CumProd, CumSum, CumulativeArgMax, LogCumSumExp
from ox.ops.deform import DeformConv
from ox.ops.det import Det
from ox.ops.detection import NonMaxSuppression
from ox.ops.dft import DFT
from ox.ops.divisor import Gcd
from ox.ops.dropout import Dropout
from ox.ops.einsum import Einsum
from ox.ops.gamma import Digamma, Lgamma, Polygamma
from ox.ops.gate import HardSigmoid, HardSwish, Mish, Silu, Softplus, Softsign, SwiGLU, Swish
from ox.ops.gauss import Erfc, Erfcx, Erfinv, Ndtri
from ox.ops.global_pool import GlobalAveragePool, GlobalLpPool, GlobalMaxPool
from ox.ops.grid import AffineGrid, GridSample
from ox.ops.group_norm import GroupNormalization, InstanceNormalization, MeanVarianceNormalization
from ox.ops.incomplete_gamma import Gammainc, Gammaincc
from ox.ops.index import Gather, GatherElements, ScatterElements, Slice
from ox.ops.index_nd import GatherND, Scatter, ScatterND, TensorScatter
from ox.ops.integer import ConvInteger, MatMulInteger, QLinearConv, QLinearMatMul
from ox.ops.linear import Gemm, MatMul
from ox.ops.linear_attention import LinearAttention
from ox.ops.loop import Loop, Scan
from ox.ops.loss import NegativeLogLikelihoodLoss, SoftmaxCrossEntropyLoss
from ox.ops.lp_pool import LpPool
from ox.ops.near_zero import Expm1, Log1p
from ox.ops.next_after import NextAfter
from ox.ops.norm import BatchNormalization, LayerNormalization
from ox.ops.pad import Pad
from ox.ops.plane import Atan2, Hypot, SignBit
from ox.ops.pool import AveragePool, MaxPool
from ox.ops.quantize import DequantizeLinear, DynamicQuantizeLinear, QuantizeLinear
from ox.ops.random import Philox, RandomNormal, RandomUniform
from ox.ops.rectify import Celu, Elu, LeakyRelu, PRelu, Selu, Shrink, ThresholdedRelu
from ox.ops.recurrent import GRU, LSTM, RNN
from ox.ops.reduce import ArgMax, ArgMin, ReduceMax, ReduceMean, ReduceMin, ReduceProd, ReduceSum
from ox.ops.reduce_log import ReduceL1, ReduceL2, ReduceLogSum, ReduceLogSumExp, ReduceSumSquare
from ox.ops.resize import Resize, Upsample
from ox.ops.roi import MaxRoiPool, RoiAlign
from ox.ops.rotary import RotaryEmbedding
from ox.ops.rounding import Ceil, Floor, Round
from ox.ops.scale_norm import LRN, LpNormalization, RMSNormalization
from ox.ops.scaled_attention import ScaledAttention
from ox.ops.search import SearchSorted
from ox.ops.sequence import (
    ConcatFromSequence,
    Optional,
    OptionalGetElement,
    OptionalHasElement,
    SequenceAt,
    SequenceConstruct,
    SequenceEmpty,
    SequenceErase,
    SequenceInsert,
    SequenceLength,
    SplitToSequence,
)
from ox.ops.shape import Concat, Expand, Flatten, Reshape, Split, Squeeze, Transpose, Unsqueeze
from ox.ops.signal import STFT, BlackmanWindow, HammingWindow, HannWindow, MelWeightMatrix
from ox.ops.sort import TopK, Unique
from ox.ops.triangle import EyeLike, Trilu
from ox.ops.trigonometry import Acos, Acosh, Asin, Asinh, Atan, Atanh, Cos, Cosh, Sin, Sinh, Tan
from ox.ops.unpool import Col2Im, MaxUnpool
from ox.ops.values import BitCast, Cast, CastLike, Constant, ConstantOfShape, Identity, Range, Shape, Size

__all__ = [
    "DFT",
    "GRU",
    "LRN",
    "LSTM",
    "RNN",
    "STFT",
    "Abs",
    "Acos",
    "Acosh",
    "Add",
    "AffineGrid",
    "And",
    "ArgMax",
    "ArgMin",
    "Asin",
    "Asinh",
    "Atan",
    "Atan2",
    "Atanh",
    "Attention",
    "AveragePool",
    "BatchNormalization",
    "Bernoulli",
    "BinaryCrossEntropy",
    "BitCast",
    "BitShift",
    "BitwiseAnd",
    "BitwiseNot",
    "BitwiseOr",
    "BitwiseXor",
    "BlackmanWindow",
    "Cast",
    "CastLike",
    "CausalConvWithState",
    "Ceil",
    "Celu",
    "CenterCropPad",
    "Clip",
    "Col2Im",
    "Compress",
    "Concat",
    "ConcatFromSequence",
    "Constant",
    "ConstantOfShape",
    "Conv",
    "ConvInteger",
    "ConvTranspose",
    "Cos",
    "Cosh",
    "CumProd",
    "CumSum",
    "CumulativeArgMax",
    "DeformConv",
    "DepthToSpace",
    "DequantizeLinear",
    "Det",
    "Digamma",
    "Div",
    "Dropout",
    "DynamicQuantizeLinear",
    "Einsum",
    "Elu",
    "Equal",
    "Erf",
    "Erfc",
    "Erfcx",
    "Erfinv",
    "Exp",
    "Expand",
    "Expm1",
    "EyeLike",
    "Flatten",
    "Floor",
    "Gammainc",
    "Gammaincc",
    "Gather",
    "GatherElements",
    "GatherND",
    "Gcd",
    "Gelu",
    "Gemm",
    "GlobalAveragePool",
    "GlobalLpPool",
    "GlobalMaxPool",
    "Greater",
    "GreaterOrEqual",
    "GridSample",
    "GroupNormalization",
    "HammingWindow",
    "HannWindow",
    "HardSigmoid",
    "HardSwish",
    "Hardmax",
    "Hypot",
    "Identity",
    "If",
    "InstanceNormalization",
    "IsInf",
    "IsNaN",
    "LayerNormalization",
    "LeakyRelu",
    "Less",
    "LessOrEqual",
    "Lgamma",
    "LinearAttention",
    "Log",
    "Log1p",
    "LogCumSumExp",
    "LogSoftmax",
    "Loop",
    "LpNormalization",
    "LpPool",
    "MatMul",
    "MatMulInteger",
    "Max",
    "MaxPool",
    "MaxRoiPool",
    "MaxUnpool",
    "Mean",
    "MeanVarianceNormalization",
    "MelWeightMatrix",
    "Min",
    "Mish",
    "Mod",
    "Mul",
    "Multinomial",
    "Ndtri",
    "Neg",
    "NegativeLogLikelihoodLoss",
    "NextAfter",
    "NonMaxSuppression",
    "NonZero",
    "Not",
    "OneHot",
    "Optional",
    "OptionalGetElement",
    "OptionalHasElement",
    "Or",
    "PRelu",
    "Pad",
    "Philox",
    "Polygamma",
    "Pow",
    "QLinearConv",
    "QLinearMatMul",
    "QuantizeLinear",
    "RMSNormalization",
    "RandomNormal",
    "RandomNormalLike",
    "RandomUniform",
    "RandomUniformLike",
    "Range",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceLogSum",
    "ReduceLogSumExp",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReduceSumSquare",
    "Relu",
    "Reshape",
    "Resize",
    "ReverseSequence",
    "RoiAlign",
    "RotaryEmbedding",
    "Round",
    "ScaledAttention",
    "Scan",
    "Scatter",
    "ScatterElements",
    "ScatterND",
    "SearchSorted",
    "Selu",
    "SequenceAt",
    "SequenceConstruct",
    "SequenceEmpty",
    "SequenceErase",
    "SequenceInsert",
    "SequenceLength",
    "Shape",
    "Shrink",
    "Sigmoid",
    "Sign",
    "SignBit",
    "Silu",
    "Sin",
    "Sinh",
    "Size",
    "Slice",
    "Softmax",
    "SoftmaxCrossEntropyLoss",
    "Softplus",
    "Softsign",
    "SpaceToDepth",
    "Split",
    "SplitToSequence",
    "Sqrt",
    "Squeeze",
    "Sub",
    "Sum",
    "SwiGLU",
    "Swish",
    "Tan",
    "Tanh",
    "TensorScatter",
    "ThresholdedRelu",
    "Tile",
    "TopK",
    "Transpose",
    "Trilu",
    "Unique",
    "Unsqueeze",
    "Upsample",
    "Where",
    "Xor",
]  # fmt: skip
