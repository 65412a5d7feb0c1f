"""``math.isqrt(n)``, ``math.gcd(n, 12)``, ``math.log2(n)`` of a size in a recording.

They read an int without a call of its methods; so the recording would not hear that a size became a plain number.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import wraps
from typing import Any

from ox.core.symbolic import Dim, note_lost_size
from ox.graph.record.replaced_functions import replacing

NAMES = ("isqrt", "gcd", "lcm", "comb", "perm", "factorial", "log", "log2", "log10")


def _noting(function: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(function)
    def noting(*numbers: Any, **named: Any) -> Any:
        for number in (*numbers, *named.values()):
            if isinstance(number, Dim):
                note_lost_size(number)
        return function(*numbers, **named)

    return noting


# within, the recording takes note of sizes that these functions read, except under names that were imported from math
math_notes_sizes = replacing(math, {name: _noting(vars(math)[name]) for name in NAMES})
