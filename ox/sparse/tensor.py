"""SparseTensor: coordinates and values, both ordinary tensors, so that gradients need no special case."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import numpy as np

from ox import functions as F
from ox.core.operator import make_tensor
from ox.core.size import Size
from ox.dtypes import DType
from ox.errors import ArgumentError, DTypeError, GradientError, ShapeError
from ox.functions.dimension_arguments import one_dim
from ox.tensors.tensor import Tensor


class SparseTensor:
    """Values [entries, *dense] at indices [sparse dimensions, entries]; zeros elsewhere. A PyTorch tensor of layout
    `torch.sparse_coo`, made by `ox.sparse_coo_tensor`.

    It is no `ox.Tensor`: operators do not take it, its own methods do. Its gradients run through its values.
    """

    is_sparse = True
    layout = "sparse_coo"
    __array_priority__ = 1000

    def __init__(self, indices: Tensor, values: Tensor, shape: Sequence[int], coalesced: bool = False) -> None:
        self._index, self._value, self.shape, self._coalesced = indices, values, Size(shape), coalesced

    # -- what it is --------------------------------------------------------------------------------------------

    @property
    def dtype(self) -> DType:
        return self._value.dtype

    @property
    def device(self) -> Any:
        return self._value.device

    @property
    def is_cuda(self) -> bool:
        return self._value.is_cuda

    @property
    def ndim(self) -> int:
        return len(self.shape)

    def dim(self) -> int:
        return len(self.shape)

    def size(self, dim: int | None = None) -> Any:
        return self.shape if dim is None else self.shape[one_dim(dim, self.ndim)]

    def type(self) -> str:
        """``torch.sparse.FloatTensor`` under ox's name."""
        return f"ox.sparse.{self._value.type().rpartition('.')[2]}"

    def element_size(self) -> int:
        return self._value.element_size()

    def numel(self) -> int:
        return prod(self.shape)

    def sparse_dim(self) -> int:
        """How many leading dimensions have coordinates."""
        return int(self._index.static_shape[0])

    def dense_dim(self) -> int:
        """How many dimensions each value has."""
        return int(self._value.array.ndim) - 1

    def is_coalesced(self) -> bool:
        """Whether coordinates are known to be sorted and each there once."""
        return self._coalesced

    def is_floating_point(self) -> bool:
        return self._value.is_floating_point()

    def _nnz(self) -> int:
        """How many entries there are, zeros and repeated ones too."""
        return int(self._index.static_shape[1])

    def _indices(self) -> Tensor:
        return self._index

    def _values(self) -> Tensor:
        return self._value

    def indices(self) -> Tensor:
        """Sorted coordinates, int64 [sparse dimensions, entries]. Raises GradientError before `coalesce()`."""
        return self._sorted()._index

    def values(self) -> Tensor:
        """The values at `indices()`."""
        return self._sorted()._value

    def _sorted(self) -> SparseTensor:
        if not self._coalesced:
            raise GradientError("the entries are neither sorted nor added up yet", hint="x.coalesce(), or x._values()")
        return self

    def __len__(self) -> int:
        return int(self.shape[0])

    def __repr__(self) -> str:
        return (
            f"tensor(indices={self._index.tolist()},\n       values={self._value.detach().array.tolist()},\n       "
            f"size={self.shape}, nnz={self._nnz()}, dtype={self.dtype}, layout=sparse_coo"
            + (", requires_grad=True)" if self.requires_grad else ")")
        )

    # -- gradients ---------------------------------------------------------------------------------------------

    @property
    def requires_grad(self) -> bool:
        return self._value.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._value.requires_grad = value

    def requires_grad_(self, requires_grad: bool = True) -> SparseTensor:
        self._value.requires_grad = requires_grad
        return self

    @property
    def is_leaf(self) -> bool:
        return self._value.is_leaf

    @property
    def grad(self) -> SparseTensor | None:
        """The gradient at the same coordinates; at one that is there several times, once."""
        g = self._value.grad
        if g is None or self._coalesced:
            return None if g is None else self._with(g)
        _, first = np.unique(self._places(), return_index=True)
        index = make_tensor(np.ascontiguousarray(self._index.numpy()[:, first]))
        return SparseTensor(index, F.index_select(g, 0, make_tensor(first).to(self.device)), self.shape, True)

    @grad.setter
    def grad(self, value: SparseTensor | None) -> None:
        self._value.grad = None if value is None else value._value

    def detach(self) -> SparseTensor:
        return self._with(self._value.detach())

    def clone(self) -> SparseTensor:
        return SparseTensor(self._index.clone(), self._value.clone(), self.shape, self._coalesced)

    def _with(self, values: Tensor) -> SparseTensor:
        return SparseTensor(self._index, values, self.shape, self._coalesced)

    # -- forms -------------------------------------------------------------------------------------------------

    def _places(self) -> Any:
        """The coordinates as one number each, as NumPy's."""
        index = self._index.numpy()
        sizes = self.shape[: len(index)]
        return (
            np.ravel_multi_index(tuple(index), sizes) if prod(sizes) and len(index) else np.zeros(self._nnz(), np.int64)
        )

    def coalesce(self) -> SparseTensor:
        """Sorted coordinates, each once, values at the same one added up. `torch.Tensor.coalesce`."""
        if self._coalesced:
            return self
        places, inverse = np.unique(self._places(), return_inverse=True)
        sizes = self.shape[: self.sparse_dim()]
        index = np.array(np.unravel_index(places, sizes) if places.size else np.zeros((len(sizes), 0)), np.int64)
        start = self._value.new_zeros(len(places), *self._value.static_shape[1:])
        values = F.index_add(start, 0, make_tensor(inverse.reshape(-1)).to(self.device), self._value)
        return SparseTensor(make_tensor(index.reshape(len(sizes), -1)), values, self.shape, True)

    def to_dense(self, dtype: DType | None = None) -> Tensor:
        """The same as an ordinary tensor. `torch.Tensor.to_dense`."""
        if not self.sparse_dim():
            return self._value.sum(0)
        start = self._value.new_zeros(prod(self.shape[: self.sparse_dim()]), *self._value.static_shape[1:])
        flat = F.index_add(start, 0, make_tensor(self._places()).to(self.device), self._value)
        made: Tensor = flat.reshape(*self.shape)
        return made if dtype is None else made.to(dtype)

    def to_sparse(self, *args: Any) -> SparseTensor:
        return self

    to_sparse_coo = to_sparse

    def to(self, *args: Any, **kwargs: Any) -> SparseTensor:
        """Another element type or device for the values."""
        return self._with(self._value.to(*args, **kwargs))

    def float(self) -> SparseTensor:
        return self._with(self._value.float())

    def double(self) -> SparseTensor:
        return self._with(self._value.double())

    def half(self) -> SparseTensor:
        return self._with(self._value.half())

    def bfloat16(self) -> SparseTensor:
        return self._with(self._value.bfloat16())

    def cpu(self) -> SparseTensor:
        return self.to("cpu")

    def cuda(self) -> SparseTensor:
        return self.to("cuda")

    def transpose(self, dim0: int, dim1: int) -> SparseTensor:
        """Two sparse dimensions exchanged. Raises ArgumentError for a dense one."""
        first, second = one_dim(dim0, self.ndim), one_dim(dim1, self.ndim)
        if max(first, second) >= self.sparse_dim():
            raise ArgumentError("only sparse dimensions can be exchanged", got=f"{dim0} and {dim1}")
        order, shape = list(range(self.sparse_dim())), list(self.shape)
        order[first], order[second] = order[second], order[first]
        shape[first], shape[second] = shape[second], shape[first]
        index = make_tensor(np.ascontiguousarray(self._index.numpy()[order]))
        return SparseTensor(index, self._value, shape, self._coalesced and first == second)

    @property
    def T(self) -> SparseTensor:
        return self.t()

    def t(self) -> SparseTensor:
        """A matrix transposed."""
        if self.ndim != 2:
            raise ShapeError("t() needs a matrix", got=str(list(self.shape)))
        return self.transpose(0, 1)

    # -- arithmetic --------------------------------------------------------------------------------------------

    def _same_shape(self, other: Any) -> None:
        if tuple(other.shape) != self.shape:
            raise ShapeError(
                "sparse tensors of different shapes do not broadcast",
                expected=str(list(self.shape)),
                got=str(list(other.shape)),
            )

    def __add__(self, other: Any) -> Any:
        if isinstance(other, Tensor):
            self._same_shape(other)
            return other + self.to_dense()
        if not isinstance(other, SparseTensor):
            return NotImplemented
        self._same_shape(other)
        if other.sparse_dim() != self.sparse_dim():
            raise ShapeError("sparse tensors with different numbers of sparse dimensions cannot be added")
        if np.array_equal(self._index.numpy(), other._index.numpy()):
            return SparseTensor(
                self._index, self._value + other._value, self.shape, self._coalesced or other._coalesced
            )
        index = make_tensor(np.concatenate([self._index.numpy(), other._index.numpy()], 1))
        both = SparseTensor(index, F.cat([self._value, other._value]), self.shape)
        return both.coalesce() if self._coalesced and other._coalesced else both

    __radd__ = add = __add__

    def __neg__(self) -> SparseTensor:
        return self._with(-self._value)

    neg = __neg__

    def __sub__(self, other: Any) -> Any:
        return self + -other

    def __rsub__(self, other: Any) -> Any:
        return -self + other

    sub = __sub__

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor):
            self._same_shape(other)
            return common(self.coalesce(), other.coalesce())
        if isinstance(other, Tensor) and other.array.ndim:
            return self._with(self._value * at(other, self))
        if isinstance(other, bool | int | float | np.number | Tensor):
            return self._with(self._value * other)
        return NotImplemented

    __rmul__ = mul = __mul__

    def mul_(self, other: Any) -> SparseTensor:
        """The values multiplied in place, by a number."""
        self._value.mul_(other)
        return self

    def __truediv__(self, other: Any) -> Any:
        if isinstance(other, SparseTensor) or not isinstance(other, bool | int | float | np.number | Tensor):
            return NotImplemented
        return self._with(self._value / (at(other, self) if isinstance(other, Tensor) and other.array.ndim else other))

    div = __truediv__

    def __pow__(self, exponent: Any) -> SparseTensor:
        if not exponent > 0:
            raise ArgumentError("a sparse tensor is raised to positive powers", got=str(exponent))
        made = self.coalesce()
        return made._with(made._value**exponent)

    pow = __pow__

    def __matmul__(self, other: Any) -> Any:
        from ox.sparse.products import mm

        return mm(self, other)

    mm = matmul = mv = __matmul__

    def __rmatmul__(self, other: Any) -> Any:
        if not isinstance(other, Tensor):
            return NotImplemented
        left = other if other.array.ndim == 2 else other.unsqueeze(0)
        made = (self.t() @ left.t()).t()
        return made if other.array.ndim == 2 else made.squeeze(0)

    def sum(self, dim: Any = None, dtype: DType | None = None) -> Any:
        from ox.sparse.reduce import sum

        return sum(self, dim, dtype)

    def norm(self, p: Any = 2) -> Tensor:
        """The norm of all elements."""
        return self.coalesce()._value.reshape(-1).norm(p)

    def abs(self) -> SparseTensor:
        made = self.coalesce()
        return made._with(made._value.abs())

    def sqrt(self) -> SparseTensor:
        made = self.coalesce()
        return made._with(made._value.sqrt())

    def index_select(self, dim: int, index: Tensor) -> SparseTensor:
        """Slices of a sparse dimension."""
        dim = one_dim(dim, self.ndim)
        if dim >= self.sparse_dim():
            return SparseTensor(
                self._index,
                F.index_select(self._value, dim - self.sparse_dim() + 1, index),
                (*self.shape[:dim], index.array.size, *self.shape[dim + 1 :]),
                self._coalesced,
            )
        own, wanted = self._index.numpy(), index.numpy()
        new, old = np.nonzero(wanted[:, None] % self.shape[dim] == own[dim][None, :])
        picked = own[:, old].copy()
        picked[dim] = new
        values = F.index_select(self._value, 0, make_tensor(old).to(self.device))
        return SparseTensor(make_tensor(picked), values, (*self.shape[:dim], len(wanted), *self.shape[dim + 1 :]))

    def _refuse(self, *_: Any) -> Any:
        raise DTypeError("a sparse tensor has no such form", hint="x.to_dense(), or x._values()")

    numpy = tolist = item = __array__ = __bool__ = __iter__ = _refuse


def at(dense: Tensor, like: SparseTensor) -> Tensor:
    """The values of a dense tensor (broadcast to the shape) at the coordinates of a sparse one."""
    if dense.static_shape != like.shape:
        dense = F.broadcast_to(dense, *like.shape)
    rows = dense.reshape(prod(like.shape[: like.sparse_dim()]), *like.shape[like.sparse_dim() :])
    return F.index_select(rows, 0, make_tensor(like._places()).to(dense.device))


def common(a: SparseTensor, b: SparseTensor) -> SparseTensor:
    """The product at the coordinates that both have."""
    _, left, right = np.intersect1d(a._places(), b._places(), assume_unique=True, return_indices=True)
    values = [F.index_select(x._value, 0, make_tensor(w).to(x.device)) for x, w in ((a, left), (b, right))]
    index = make_tensor(np.ascontiguousarray(a._index.numpy()[:, left]))
    return SparseTensor(index, values[0] * values[1], a.shape, True)
