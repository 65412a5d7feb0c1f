"""What works element by element, beside PyTorch: values, types, gradients of first and second order, refusals."""

from __future__ import annotations

import numpy as np
import pytest
from sides import check_error, check_gradient, check_value, split

R = np.random.default_rng(3)
ARRAYS = {
    "m": R.normal(size=(3, 4)).astype(np.float32),
    "n": R.normal(size=(3, 4)).astype(np.float32),
    "q": R.uniform(0.2, 3, size=(3, 4)).astype(np.float32),
    "p": R.uniform(-0.95, 0.95, size=(3, 4)).astype(np.float32),
    "d": R.normal(size=(4,)),
    "h": np.array([1.5, -2, 3, 0.25], np.float16),
    "i": np.array([[7, -7, 3, -3], [1, 2, 5, -5], [0, 9, -9, 4]]),
    "j": np.array([2, -2, 3, -4]),
    "s": np.array([0, 1, 3, 62]),
    "w": np.array([3, -1, 2, 5], np.int32),
    "y": np.array([3, -1, 2, 5], np.int8),
    "u": np.array([3, 1, 2, 200], np.uint8),
    "b": np.array([True, False, True, True]),
    "c": np.array([False, False, True, False]),
    "zf": np.array(2.5, np.float32),
    "zi": np.array(3, np.int64),
    "e": np.zeros((0, 3), np.float32),
    "ends": np.array([np.inf, -np.inf, np.nan, 0.0, -0.0, 1.0, -2.5], np.float32),
    "halves": np.array([0.5, 1.5, 2.5, -0.5, -1.5, 2.345, -1e9, 3.0], np.float32),
    "tiny": np.array([1e-10, -1e-7, 1e-4, 0.3, -0.4, 5.0, 0.0], np.float32),
    "wide": np.array([-20.0, -7.3, -2.5, -0.4, 0.1, 0.7, 1.0, 2.0, 4.5, 30.0]),
    "x": R.normal(size=(3, 4)),
    "v": R.uniform(0.3, 0.9, size=(4,)),
    "t": R.uniform(1.1, 3, size=(3, 1)),
}

UNARY = """sin cos tan sinh cosh tanh asin acos atan asinh acosh atanh arcsin arccos arctan arcsinh arccosh arctanh
exp exp2
expm1 log log2 log10 log1p sqrt rsqrt reciprocal sigmoid erf erfc erfinv lgamma digamma deg2rad rad2deg sinc logit
angle"""
SPECIAL = """entr erf erfc erfcx erfinv exp2 expit expm1 gammaln log1p log_ndtr ndtr ndtri psi sinc"""
ANY = """abs absolute square isnan isinf isfinite isposinf isneginf isreal signbit logical_not nan_to_num real conj
positive"""

