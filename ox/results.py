"""What functions of several results return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ox.tensor import Tensor


class ValuesIndices(NamedTuple):
    """The values chosen along a dimension, and their int64 positions."""

    values: Tensor
    indices: Tensor
