"""What to write instead, by what stands in a line that fixed a size of the example."""

from __future__ import annotations

import re

_HINTS = (  # the first that matches
    (r"\bint\([^()]*(\([^()]*\)[^()]*)*/", "a // b, or math.floor(a / b), in place of int(a / b)"),
    (r"\bint\(", "x.shape[0] itself, without int()"),
    (r"\blen\(", "x.shape[0] itself, in place of len(x)"),
    (r"\bnp\.|numpy", "x.shape[0] itself with math.prod and Python's arithmetic on sizes, in place of NumPy"),
    (
        r"sqrt|\*\*|log\(|\b(tensor|full|float)\(",
        "ox.zeros(()) + x.shape[1], a tensor that keeps the size, and its sqrt()",
    ),
    (r"\bround\(", "math.floor or math.ceil in place of round"),
)


def hint_for_line(line: str) -> str:
    """The hint for a line of the user's code."""
    found = (hint for pattern, hint in _HINTS if re.search(pattern, line))
    return next(found, "x.shape[0] itself; int(), len(), float arithmetic and NumPy lose it")
