"""Tensors that stand for complex numbers: pairs of a real and an imaginary part in a last dimension, as `ox.fft` gives
them. What would mean another thing for complex numbers is refused, for it would give other numbers than PyTorch.

The mark is the class. An operator asks its inputs for their arrays in one place, and a tensor of this class does not
give it there: every operator refuses it, at no cost to other tensors. What is the same for pairs and for complex
numbers is a method of the class, and computes with the tensor without the mark.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from ox import functions as F
from ox import ops
from ox.core.memory_format import channels_format
from ox.core.operator import Operator, as_input
from ox.core.size import Size
from ox.dtypes import is_floating
from ox.errors import BoundsError, PairsError, ShapeError
from ox.functions.dimension_arguments import one_dim, sizes_of
from ox.tensors.tensor import Tensor

_CHOKE = Operator.__call__.__code__
_HINT = (
    "p = ox.view_as_real(x) for the pairs [..., 2], a tensor like others: the modulus is p.square().sum(-1).sqrt(), the"
    " angle ox.atan2(p[..., 1], p[..., 0])"
)


class ComplexPairs(Tensor):
    """Complex numbers [...] as pairs [..., 2]. Between two of them + and -, and * and / by real numbers or real tensors
    are what they are for complex numbers, and so are conj, real, imag, sums and means, and what moves, joins, cuts or
    copies; the shape and every dimension are those of the numbers. `numpy`, `tolist` and `item` give complex numbers,
    `array` the pairs.

    Raises:
        DTypeError: an operator that means another thing for complex numbers.
    """

    @property
    def array(self) -> Any:
        caller = sys._getframe(1)
        if caller.f_code is _CHOKE:
            raise _refused(caller.f_locals["self"].name)
        return self.__dict__["array"]

    @array.setter
    def array(self, value: Any) -> None:
        self.__dict__["array"] = value

    def is_complex(self) -> bool:
        return True

    def refused(self, what: str) -> PairsError:
        """The error of a function that means another thing for complex numbers."""
        return _refused(what)

    def is_floating_point(self) -> bool:
        return False

    @staticmethod
    def of_real(x: Tensor) -> Tensor:
        """Complex numbers with the real parts `x` and imaginary parts of 0."""
        return marked(F.stack([x, F.zeros_like(x)], -1))

    # -- the two parts ---------------------------------------------------------------------------------------------

    @property
    def real(self) -> Tensor:
        return view_as_real(self)[..., 0]

    @property
    def imag(self) -> Tensor:
        return view_as_real(self)[..., 1]

    def conj(self) -> Tensor:
        """The complex conjugate."""
        return marked(ops.Mul(without_mark(self), as_input(np.array([1, -1], self.array.dtype))))

    conj_physical = conj

    def resolve_conj(self) -> Tensor:
        return self

    resolve_neg = resolve_conj

    # -- out to Python and NumPy -----------------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> Any:
        """Complex numbers, in memory of their own."""
        return _numbers(without_mark(self).numpy(force=force))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        numbers = _numbers(without_mark(self).__array__())
        return numbers if dtype is None else numbers.astype(dtype)

    def tolist(self) -> Any:
        return _numbers(without_mark(self.detach()).cpu().numpy()).tolist()

    def item(self) -> Any:
        return _numbers(without_mark(self.detach()).cpu().numpy()).item()

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return marked(without_mark(self) + without_mark(pairs_of(other, "+")))

    def __sub__(self, other: Any) -> Tensor:
        return marked(without_mark(self) - without_mark(pairs_of(other, "-")))

    def __neg__(self) -> Tensor:
        return marked(-without_mark(self))

    def __mul__(self, other: Any) -> Tensor:
        return marked(without_mark(self) * _number(other, "*"))

    def __truediv__(self, other: Any) -> Tensor:
        return marked(without_mark(self) / _number(other, "/"))

    def __radd__(self, other: Any) -> Tensor:
        raise _refused("+ of a real number")

    def __rsub__(self, other: Any) -> Tensor:
        raise _refused("- of a real number")

    def __rtruediv__(self, other: Any) -> Tensor:
        raise _refused("/")

    __rmul__ = __mul__
    add, sub, neg, mul, div = __add__, __sub__, __neg__, __mul__, __truediv__
    subtract, negative, multiply, divide, true_divide = __sub__, __neg__, __mul__, __truediv__, __truediv__

    # -- as they are -----------------------------------------------------------------------------------------------

    def detach(self) -> Tensor:
        return marked(super().detach())

    def clone(self, **options: Any) -> Tensor:
        _refuse_format(options.get("memory_format"))
        return marked(without_mark(self).clone(**options))

    def contiguous(self, memory_format: Any = None) -> Tensor:
        _refuse_format(memory_format)
        return self

    def to(self, *args: Any, **options: Any) -> Tensor:
        """On another device; another element type is for the pairs."""
        _refuse_format(options.get("memory_format"))
        moved = without_mark(self).to(*args, **options)
        if moved.array.dtype != self.array.dtype or any(isinstance(arg, Tensor) for arg in args):
            raise _refused("another element type")
        return marked(moved)

    # -- places and dimensions -------------------------------------------------------------------------------------

    @property
    def shape(self) -> Size:
        """The sizes, without that of the pairs; so are `ndim`, `numel` and every dimension that is named."""
        return Size(without_mark(self).shape[:-1])

    @property
    def ndim(self) -> int:
        return self.array.ndim - 1

    def dim(self) -> int:
        return self.ndim

    ndimension = dim

    def size(self, dim: Any = None) -> Any:
        return self.shape if dim is None else self.shape[one_dim(dim, self.ndim)]

    def stride(self, dim: int | None = None) -> Any:
        strides = tuple(s // 2 for s in without_mark(self).stride()[:-1])
        return strides if dim is None else strides[one_dim(dim, self.ndim)]

    def reshape(self, *shape: Any) -> Tensor:
        return marked(without_mark(self).reshape(*sizes_of(shape), 2))

    def view(self, *sizes: Any, size: Any = None) -> Tensor:
        return marked(without_mark(self).view(*sizes_of(sizes if size is None else size), 2))

    def expand(self, *sizes: Any) -> Tensor:
        return marked(without_mark(self).expand(*sizes_of(sizes), 2))

    def broadcast_to(self, size: Any) -> Tensor:
        return self.expand(*size)

    def repeat(self, *repeats: Any) -> Tensor:
        return marked(without_mark(self).repeat(*sizes_of(repeats), 1))

    def tile(self, *dims: Any) -> Tensor:
        return marked(without_mark(self).tile((*sizes_of(dims), 1)))

    def permute(self, *dims: Any) -> Tensor:
        order = [one_dim(d, self.ndim) for d in sizes_of(dims)]
        return marked(without_mark(self).permute(*order, self.ndim))

    def roll(self, shifts: Any, dims: Any = None) -> Tensor:
        if dims is None:
            return marked(F.roll(without_mark(self.reshape(-1)), shifts, 0)).reshape(*self.shape)
        return marked(F.roll(without_mark(self), shifts, positive_dims(self, "roll", dims, self.ndim)))

    def t(self) -> Tensor:
        return self if self.ndim < 2 else self.transpose(0, 1)

    @property
    def T(self) -> Tensor:
        return self.permute(*reversed(range(self.ndim)))

    @property
    def mT(self) -> Tensor:
        return self.transpose(-2, -1)

    def __getitem__(self, index: Any) -> Tensor:
        return marked(without_mark(self)[_leading(index, self)])

    def fill_(self, value: Any) -> Tensor:
        if isinstance(value, int | float) and value == 0:
            view_as_real(self).fill_(0)
            return self
        raise _refused("fill_ with a real number")

    def copy_(self, source: Any, non_blocking: bool = False) -> Tensor:
        view_as_real(self).copy_(without_mark(pairs_of(source, "copy_")))
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        zero = isinstance(value, int | float) and value == 0
        values = value if zero else without_mark(pairs_of(value, "x[...] ="))
        view_as_real(self)[_leading(index, self)] = values


def _of_another_type(name: str) -> Callable[..., Any]:
    def method(self: ComplexPairs, *args: Any, **kwargs: Any) -> Any:
        raise _refused(f"{name}()")

    return method


for _name in ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "type", "type_as"):
    setattr(ComplexPairs, _name, _of_another_type(_name))


def positive_dims(x: ComplexPairs, name: str, dims: Any, rank: int) -> Any:
    """Dimensions counted from the first; all where none are named."""
    if dims is None or (dims == () and name == "squeeze"):
        sizes = x.shape
        return tuple(d for d in range(rank) if name != "squeeze" or sizes[d] == 1)
    if isinstance(dims, int):
        return one_dim(dims, rank)
    return tuple(one_dim(d, rank) for d in sizes_of(tuple(dims)))


def marked(pairs: Tensor) -> Tensor:
    """A tensor of pairs that was just made, from now on standing for complex numbers."""
    pairs.__class__ = ComplexPairs
    return pairs


def is_marked(x: Any) -> TypeGuard[ComplexPairs]:
    """Whether a tensor represents complex numbers."""
    return isinstance(x, ComplexPairs)


def without_mark(x: Any) -> Any:
    """The same value, history and memory without the mark; another tensor as it is. To read, not to write."""
    if not is_marked(x):
        return x
    pairs = Tensor.detach(x)
    if x.node is not None:
        pairs.node, pairs.port = x.node, x.port
    return pairs


def view_as_real(input: Any) -> Tensor:
    """The pairs [..., 2] of real and imaginary part, sharing memory: a tensor like others. Takes what `ox.fft` gives,
    and pairs that are plain already. `torch.view_as_real`.

    Raises:
        ShapeError: no pairs.
    """
    if not is_marked(input):
        return _of_two(input, "view_as_real")
    input.__class__ = Tensor  # type: ignore[assignment]  # a view is of the tensor itself, so that a write through it reaches its history
    try:
        return ops.Identity(input)
    finally:
        input.__class__ = ComplexPairs


def view_as_complex(input: Any) -> Tensor:
    """Pairs [..., 2], sharing memory, as complex numbers for `ox.fft` and `ox.istft`. `torch.view_as_complex`.

    Raises:
        ShapeError: no pairs.
    """
    return input if is_marked(input) else marked(ops.Identity(_of_two(input, "view_as_complex")))


def _of_two(given: Any, what: str) -> Tensor:
    x: Tensor = as_input(given)
    if not x.array.ndim or x.static_shape[-1] != 2 or not is_floating(x.array.dtype):
        raise ShapeError(
            f"{what} takes pairs of real and imaginary part",
            expected="floats [..., 2]",
            got=f"{x.array.dtype} {list(x.static_shape)}",
        )
    return x


def _numbers(pairs: Any) -> Any:
    made = np.empty(pairs.shape[:-1], np.complex128 if pairs.dtype == np.float64 else np.complex64)
    made.real, made.imag = pairs[..., 0], pairs[..., 1]
    return made


def _refused(what: str) -> PairsError:
    return PairsError(
        f"{what} has another meaning for complex numbers, which this tensor of pairs represents",
        expected="real numbers",
        got="pairs of real and imaginary part [..., 2], as ox.fft gives them",
        hint=_HINT,
    )


def _refuse_format(memory_format: Any) -> None:
    if channels_format(memory_format):
        raise _refused(repr(memory_format))


def pairs_of(other: Any, what: str) -> Any:
    if not is_marked(other):
        raise _refused(f"{what} with a real number")
    return other


def _number(other: Any, what: str) -> Any:
    """A real factor, or a tensor of them, one for each number."""
    if isinstance(other, Tensor) and not is_marked(other):
        return other.unsqueeze(-1) if other.array.ndim else other
    if isinstance(other, int | float | np.number) and not np.iscomplexobj(other):
        return other
    raise _refused(what)


def _leading(index: Any, x: ComplexPairs) -> Any:
    """An index of dimensions before that of the pairs, with an ellipsis written out."""
    parts = list(index) if isinstance(index, tuple) else [index]
    taken = sum(_dims_of(part) for part in parts if part is not None and part is not Ellipsis)
    if taken > x.ndim:
        raise BoundsError("an index takes more dimensions than there are", expected=f"at most {x.ndim}", got=str(taken))
    where = next((i for i, part in enumerate(parts) if part is Ellipsis), None)
    if where is not None:
        parts[where : where + 1] = [slice(None)] * (x.ndim - taken)
    return tuple(parts)


def _dims_of(part: Any) -> int:
    """How many dimensions one entry of an index takes."""
    array = getattr(part, "array", part)
    return int(array.ndim) if getattr(array, "dtype", None) == np.bool_ else 1
