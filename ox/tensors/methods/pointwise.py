"""Tensor's methods that work element by element, and their forms in place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ox import functions as F
from ox.tensors.methods.binding import function, in_place

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


class PointwiseMethods:
    """Mixed into `ox.Tensor`."""

    # arithmetic
    add, sub, subtract, mul, multiply = map(function, ("add", "sub", "sub", "mul", "mul"))
    div, divide, true_divide, floor_divide = map(function, ("div", "div", "div", "floor_divide"))
    remainder, fmod, pow, float_power = map(function, ("remainder", "fmod", "pow", "float_power"))
    neg, negative, abs, absolute, positive = map(function, ("neg", "neg", "abs", "abs", "positive"))
    sign, sgn, square, sqrt, rsqrt, reciprocal = map(function, ("sign", "sgn", "square", "sqrt", "rsqrt", "reciprocal"))
    addcmul, addcdiv, lerp, ldexp = map(function, ("addcmul", "addcdiv", "lerp", "ldexp"))
    gcd, lcm, copysign, heaviside = map(function, ("gcd", "lcm", "copysign", "heaviside"))
    add_, sub_, subtract_, mul_, multiply_ = map(in_place, ("add", "sub", "subtract", "mul", "multiply"))
    div_, divide_, true_divide_, floor_divide_ = map(in_place, ("div", "divide", "true_divide", "floor_divide"))
    remainder_, fmod_, pow_, float_power_ = map(in_place, ("remainder", "fmod", "pow", "float_power"))
    neg_, negative_, abs_, absolute_ = map(in_place, ("neg", "negative", "abs", "absolute"))
    sign_, sgn_, square_, sqrt_ = map(in_place, ("sign", "sgn", "square", "sqrt"))
    rsqrt_, reciprocal_ = map(in_place, ("rsqrt", "reciprocal"))
    addcmul_, addcdiv_, lerp_, ldexp_ = map(in_place, ("addcmul", "addcdiv", "lerp", "ldexp"))
    gcd_, lcm_, copysign_, heaviside_ = map(in_place, ("gcd", "lcm", "copysign", "heaviside"))

    # limits
    clamp, clip, clamp_min, clamp_max = map(function, ("clamp", "clamp", "clamp_min", "clamp_max"))
    maximum, minimum, fmax, fmin = map(function, ("maximum", "minimum", "fmax", "fmin"))
    nan_to_num, masked_fill = map(function, ("nan_to_num", "masked_fill"))
    clamp_, clip_, clamp_min_, clamp_max_ = map(in_place, ("clamp", "clip", "clamp_min", "clamp_max"))
    nan_to_num_, masked_fill_ = map(in_place, ("nan_to_num", "masked_fill"))

    # rounding
    floor, ceil, round, trunc, fix, frac = map(function, ("floor", "ceil", "round", "trunc", "fix", "frac"))
    floor_, ceil_, round_, trunc_, fix_, frac_ = map(in_place, ("floor", "ceil", "round", "trunc", "fix", "frac"))

    # exponentials and logarithms
    exp, exp2, expm1, log = map(function, ("exp", "exp2", "expm1", "log"))
    log2, log10, log1p, logit, xlogy = map(function, ("log2", "log10", "log1p", "logit", "xlogy"))
    logaddexp, logaddexp2 = map(function, ("logaddexp", "logaddexp2"))
    sigmoid, tanh, relu = map(function, ("sigmoid", "tanh", "relu"))
    exp_, exp2_, expm1_, log_ = map(in_place, ("exp", "exp2", "expm1", "log"))
    log2_, log10_, log1p_, logit_, xlogy_ = map(in_place, ("log2", "log10", "log1p", "logit", "xlogy"))
    sigmoid_, tanh_, relu_ = map(in_place, ("sigmoid", "tanh", "relu"))

    # angles
    sin, cos, tan, sinh, cosh = map(function, ("sin", "cos", "tan", "sinh", "cosh"))
    asin, acos, atan, asinh, acosh, atanh = map(function, ("asin", "acos", "atan", "asinh", "acosh", "atanh"))
    arcsin, arccos, arctan, arcsinh, arccosh, arctanh = asin, acos, atan, asinh, acosh, atanh
    atan2, arctan2, hypot, sinc, angle = map(function, ("atan2", "atan2", "hypot", "sinc", "angle"))
    deg2rad, rad2deg = map(function, ("deg2rad", "rad2deg"))
    sin_, cos_, tan_, sinh_, cosh_ = map(in_place, ("sin", "cos", "tan", "sinh", "cosh"))
    asin_, acos_, atan_, asinh_, acosh_, atanh_ = map(in_place, ("asin", "acos", "atan", "asinh", "acosh", "atanh"))
    arcsin_, arccos_, arctan_ = map(in_place, ("arcsin", "arccos", "arctan"))
    arcsinh_, arccosh_, arctanh_ = map(in_place, ("arcsinh", "arccosh", "arctanh"))
    atan2_, arctan2_, hypot_, sinc_ = map(in_place, ("atan2", "arctan2", "hypot", "sinc"))
    deg2rad_, rad2deg_ = map(in_place, ("deg2rad", "rad2deg"))

    # functions that integrals define
    erf, erfc, erfinv, lgamma, digamma = map(function, ("erf", "erfc", "erfinv", "lgamma", "digamma"))
    mvlgamma, igamma, igammac = map(function, ("mvlgamma", "igamma", "igammac"))
    i0, frexp, nextafter = map(function, ("i0", "frexp", "nextafter"))
    i0_, nextafter_ = map(in_place, ("i0", "nextafter"))
    igamma_, igammac_ = map(in_place, ("igamma", "igammac"))
    erf_, erfc_, erfinv_, lgamma_, digamma_ = map(in_place, ("erf", "erfc", "erfinv", "lgamma", "digamma"))

    def polygamma(self: Any, n: int) -> Tensor:
        """The n-th derivative of the digamma function. `torch.polygamma`."""
        return F.polygamma(n, self)

    mvlgamma_, polygamma_ = map(in_place, ("mvlgamma", "polygamma"))

    # comparisons
    eq, lt, gt, le, ge, ne = map(function, ("eq", "lt", "gt", "le", "ge", "ne"))
    greater, greater_equal, less, less_equal, not_equal = gt, ge, lt, le, ne
    isclose, isnan, isfinite, isinf = map(function, ("isclose", "isnan", "isfinite", "isinf"))
    isposinf, isneginf, isreal, signbit = map(function, ("isposinf", "isneginf", "isreal", "signbit"))
    eq_, lt_, gt_, le_, ge_, ne_ = map(in_place, ("eq", "lt", "gt", "le", "ge", "ne"))
    greater_, greater_equal_, less_ = map(in_place, ("greater", "greater_equal", "less"))
    less_equal_, not_equal_ = map(in_place, ("less_equal", "not_equal"))

    # logic and bits
    logical_and, logical_or, logical_xor = map(function, ("logical_and", "logical_or", "logical_xor"))
    bitwise_and, bitwise_or, bitwise_xor = map(function, ("bitwise_and", "bitwise_or", "bitwise_xor"))
    logical_not, bitwise_not = map(function, ("logical_not", "bitwise_not"))
    bitwise_left_shift, bitwise_right_shift = map(function, ("bitwise_left_shift", "bitwise_right_shift"))
    logical_and_, logical_or_, logical_xor_ = map(in_place, ("logical_and", "logical_or", "logical_xor"))
    bitwise_and_, bitwise_or_, bitwise_xor_ = map(in_place, ("bitwise_and", "bitwise_or", "bitwise_xor"))
    logical_not_, bitwise_not_ = map(in_place, ("logical_not", "bitwise_not"))
    bitwise_left_shift_, bitwise_right_shift_ = map(in_place, ("bitwise_left_shift", "bitwise_right_shift"))

    # of complex numbers, which ox has not
    conj, conj_physical, resolve_conj, resolve_neg = map(function, ("conj", "conj", "resolve_conj", "resolve_conj"))
    conj_physical_ = in_place("conj_physical")

    prelu, hardshrink = map(function, ("prelu", "hardshrink"))

    def where(self: Any, condition: Any, other: Any) -> Tensor:
        """This tensor where `condition`, else `other`. `torch.Tensor.where`."""
        return F.where(condition, self, other)

    def is_complex(self: Any) -> Any:
        """Whether it represents complex numbers: only results of `ox.fft` do."""
        return False

    @property
    def real(self: Any) -> Tensor:
        """The tensor itself, as no other has complex numbers than what `ox.fft` gives."""
        return self

    def is_signed(self: Any) -> Any:
        """Whether the element type has negative numbers."""
        return self.array.dtype.kind not in "ub"