VALUES = f"""
{"; ".join(f"T.{f}({a})" for f in UNARY.split() for a in ("p", "q", "i", "b", "h", "ends", "zf", "e", "u"))}
{"; ".join(f"T.{f}({a})" for f in ANY.split() for a in ("m", "i", "h", "ends", "zf", "e", "u", "y", "w"))}
{"; ".join(f"wide.{f}()" for f in ("lgamma", "digamma", "erfc", "expm1", "sinc", "tanh", "asinh"))}
{"; ".join(f"T.{f}(tiny)" for f in ("log1p", "expm1", "sinh", "atanh", "erfinv", "erfc", "sin", "asinh", "sinc"))}
wide[3:].polygamma(1); T.polygamma(2, q); T.polygamma(3, q); T.polygamma(0, q); wide[1:].polygamma(1)
T.mvlgamma(q + 2, 3)
m.abs(); m.absolute(); T.negative(m); -i; m.sgn(); i.sgn(); m.sign(); h.sign(); ends[3:].sgn(); zf.sgn(); u.sign()
y.sgn(); m.positive(); T.positive(i); m.reciprocal(); m.neg()
m.floor(); m.ceil(); m.trunc(); m.fix(); m.frac(); m.round(); halves.round(); halves.round(decimals=1)
T.round(halves)
T.round(halves * 100, decimals=-2); i.floor(); i.ceil(); i.trunc(); i.round(); u.floor(); ends.round(); ends.trunc()
ends.frac(); ends.floor(); h.round(); halves.floor(); halves.trunc(); halves.frac()
T.fmod(m, 0.3); T.fmod(i, j); T.fmod(m, n); T.fmod(i, 3); T.fmod(i, 2.5); i.fmod(-2); h.fmod(1); u.fmod(3)
T.fmod(ends, 2)
T.atan2(m, n); T.arctan2(m, d); T.atan2(ends[:, None], ends); T.atan2(i, j); m.atan2(n); T.hypot(m, n); m.hypot(d)
T.hypot(ends, ends); T.copysign(m, n); T.copysign(m, -1.0); i.copysign(m); m.copysign(ends[:4]); T.copysign(i, j)
T.logaddexp(m, n); T.logaddexp(ends, ends); T.logaddexp2(m, n); T.logaddexp(m * 100, n * 100); m.logaddexp(d)
T.lerp(m, n, 0.3); T.lerp(m, n, q); m.lerp(n, zf); m.lerp(n, 1.0); T.addcmul(m, n, q, value=2); T.addcdiv(m, n, q)
m.addcmul(n, q); m.addcdiv(n, q, value=-1); T.addcmul(i, j, j); T.addcmul(m, zf, q[0]); i.addcmul(j, i, value=3)
T.rsub(m, n); T.rsub(m, 2, alpha=3); T.rsub(i, 2); T.add(m, n, alpha=0.5); T.sub(i, j, alpha=2); T.subtract(m, n)
T.multiply(m, 2); T.divide(m, n); T.true_divide(i, j); T.div(i, j); m.true_divide(2)
T.divide(i, j, rounding_mode="floor")
T.xlogy(m, q); T.xlogy(m * 0, ends[:4]); T.xlogy(2.0, q); T.xlogy(q, 3); T.xlogy(ends, ends); m.xlogy(q); i.xlogy(2)
T.logit(v, eps=0.4); v.logit(); T.logit(m, 0.1); T.float_power(m, 2); T.float_power(2, i); i.float_power(-1)
m.float_power(n)
T.nan_to_num(ends, 1.0, 2.0, 3.0); ends.nan_to_num(nan=5); ends.nan_to_num(posinf=9.0); T.nan_to_num(h)
T.clamp_min(m, 0); T.clamp_max(m, 0.3); i.clamp_min(2); m.clamp_min(n); m.clamp_max(zf); T.clip(m, -0.5, 0.5)
m.clip(max=n)
T.heaviside(m, n); T.heaviside(m * 0, n); T.heaviside(i, j); i.heaviside(zi); T.heaviside(ends, ends * 0 + 7)
T.fmax(ends, ends.flip(0)); T.fmin(ends, ends.flip(0)); T.fmax(m, n); T.fmin(i, j); T.fmax(m, d); m.fmin(n)
T.maximum(ends, ends.flip(0)); T.minimum(m, n); T.maximum(b, c); T.maximum(i, j)
T.bitwise_left_shift(i, s[:4]); T.bitwise_right_shift(i, s[:4]); i << 2; i >> 1; w << 3; w >> 2; y << 3; y >> 1
u << 1
u >> 2; 1 << s; i >> T.tensor(62); i << zi; w.bitwise_left_shift(w.abs()); (i << 60); y << 6; u >> u[1:2]
T.gcd(i, j); T.lcm(i, j); i.gcd(zi); T.gcd(w, w); T.gcd(u, u); T.gcd(y, y); y.lcm(y); T.lcm(i, zi); T.gcd(i, i * 0)
m.ldexp(T.tensor([1, 2, 3, 0])); T.ldexp(m, n); T.ldexp(i, T.tensor(2))
T.add(input=m, other=n, alpha=2); T.mul(m, other=3); T.pow(input=m, exponent=2); T.clamp(input=m, min=0)
T.where(b, input=m, other=n); T.maximum(input=m, other=n); T.eq(input=m, other=n); T.div(input=m, other=n)
T.eq(m, n); T.greater(m, n); T.greater_equal(m, 0); T.less(i, j); T.less_equal(i, 3); T.not_equal(m, n); m.greater(n)
m.not_equal(0); b < c; b >= c; b > True; m.less_equal(d); T.lt(m, zf); i.ge(2.5); T.le(u, 3); m.less(n); b <= c
T.logical_and(m, i); T.logical_xor(b, c); T.logical_or(b, 0 * i[0]); T.bitwise_and(i, 3); T.bitwise_not(b)
T.bitwise_xor(b, c)
T.bitwise_or(u, 64); i.bitwise_or(j); ~y; m.where(b, n); m.where(b, 0.0); i.where(b, 2.5)
T.isclose(m, n, atol=1); T.isclose(ends, ends, equal_nan=True); T.isposinf(i); T.isneginf(b); T.isreal(ends)
T.signbit(u)
m.is_complex(); T.is_complex(m); m.is_signed(); u.is_signed(); T.is_tensor(m); T.is_tensor(3); T.numel(m)
T.is_nonzero(zf)
T.is_floating_point(m); T.is_floating_point(i); T.true_divide(b, b); T.square(i); T.square(b)
"""

