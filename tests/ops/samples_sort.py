"""Samples of the operators that order: TopK."""

from __future__ import annotations

from collections.abc import Callable

from sample import Sample, call, ints, normal

MORE: dict[str, Callable[[], list[Sample]]] = {
    "TopK": lambda: [
        call(normal(3, 4, 5), ints(2), outputs=2),
        call(normal(3, 4, 5), ints(3), axis=1, largest=0, outputs=2),
        call(normal(2, 40), ints(3), outputs=2),
        call(normal(40, 2), ints(3), axis=0, largest=0, outputs=2),
        call(normal(6), ints(6)),
    ],
}
