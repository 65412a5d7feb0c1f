"""The scoreboard over all node cases of onnx: what ox does not pass is in a table, with the reason."""

from __future__ import annotations

import known
import pytest
from conformance import on_ox, scores, totals
from table import PAGE, VERSIONS, score

from ox.core.operator import OPS

# What files of trained models hold; each is there, and passes every case of ox's element types
EVERYDAY = """
Abs Add Div Mul Neg Sub Pow Sqrt Exp Log Mod Max Min Mean Sum Sign Reciprocal Clip Erf Ceil Floor Round
Equal Greater GreaterOrEqual Less LessOrEqual IsInf IsNaN And Or Xor Not Where
BitShift BitwiseAnd BitwiseNot BitwiseOr BitwiseXor
Sin Cos Tan Asin Acos Atan Sinh Cosh Tanh Asinh Acosh Atanh
Relu Gelu Sigmoid Softmax LogSoftmax LeakyRelu Elu Selu Celu Softplus Softsign HardSigmoid HardSwish Mish Swish PRelu
ThresholdedRelu Hardmax Shrink
Einsum CumSum CumProd TopK NonZero Unique OneHot Trilu EyeLike Tile DepthToSpace SpaceToDepth ReverseSequence Compress
Gather GatherElements GatherND ScatterElements ScatterND CenterCropPad Concat Split Slice Pad Expand Reshape Squeeze
Unsqueeze Transpose Flatten Identity Cast CastLike Shape Size Range Constant ConstantOfShape
ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean ReduceMin ReduceProd ReduceSum ReduceSumSquare
ArgMax ArgMin MatMul Gemm Conv ConvTranspose DeformConv MaxPool AveragePool GlobalAveragePool GlobalMaxPool LpPool
MaxUnpool Col2Im
BatchNormalization LayerNormalization InstanceNormalization GroupNormalization RMSNormalization LRN
MeanVarianceNormalization LpNormalization
RNN LSTM GRU Attention RotaryEmbedding LinearAttention CausalConvWithState
Resize GridSample AffineGrid RoiAlign Dropout NegativeLogLikelihoodLoss SoftmaxCrossEntropyLoss
Det DFT STFT BlackmanWindow HammingWindow HannWindow MelWeightMatrix If Loop Scan
QuantizeLinear DequantizeLinear DynamicQuantizeLinear QLinearMatMul QLinearConv MatMulInteger ConvInteger
"""

Board = dict[str, list[tuple[str, str | None]]]


@pytest.fixture(scope="module")
def board() -> Board:
    return {op: row["ox"] for op, row in scores({"ox": on_ox}).items()}


def test_most_cases_pass(board: Board) -> None:
    passed, total = totals({op: {"ox": row} for op, row in board.items()})
    assert passed["ox"] >= 0.85 * total, f"{passed['ox']} of {total}"
    page = PAGE.read_text()
    assert VERSIONS not in page or score("ox", passed["ox"], total) in page, "python tests/ops/table.py"


def test_everyday_operators_are_there() -> None:
    assert not [name for name in EVERYDAY.split() if name not in OPS]


def test_what_fails_has_a_reason(board: Board) -> None:
    """Of the operators that ox has, that is all of the everyday ones and more."""
    rows = [(op, name, why) for op, row in board.items() if op in OPS for name, why in row if why]
    bad = [f"{op} {name}: {why}" for op, name, why in rows if known.reason(known.SCOREBOARD, name) is None]
    assert not bad, "\n".join(bad)


@pytest.mark.slow
def test_no_reason_is_stale(board: Board) -> None:
    """A reason goes when its cases pass."""
    failing = [name for row in board.values() for name, why in row if why]
    stale = [p for p, why in known.SCOREBOARD.items() if not any(known.reason({p: why}, name) for name in failing)]
    assert not stale