IN_PLACE = """acos_ asin_ atan_ cos_ sin_ tan_ cosh_ sinh_ tanh_ asinh_ atanh_ exp_ exp2_ expm1_ log_ log2_ log10_
log1p_ sqrt_
rsqrt_ reciprocal_ sigmoid_ erf_ erfc_ erfinv_ lgamma_ digamma_ deg2rad_ rad2deg_ sinc_ logit_ neg_ negative_ abs_
absolute_
sign_ sgn_ square_ floor_ ceil_ round_ trunc_ fix_ frac_ nan_to_num_ logical_not_ arccos_ arcsin_ arctan_ arcsinh_
arctanh_"""
STATEMENTS = f"""
{"; ".join(f"p.{f}()" for f in IN_PLACE.split())}
m.add_(n, alpha=2); m.sub_(1); m.subtract_(n); m.mul_(n); m.multiply_(2); m.div_(2); m.divide_(n); m.true_divide_(n)
m.floor_divide_(0.3); m.remainder_(0.3); m.fmod_(0.3); q.pow_(2); q.xlogy_(q)
q.pow_(n)
m.addcmul_(n, q, value=2); m.addcdiv_(n, q); m.lerp_(n, 0.3); m.copysign_(n); m.heaviside_(n); m.hypot_(n)
m.atan2_(n)
m.clamp_(-0.5, 0.5); m.clip_(max=0); m.clamp_min_(0); m.clamp_max_(n); m.masked_fill_(m > 0, 3.0); m.ldexp_(n)
m.eq_(n); m.lt_(n); m.gt_(0); m.le_(n); m.ge_(n); m.ne_(n); m.greater_(n); m.less_equal_(n); i.not_equal_(3)
m.less_(n)
m.logical_and_(n); i.logical_or_(j); b.logical_xor_(c); i.bitwise_and_(3); i.bitwise_or_(j); i.bitwise_xor_(j)
i.bitwise_not_()
i.bitwise_left_shift_(2); i.bitwise_right_shift_(j.abs()); i.gcd_(zi); i.lcm_(j); q.polygamma_(1); q.mvlgamma_(1)
i.add_(j)
m.cumsum_(0); m.cumprod_(1); m.renorm_(2, 0, 1.0); i.mul_(2); u.add_(1); y.sub_(3); i.floor_divide_(2); i.neg_()
i.pow_(2)
"""

