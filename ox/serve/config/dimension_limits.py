"""The most that dimensions which vary may be, of an input or of a state: checked by the shape alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ox.errors import ServeError
from ox.graph.contract import Dim, TensorInfo

# Requests with a size behind the rows of 0, or from here on, run alone: the proof that rows are independent needs it.
LONGEST = 1 << 30

Most = Mapping[str, tuple[int, str]]  # by dimension (unnamed ones are "None"): the limit, and its source


class DimensionLimits:
    """Limits of one tensor.

    Args:
        kind: "input" or "state", for errors.
        info: the tensor.
        most: the most that dimensions may be.
        rows: the first dimension that counts rows, if any: one without a name is not meant by "None".
    """

    def __init__(self, kind: str, info: TensorInfo, most: Most, rows: tuple[Dim, ...]) -> None:
        self._kind, self._info = kind, info
        self.axes = [
            (axis, *most[str(dim)])
            for axis, dim in enumerate(info.dims)
            if not isinstance(dim, int) and str(dim) in most and not counts_rows(axis, info, rows)
        ]

    def check(self, shape: Sequence[int]) -> None:
        """Raises ServeError (413) for a shape of the tensor's rank with a dimension that is too large; names it."""
        for axis, most, why in self.axes:
            if shape[axis] > most:
                dim = self._info.dims[axis]
                named = "" if dim is None else f" ({dim})"
                raise ServeError(
                    f"dimension {axis}{named} of {self._kind} '{self._info.name}' is {shape[axis]}",
                    status=413,
                    expected=f"at most {most} ({why})",
                    hint=f"a shorter {'sequence' if self._kind == 'state' else 'input'}, or --max-dim {dim}=SIZE "
                    "(max_dims in ox.toml)",
                )


def counts_rows(axis: int, info: TensorInfo, rows: tuple[Dim, ...]) -> bool:
    """Whether a dimension without a name is the one that counts rows."""
    return axis == 0 and info.dims[0] is None and info.dims[:1] == rows
