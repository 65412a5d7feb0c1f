"""The activations of RNN, GRU and LSTM as operators, with their slopes."""

from ox.core.constants import constant
from ox.core.tensor import TensorType
from ox.ops.elementwise.activation import Relu, Sigmoid, Tanh
from ox.ops.elementwise.arithmetic import Abs, Add, Div, Exp, Log, Max, Min, Mul, Neg, Sub
from ox.ops.elementwise.comparison import And, Greater, GreaterOrEqual, Less, Where
from ox.ops.recurrent.arguments import Activation


def value(f: Activation, x: TensorType, clip: float | None) -> TensorType:
    """f of x, which is clipped first."""
    if clip is not None:
        x = Min(Max(x, constant(-clip, x)), constant(clip, x))
    zero, one = constant(0, x), constant(1, x)
    alpha, beta = constant(f.alpha, x), constant(f.beta, x)
    match f.name:
        case "tanh":
            return Tanh(x)
        case "sigmoid":
            return Sigmoid(x)
        case "relu":
            return Relu(x)
        case "softsign":
            return Div(x, Add(one, Abs(x)))
        case "softplus":
            return Add(Max(x, zero), Log(Add(one, Exp(Neg(Abs(x))))))
        case "affine":
            return Add(Mul(alpha, x), beta)
        case "leakyrelu":
            return Where(GreaterOrEqual(x, zero), x, Mul(alpha, x))
        case "thresholdedrelu":
            return Where(GreaterOrEqual(x, alpha), x, zero)
        case "scaledtanh":
            return Mul(alpha, Tanh(Mul(beta, x)))
        case "hardsigmoid":
            return Max(zero, Min(one, Add(Mul(alpha, x), beta)))
        case _:  # elu
            return Where(GreaterOrEqual(x, zero), x, Mul(alpha, Sub(Exp(Min(x, zero)), one)))


def slope(f: Activation, x: TensorType, clip: float | None) -> TensorType:
    """The derivative at x; 0 where x is clipped."""
    made = _slope(f, x)
    if clip is None:
        return made
    return Where(Less(Abs(x), constant(clip, x)), made, constant(0, x))


def _slope(f: Activation, x: TensorType) -> TensorType:
    zero, one = constant(0, x), constant(1, x)
    alpha, beta = constant(f.alpha, x), constant(f.beta, x)
    match f.name:
        case "tanh":
            y = Tanh(x)
            return Sub(one, Mul(y, y))
        case "sigmoid":
            y = Sigmoid(x)
            return Mul(y, Sub(one, y))
        case "relu":
            return Where(Greater(x, zero), one, zero)
        case "softsign":
            y = Add(one, Abs(x))
            return Div(one, Mul(y, y))
        case "softplus":
            return Sigmoid(x)
        case "affine":
            return Add(alpha, Mul(x, zero))
        case "leakyrelu":
            return Where(GreaterOrEqual(x, zero), one, alpha)
        case "thresholdedrelu":
            return Where(GreaterOrEqual(x, alpha), one, zero)
        case "scaledtanh":
            y = Tanh(Mul(beta, x))
            return Mul(Mul(alpha, beta), Sub(one, Mul(y, y)))
        case "hardsigmoid":
            y = Add(Mul(alpha, x), beta)
            return Where(And(Greater(y, zero), Less(y, one)), alpha, zero)
        case _:  # elu
            return Where(GreaterOrEqual(x, zero), one, Mul(alpha, Exp(Min(x, zero))))
