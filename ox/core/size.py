"""`ox.Size`: what `Tensor.shape` is."""

from __future__ import annotations

from typing import Any


class Size(tuple[int, ...]):
    """A tuple of sizes with their product, `numel`. `torch.Size`."""

    __slots__ = ()

    def numel(self) -> Any:
        """The product of the sizes; under a recording an `ox.Dim` where one of them is."""
        total: Any = 1
        for size in self:
            total = total * size
        return total

    def __getitem__(self, index: Any) -> Any:
        found = tuple.__getitem__(self, index)
        return Size(found) if type(index) is slice else found

    def __add__(self, other: Any) -> Size:
        return Size(tuple.__add__(self, other))