GRADIENTS = f"""
{"; ".join(f"T.{f}(v) * x" for f in UNARY.split() if f not in ("acosh", "arccosh", "angle"))}
T.acosh(t) * x; T.polygamma(1, t) * x; T.polygamma(2, v); T.mvlgamma(t + 1, 2); T.lgamma(-t); T.sinh(x); x.abs() * v
T.square(x); x.floor() * v; x.ceil() * v; x.round() * v; x.trunc() * v; x.frac() * v
x.round(decimals=1) * v
T.fmod(x, v) * x; T.fmod(x, 0.3) * v; x.remainder(v); T.atan2(x, v); T.atan2(v, x); T.hypot(x, v)
T.copysign(v, x) * x
T.logaddexp(x, v); T.logaddexp2(x, v); T.lerp(x, v, 0.3); T.lerp(x, t, v); T.addcmul(x, v, t, value=2)
T.addcdiv(x, v, t, value=2); T.rsub(x, v, alpha=2); T.xlogy(x, v); T.xlogy(v, t); T.logit(v, 0.4) * x
x.nan_to_num() * v
T.clamp_min(x, v); T.clamp_max(x, 0.2) * v; T.clip(x, -0.5, 0.5) * v; T.fmax(x, v); T.fmin(x, v); T.maximum(x, v)
T.minimum(x, v); x.where(x > 0, v); x.ldexp(v); T.float_power(t, x); T.pow(v, x)
T.true_divide(x, v)
T.exp2(x); T.sinc(x) * v; T.div(x, v, rounding_mode="trunc") * x; x.angle() * v
x.expm1() * v
T.logaddexp(x, x); x.copysign(-1.0); T.special.xlog1py(x, v); T.special.entr(v) * x; T.special.ndtr(x)
T.special.erfcx(x)
T.special.log_ndtr(x * 3); T.special.ndtri(v) * x
"""

KINDS = """
float16 bfloat16 float32 float64 int8 int16 int32 int64 uint8 bool
"""

ERRORS = """
T.sin("a"); T.hypot(i, j); T.logaddexp(i, j); T.frac(i); T.lerp(i, j, 0.5); T.lerp(m, d, 0.5); T.addcdiv(i, j, j)
T.heaviside(m, d.double()); T.gcd(m, n); T.lcm(m, n); m << 1; T.bitwise_left_shift(m, n); ~m
m & n
T.floor(b); T.trunc(b); T.positive(b); T.polygamma(-1, m); T.mvlgamma(q + 2, 0); i.fmod(0); T.is_nonzero(m); m.clamp()
T.round(b); i.sin_(); i.div_(2); b.add_(1); T.finfo(T.int32); T.iinfo(T.float32)
m + T.zeros(5); T.atan2(m, T.zeros(5)); T.maximum(m, T.zeros(5)); T.where(b, m, T.zeros(5))
T.div(m, n, rounding_mode="up")
T.pow(i, -1); T.sin(None); T.logaddexp(m, None)
"""


@pytest.mark.parametrize("expression", split(VALUES))
def test_value(expression: str) -> None:
    check_value(expression, ARRAYS, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("statement", split(STATEMENTS))
def test_in_place(statement: str) -> None:
    """The tensor itself is written and keeps its type."""
    name = statement.split(".")[0]
    check_value(f"({statement}, {name})", ARRAYS, rtol=2e-5, atol=2e-6)
    check_value(f"{statement} is {name}", ARRAYS)


@pytest.mark.parametrize("expression", split(GRADIENTS))
def test_gradient(expression: str) -> None:
    check_gradient(expression, ARRAYS, [name for name in ("x", "v", "t") if name in expression.replace("T.", "")])


@pytest.mark.parametrize("expression", split(ERRORS))
def test_error(expression: str) -> None:
    check_error(expression, ARRAYS)


@pytest.mark.parametrize("a", KINDS.split())
def test_types_that_meet(a: str) -> None:
    for b in KINDS.split():
        one, other = f"T.ones(2, dtype=T.{a})", f"T.ones(2, dtype=T.{b})"
        scalar = f"T.ones((), dtype=T.{b})"
        for expression in (
            f"str(T.promote_types(T.{a}, T.{b})).split('.')[-1]",
            f"T.can_cast(T.{a}, T.{b})",
            f"str(T.result_type({one}, {other})).split('.')[-1]",
            f"str(T.result_type({one}, {scalar})).split('.')[-1]",
            f"str(T.result_type({scalar}, 2)).split('.')[-1]",
            f"str(T.result_type(2.5, {one})).split('.')[-1]",
        ):
            check_value(expression, ARRAYS)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_what_floats_hold(dtype: str) -> None:
    for field in ("bits", "eps", "max", "min", "tiny", "smallest_normal"):
        check_value(f"T.finfo(T.{dtype}).{field}", ARRAYS)


@pytest.mark.parametrize("dtype", ["int8", "int16", "int32", "int64", "uint8"])
def test_what_integers_hold(dtype: str) -> None:
    for field in ("bits", "max", "min"):
        check_value(f"T.iinfo(T.{dtype}).{field}", ARRAYS)
