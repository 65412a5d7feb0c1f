"""The parameters of each kernel, read from its source: what ctypes and CuPy have to be told."""

from __future__ import annotations

import re
from functools import cache

from ox.kernels.compiler import SOURCE

POINTER, INTEGER, NUMBER = "p", "i", "f"  # an address; int64; float32
FILES = ("pointwise.cu", "softmax.cu", "normalization.cu", "optimizer.cu", "random.cu", "cpu_only.cpp")
# macros that stand for two kernels, of float32 and of bfloat16, with the parameters after the count
SHORT = {"UNARY": "pp", "GRADIENT": "ppp", "BINARY": "ppp"}
DEFINITION = re.compile(r"^(EACH|ROWS|UNARY|BINARY|GRADIENT|HOST)\((\w+)(.*)$", re.MULTILINE)
PARAMETER = re.compile(
    r"(?:const )?(float|NUMBER|double|long long|unsigned char|unsigned short)(\*?)(?: RESTRICT)? ?(\w+)(?=[,)])"
)


@cache
def signatures() -> dict[str, str]:
    """By kernel: a letter for each parameter; the first one is the count, but for those of a CPU alone."""
    found: dict[str, str] = {}
    for file in FILES:
        for macro, name, rest in DEFINITION.findall((SOURCE / file).read_text()):
            if macro in SHORT:
                found[name] = found[f"{name}_bfloat16"] = INTEGER + SHORT[macro]
            else:
                kinds = [_kind(type_, star) for type_, star, _ in PARAMETER.findall(rest)]
                found[name] = ("" if macro == "HOST" else INTEGER) + "".join(kinds)
    return found


@cache
def with_status() -> frozenset[str]:
    """The kernels that need memory of their own, and say whether there was enough."""
    return frozenset(
        name for macro, name, _ in DEFINITION.findall((SOURCE / "cpu_only.cpp").read_text()) if macro == "HOST"
    )


def _kind(type_: str, star: str) -> str:
    return POINTER if star else INTEGER if type_ == "long long" else NUMBER
