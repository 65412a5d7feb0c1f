"""What functions of several results return."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


class ValuesIndices(NamedTuple):
    """The values chosen along a dimension, and their int64 positions."""

    values: Tensor
    indices: Tensor


class MantissaExponent(NamedTuple):
    """A mantissa and an int32 exponent."""

    mantissa: Tensor
    exponent: Tensor


class DecompositionQR(NamedTuple):
    """Orthonormal columns and an upper triangle."""

    Q: Tensor
    R: Tensor


class DecompositionSVD(NamedTuple):
    """Singular vectors, as columns, and values."""

    U: Tensor
    S: Tensor
    V: Tensor


class Histogram(NamedTuple):
    """What lies between edges, and the edges."""

    hist: Tensor
    bin_edges: Tensor


class MinMax(NamedTuple):
    """The smallest and the largest."""

    min: Tensor
    max: Tensor
