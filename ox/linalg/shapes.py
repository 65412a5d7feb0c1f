"""What the functions on matrices share: batches that broadcast, results with names."""

from __future__ import annotations

from typing import Any, NamedTuple

from ox import ops
from ox.errors import ShapeError
from ox.functions import broadcast_to
from ox.tensors.tensor import Tensor


class SlogdetResult(NamedTuple):
    sign: Tensor
    logabsdet: Tensor


class InverseResult(NamedTuple):
    inverse: Tensor
    info: Tensor


class SolveResult(NamedTuple):
    result: Tensor
    info: Tensor


class CholeskyResult(NamedTuple):
    L: Tensor
    info: Tensor


class QRResult(NamedTuple):
    Q: Tensor
    R: Tensor


class EighResult(NamedTuple):
    eigenvalues: Tensor
    eigenvectors: Tensor


class SVDResult(NamedTuple):
    U: Tensor
    S: Tensor
    Vh: Tensor


class LstsqResult(NamedTuple):
    solution: Tensor
    residuals: Tensor
    rank: Tensor
    singular_values: Tensor


def matrices(A: Any, name: str, *, square: bool = False) -> Any:
    """Raise `ShapeError` unless A holds matrices, square ones if `square`."""
    shape = A.static_shape
    if len(shape) < 2 or (square and shape[-1] != shape[-2]):
        raise ShapeError(
            f"{name} takes {'square ' * square}matrices",
            expected="[..., n, n]" if square else "[..., m, n]",
            got=str(list(shape)),
        )
    return A


def transposed(x: Any) -> Tensor:
    """The last two dimensions exchanged."""
    rank = x.array.ndim
    return ops.Transpose(x, perm=[*range(rank - 2), rank - 1, rank - 2])


def broadcast_batches(A: Any, B: Any, name: str) -> tuple[Tensor, Tensor]:
    """Two batches of matrices with the same leading dimensions."""
    a, b = list(A.shape[:-2]), list(B.shape[:-2])
    rank = max(len(a), len(b))
    lead = []
    for n, m in zip([1] * (rank - len(a)) + a, [1] * (rank - len(b)) + b, strict=True):
        if n != m and 1 not in (n, m):
            raise ShapeError(
                f"{name}: the batches do not broadcast", got=f"{list(A.static_shape)} and {list(B.static_shape)}"
            )
        lead.append(m if n == 1 else n)
    made = []
    for x, own in ((A, a), (B, b)):
        same = len(own) == rank and all(int(n) == int(m) for n, m in zip(own, lead, strict=True))
        made.append(x if same else broadcast_to(x, [*lead, *x.shape[-2:]]))
    return made[0], made[1]
