"""The error function in NumPy's own ufuncs, which have none."""

from typing import Any

import numpy as np

from ox.dtypes import float64

# float32: x P(x²)/Q(x²), a minimax fit of relative error 2e-8 over [-3.92, 3.92], beyond which erf is 1 in float32
_P = np.array([2.050075868e-06, 2.848615881e-04, 3.765032882e-03, 5.274687563e-02, 1.903939914e-01, 1.128379146e00])
_Q = np.array([3.809049629e-05, 1.162379340e-03, 1.496804625e-02, 1.141037781e-01, 5.020650255e-01, 1.0])

# float64: W. J. Cody, "Rational Chebyshev approximations for the error function", Math. Comp. 23 (1969): highest power
# first. |x| <= 0.46875: x A(x²)/B(x²). Up to 4: erfc = exp(-x²) C(x)/D(x).
# Beyond: erfc = exp(-x²)/x (1/sqrt(pi) - z P(z)/Q(z)) with z = 1/x², which from 6 on is less than half an ulp of 1.
_A = (1.85777706184603153e-1, 3.16112374387056560, 1.13864154151050156e2, 3.77485237685302021e2, 3.20937758913846947e3)
_B = (1.0, 2.36012909523441209e1, 2.44024637934444173e2, 1.28261652607737228e3, 2.84423683343917062e3)
MIDDLE = (
    2.15311535474403846e-8, 5.64188496988670089e-1, 8.88314979438837594, 6.61191906371416295e1, 2.98635138197400131e2,
    8.81952221241769090e2, 1.71204761263407058e3, 2.05107837782607147e3, 1.23033935479799725e3,
)  # fmt: skip
MIDDLE_BELOW = (
    1.0, 1.57449261107098347e1, 1.17693950891312499e2, 5.37181101862009858e2, 1.62138957456669019e3,
    3.29079923573345963e3, 4.36261909014324716e3, 3.43936767414372164e3, 1.23033935480374942e3,
)  # fmt: skip
TAIL = (
    1.63153871373020978e-2, 3.05326634961232344e-1, 3.60344899949804439e-1, 1.25781726111229246e-1,
    1.60837851487422766e-2, 6.58749161529837803e-4,
)  # fmt: skip
TAIL_BELOW = (
    1.0, 2.56852019228982242, 1.87295284992346725, 5.27905102951428412e-1, 6.05183413124413191e-2,
    2.33520497626869185e-3,
)  # fmt: skip


def erf(xp: Any, x: Any) -> Any:
    """The error function of a float32 array to 4e-7, of a float64 array to 1e-15."""
    if x.dtype == float64:
        return _erf64(xp, x)
    x = xp.clip(x, x.dtype.type(-3.92), x.dtype.type(3.92))
    z = xp.asarray(x * x)
    y = _polynomial(xp, _P, z)
    y /= _polynomial(xp, _Q, z)
    y *= x
    return y


def _polynomial(xp: Any, coefficients: Any, z: Any) -> Any:
    y = xp.full_like(z, coefficients[0])
    for c in coefficients[1:]:
        y *= z
        y += z.dtype.type(c)
    return y


def _erf64(xp: Any, x: Any) -> Any:
    size = xp.asarray(xp.absolute(x))
    near, far = size <= 0.46875, size > 4.0
    y = xp.empty_like(size)
    # only the places where a formula is needed are computed with it
    s = x[near]
    z = s * s
    y[near] = s * _polynomial(xp, _A, z) / _polynomial(xp, _B, z)
    between = ~(near | far)
    s = size[between]
    y[between] = _signed(xp, x[between], _gauss(xp, s) * _polynomial(xp, MIDDLE, s) / _polynomial(xp, MIDDLE_BELOW, s))
    s = xp.minimum(size[far], 27.0)  # also keeps infinities out of the formula; NaN stays NaN
    z = 1 / (s * s)
    tail = z * _polynomial(xp, TAIL, z) / _polynomial(xp, TAIL_BELOW, z)
    y[far] = _signed(xp, x[far], _gauss(xp, s) / s * (5.6418958354775628695e-1 - tail))
    return y


def _gauss(xp: Any, s: Any) -> Any:
    # exp(-s²) with the square split in two, so that its rounding does not grow
    head = xp.trunc(s * 16) / 16
    return xp.exp(-head * head) * xp.exp(-(s - head) * (s + head))


def _signed(xp: Any, x: Any, erfc: Any) -> Any:
    return xp.copysign(1 - erfc, x)
