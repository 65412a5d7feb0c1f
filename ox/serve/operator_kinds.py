"""The kinds of ONNX operators, and which inputs say how large a result is.

Generated from the definitions in ox.ops by scripts/operator_kinds.py; ox/core/kind.py says what a kind means.
"""

from __future__ import annotations

KINDS: dict[str, set[str]] = {
    "attention": {
        "Attention", "LinearAttention", "RotaryEmbedding",
    },
    "concatenation": {
        "Concat",
    },
    "control": {
        "If", "Loop", "Scan",
    },
    "conversion": {
        "Cast", "CastLike",
    },
    "convolution": {
        "CausalConvWithState", "Conv", "ConvTranspose", "DeformConv",
    },
    "creation": {
        "BlackmanWindow", "Constant", "ConstantOfShape", "EyeLike", "HammingWindow", "HannWindow",
        "MelWeightMatrix", "Range",
    },
    "cumulative": {
        "CumProd", "CumSum",
    },
    "factorization": {
        "Det",
    },
    "identity": {
        "Identity",
    },
    "image": {
        "AffineGrid", "Col2Im", "GridSample", "MaxRoiPool", "MaxUnpool", "NonMaxSuppression", "Resize",
        "RoiAlign", "Upsample",
    },
    "index": {
        "NonZero", "OneHot",
    },
    "integer_product": {
        "ConvInteger", "MatMulInteger", "QLinearConv", "QLinearMatMul",
    },
    "loss": {
        "NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss",
    },
    "normalization": {
        "BatchNormalization", "GroupNormalization", "Hardmax", "InstanceNormalization", "LRN",
        "LayerNormalization", "LogSoftmax", "LpNormalization", "MeanVarianceNormalization",
        "RMSNormalization", "Softmax",
    },
    "padding": {
        "CenterCropPad", "Pad", "Trilu",
    },
    "permutation": {
        "DepthToSpace", "ReverseSequence", "SpaceToDepth", "Transpose",
    },
    "pointwise": {
        "Abs", "Acos", "Acosh", "Add", "And", "Asin", "Asinh", "Atan", "Atanh", "BitCast", "BitShift",
        "BitwiseAnd", "BitwiseNot", "BitwiseOr", "BitwiseXor", "Ceil", "Celu", "Clip", "Cos", "Cosh", "Div",
        "Elu", "Equal", "Erf", "Exp", "Floor", "Gelu", "Greater", "GreaterOrEqual", "HardSigmoid",
        "HardSwish", "IsInf", "IsNaN", "LeakyRelu", "Less", "LessOrEqual", "Log", "Max", "Mean", "Min",
        "Mish", "Mod", "Mul", "Neg", "Not", "Or", "PRelu", "Pow", "Reciprocal", "Relu", "Round", "Selu",
        "Shrink", "Sigmoid", "Sign", "Sin", "Sinh", "Softplus", "Softsign", "Sqrt", "Sub", "Sum", "SwiGLU",
        "Swish", "Tan", "Tanh", "ThresholdedRelu", "Where", "Xor",
    },
    "pooling": {
        "AveragePool", "GlobalAveragePool", "GlobalLpPool", "GlobalMaxPool", "LpPool", "MaxPool",
    },
    "product": {
        "Einsum", "Gemm", "MatMul",
    },
    "quantization": {
        "DequantizeLinear", "DynamicQuantizeLinear", "QuantizeLinear",
    },
    "random": {
        "Bernoulli", "Dropout", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform",
        "RandomUniformLike",
    },
    "recurrent": {
        "GRU", "LSTM", "RNN",
    },
    "reduction": {
        "ArgMax", "ArgMin", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax",
        "ReduceMean", "ReduceMin", "ReduceProd", "ReduceSum", "ReduceSumSquare",
    },
    "repetition": {
        "Expand", "Tile",
    },
    "reshape": {
        "Flatten", "Reshape", "Squeeze", "Unsqueeze",
    },
    "scatter": {
        "Scatter", "ScatterElements", "ScatterND", "TensorScatter",
    },
    "selection": {
        "Compress", "Gather", "GatherElements", "GatherND", "Slice", "Split",
    },
    "sequence": {
        "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt",
        "SequenceConstruct", "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength",
        "SplitToSequence",
    },
    "signal": {
        "DFT", "STFT",
    },
    "size": {
        "Shape", "Size",
    },
    "sorting": {
        "TopK", "Unique",
    },
}  # fmt: skip
# operator -> the inputs whose values make its result as large as they say
SIZED_BY: dict[str, tuple[int, ...]] = {
    "AffineGrid": (1,),
    "BlackmanWindow": (0,),
    "CenterCropPad": (1,),
    "Col2Im": (1, 2),
    "ConstantOfShape": (0,),
    "DFT": (1,),
    "Expand": (1,),
    "HammingWindow": (0,),
    "HannWindow": (0,),
    "MaxUnpool": (2,),
    "MelWeightMatrix": (0, 1),
    "OneHot": (1,),
    "Pad": (1,),
    "Range": (0, 1, 2),
    "Resize": (2, 3),
    "Tile": (1,),
    "Upsample": (1,),
}  # fmt: skip
_KINDS = {name: kind for kind, names in KINDS.items() for name in names}


def kind_of(operator: str) -> str | None:
    """The kind of an ONNX operator by its name; None where ox does not have it."""
    return _KINDS.get(operator)
