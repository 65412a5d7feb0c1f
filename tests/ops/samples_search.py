"""Samples of the search in sorted rows, and of the check of a range."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from sample import Sample, call, single

MORE: dict[str, Callable[[], list[Sample]]] = {}

FUNCTIONS: dict[str, Callable[[], list[Sample]]] = {
    "ox.InRange": lambda: [
        call(np.array([[0, 4], [2, 1]]), low=0, high=4, what="outside"),
        call(np.array([-100, 2], np.int32), low=0, high=4, what="outside", classes=1, ignored=-100),
    ],
    "ox.SearchSorted": lambda: [
        call(np.sort(single(3, 5)), single(3, 4)),
        call(np.array([[1, 2, 2, 5]], np.float32), np.array([[2, 0, 5, 9]], np.float32), right=1),
        call(np.array([[1, 2, 2, 5]], np.float32), np.array([[2, 0, 5, 9]], np.float32), right=0),
    ],
}
