"""The sizes of a graph's values as polynomials of its named sizes, and the numbers of values that hold sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from ox.graph.ir import Array, Graph, Value
from ox.graph.passes.polynomial import Polynomial

Sizes = tuple[Polynomial, ...]
Known = Mapping[str, Sequence[int | str | None]]

LONGEST = 64  # numbers that a value may hold to be followed


class SymbolicSizes:
    """What is known of every value in every run; `ox.graph.passes.size_analysis` fills it.

    A size that follows from no other has a name of its own, so that sums and products with it can still be compared.

    Attributes:
        numbers: of int64 values with at most one dimension that hold sizes, or are computed from them: the elements.
    """

    def __init__(self, graph: Graph, known: Known) -> None:
        """Args:
        known: inferred sizes by the names of values, for operators that have no rule here.
        """
        self._graph, self._known = graph, known
        self._sizes: dict[Value, Sizes] = {}
        self._memo: dict[object, Polynomial] = {}
        self.numbers: dict[Value, Sizes] = {}
        for value in [*graph.inputs, *graph.captures]:
            if value.dims is not None:
                self._sizes[value] = tuple(map(self._named, value.dims))
        for value, array in graph.constants.items():
            self._sizes[value] = tuple(map(Polynomial.of, array.shape))
            if array.dtype == np.int64 and array.ndim < 2 and array.size <= LONGEST and value not in graph.owned:
                self.numbers[value] = tuple(Polynomial.of(int(n)) for n in array.ravel())

    def note(self, value: Value, sizes: Sizes | None) -> None:
        """Keep the sizes of what a node makes, by its rule, or None; what was inferred fills the gaps."""
        known = self._known.get(value.name)
        if sizes is None:
            if known is None and value.shape is None:
                return
            sizes = tuple(map(self._named, known if known is not None else (None,) * len(value.shape or ())))
        elif known is not None and len(known) == len(sizes):
            sizes = tuple(Polynomial.of(n) if isinstance(n, int) else s for n, s in zip(known, sizes, strict=True))
        self._sizes[value] = sizes

    def of(self, value: Value | None) -> Sizes | None:
        """The sizes of a value; None if not even their number is known."""
        return None if value is None else self._sizes.get(value)

    def constant(self, value: Value | None) -> list[int] | None:
        """The elements of a value that are numbers in every run."""
        numbers = None if value is None else self.numbers.get(value)
        if numbers is None:
            array = None if value is None or value in self._graph.owned else self._graph.constants.get(value)
            return None if array is None or array.dtype.kind not in "iu" else [int(n) for n in array.ravel()]
        found = [n.number for n in numbers]
        return None if None in found else found  # type: ignore[return-value]

    def array(self, value: Value | None) -> Array | None:
        """A constant's array."""
        return None if value is None else self._graph.constants.get(value)

    def fresh(self) -> Polynomial:
        """A size of which nothing is known."""
        return self.same_as(object())

    def same_as(self, key: object) -> Polynomial:
        """The size that follows from `key` in a way that has no polynomial: equal for equal keys."""
        return self._memo.setdefault(key, Polynomial.of(f"?{len(self._memo)}"))

    def _named(self, size: int | str | None) -> Polynomial:
        return self.fresh() if size is None or size == "?" else Polynomial.of(size)
