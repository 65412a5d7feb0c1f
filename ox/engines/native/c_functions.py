"""How a number is computed in the kernels' language: NumPy's elementwise functions, one C expression each.

Every expression gives what NumPy gives, for NaN, infinities and signed zeros too. Those of float64 are the C library's.
"""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np

from ox.dtypes import DType, bfloat16

# The types that a kernel reads and writes, and those in which it computes
STORED = {
    "float32": "float", "float64": "double", "bfloat16": "unsigned short", "bool": "unsigned char",
    "int8": "signed char", "int16": "short", "int32": "int", "int64": "long long",
    "uint8": "unsigned char", "uint16": "unsigned short", "uint32": "unsigned", "uint64": "unsigned long long",
}  # fmt: skip
COMPUTED = {**STORED, "bfloat16": "float", "bool": "bool"}
name_of = cache(str)  # of an element type; NumPy makes it anew each time

EVERY = {
    "equal": "{0} == {1}", "not_equal": "{0} != {1}", "less": "{0} < {1}", "less_equal": "{0} <= {1}",
    "greater": "{0} > {1}", "greater_equal": "{0} >= {1}", "where": "{0} ? {1} : {2}",
}  # fmt: skip
NUMBERS = {**EVERY, "add": "{0} + {1}", "subtract": "{0} - {1}", "multiply": "{0} * {1}", "square": "{0} * {0}"}
FLOATING = {
    **NUMBERS,
    "divide": "{0} / {1}", "negative": "-{0}", "positive": "{0}",
    "maximum": "{0} >= {1} || {0} != {0} ? {0} : {1}", "minimum": "{0} <= {1} || {0} != {0} ? {0} : {1}",
    "isnan": "{0} != {0}", "logical_not": "{0} == 0",
}  # fmt: skip
# float32: the kernels' own functions, which compilers vectorize, or the C library's
FLOAT = {
    **FLOATING,
    "absolute": "fabsf({0})", "sqrt": "sqrtf({0})", "reciprocal": "1.0f / {0}", "exp": "ox_exp({0})",
    "log": "ox_log({0})", "log1p": "ox_log1p({0})", "expm1": "ox_expm1({0})", "tanh": "ox_tanh({0})",
    "sign": "{0} != {0} ? {0} : {0} > 0.0f ? 1.0f : {0} < 0.0f ? -1.0f : 0.0f", "floor": "floorf({0})",
    "ceil": "ceilf({0})", "rint": "rintf({0})", "trunc": "truncf({0})", "isinf": "fabsf({0}) == INFINITY",
    "isfinite": "fabsf({0}) < INFINITY", "copysign": "copysignf({0}, {1})", "power": "powf({0}, {1})",
    **{f: f"{f}f({{0}})" for f in ("sin", "cos", "tan", "sinh", "cosh", "exp2", "log2", "log10", "cbrt")},
    **{f"arc{f}": f"a{f}f({{0}})" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arctan2": "atan2f({0}, {1})", "hypot": "hypotf({0}, {1})",
}  # fmt: skip
DOUBLE = {
    **FLOATING,
    "absolute": "fabs({0})", "reciprocal": "1.0 / {0}",
    "sign": "{0} != {0} ? {0} : {0} > 0.0 ? 1.0 : {0} < 0.0 ? -1.0 : 0.0", "isinf": "fabs({0}) == (double)INFINITY",
    "isfinite": "fabs({0}) < (double)INFINITY", "copysign": "copysign({0}, {1})", "power": "pow({0}, {1})",
    **{f: f"{f}({{0}})" for f in ("sqrt", "exp", "log", "log1p", "expm1", "tanh", "floor", "ceil", "rint", "trunc")},
    **{f: f"{f}({{0}})" for f in ("sin", "cos", "tan", "sinh", "cosh", "exp2", "log2", "log10", "cbrt")},
    **{f"arc{f}": f"a{f}({{0}})" for f in ("sin", "cos", "tan", "sinh", "cosh", "tanh")},
    "arctan2": "atan2({0}, {1})", "hypot": "hypot({0}, {1})",
}  # fmt: skip
INTEGER = {
    **NUMBERS,
    "maximum": "{0} > {1} ? {0} : {1}", "minimum": "{0} < {1} ? {0} : {1}", "positive": "{0}", "negative": "-{0}",
    "bitwise_and": "{0} & {1}", "bitwise_or": "{0} | {1}", "bitwise_xor": "{0} ^ {1}", "invert": "~{0}",
    "logical_not": "{0} == 0",
}  # fmt: skip
SIGNED = {**INTEGER, "absolute": "{0} < 0 ? -{0} : {0}", "sign": "({0} > 0) - ({0} < 0)"}
UNSIGNED = {**INTEGER, "absolute": "{0}", "sign": "{0} != 0"}
BOOL = {
    **EVERY,
    "logical_and": "{0} && {1}", "logical_or": "{0} || {1}", "logical_xor": "{0} != {1}", "logical_not": "!{0}",
    "bitwise_and": "{0} && {1}", "bitwise_or": "{0} || {1}", "bitwise_xor": "{0} != {1}", "invert": "!{0}",
    "add": "{0} || {1}", "multiply": "{0} && {1}", "maximum": "{0} || {1}", "minimum": "{0} && {1}",
}  # fmt: skip


def functions_of(dtype: DType) -> dict[str, str]:
    """The expressions of functions whose arguments have this type; of "where", what is chosen."""
    if name_of(dtype) not in STORED:
        return {}
    if dtype == bfloat16:  # computed in float32; each result is rounded
        return FLOAT
    return {"b": BOOL, "i": SIGNED, "u": UNSIGNED}.get(dtype.kind) or (FLOAT if dtype.itemsize == 4 else DOUBLE)


def castable(source: DType, target: DType) -> bool:
    """Whether a cast in C gives what NumPy's gives: a float that an integer does not hold is nobody's business, but
    small integers are reached through larger ones."""
    if name_of(source) not in STORED or name_of(target) not in STORED:
        return False
    floating = source == bfloat16 or source.kind == "f"
    return not (floating and target.kind in "iu" and (target.itemsize < 4 or target.kind == "u"))


def cast(value: str, source: DType, target: DType) -> str:
    """The expression of a cast."""
    if target.kind == "b":
        return f"{value} != 0"
    if target == bfloat16:
        return rounded(f"(float){value}")
    return f"({COMPUTED[name_of(target)]}){value}"


def rounded(value: str) -> str:
    """The nearest bfloat16, as a float."""
    return f"from_bfloat16(to_bfloat16({value}))"


def literal(value: Any) -> str:
    """A NumPy scalar as a number of its computed type."""
    dtype = value.dtype
    if dtype.kind == "b":
        return "true" if value else "false"
    if dtype.kind in "iu":
        if value == np.iinfo(np.int64).min:
            return "(-9223372036854775807LL - 1)"
        return f"({COMPUTED[name_of(dtype)]}){int(value)}{'ULL' if dtype.kind == 'u' else 'LL'}"
    number = float(value)
    if math.isnan(number):
        return "NAN" if dtype != np.float64 else "(double)NAN"
    if math.isinf(number):
        return f"{'-' if number < 0 else ''}{'(double)' if dtype == np.float64 else ''}INFINITY"
    return f"{number.hex()}{'' if dtype == np.float64 else 'f'}"
