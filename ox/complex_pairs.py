"""Tensors that stand for complex numbers: pairs of a real and an imaginary part in a last dimension, as `ox.fft` gives
them. What would mean another thing for complex numbers is refused, for it would give other numbers than PyTorch.

The mark is the class. An operator asks its inputs for their arrays in one place, and a tensor of this class does not
give it there: every operator refuses it, at no cost to other tensors. What is the same for pairs and for complex
numbers is a method of the class, and computes with the tensor without the mark.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from typing import Any, TypeGuard

import numpy as np

from ox import functions as F
from ox import ops
from ox.dtypes import is_floating
from ox.errors import DTypeError, ShapeError
from ox.ops.operator import Operator, as_input
from ox.tensor import Tensor

_CHOKE = Operator.__call__.__code__
_HINT = (
    "p = ox.view_as_real(x) for the pairs [..., 2], a tensor like others: the modulus is p.square().sum(-1).sqrt(), the"
    " angle ox.atan2(p[..., 1], p[..., 0]); a factor for each number is p * factor.unsqueeze(-1)"
)


class ComplexPairs(Tensor):
    """Complex numbers [...] as pairs [..., 2]. Between two of them + and -, and * and / by a number are what they are
    for complex numbers, and so are conj, real, imag and what moves leading dimensions; `numpy`, `tolist` and `item`
    give complex numbers, `array` the pairs.

    Raises:
        DTypeError: an operator that means another thing for complex numbers, or a dimension counted from the end,
            where the pairs are.
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

    def is_floating_point(self) -> bool:
        return False

    # -- the two parts ---------------------------------------------------------------------------------------------

    @property
    def real(self) -> Tensor:
        return view_as_real(self)[..., 0]

    @property
    def imag(self) -> Tensor:
        return view_as_real(self)[..., 1]

    def conj(self) -> Tensor:
        """The complex conjugate."""
        return marked(ops.Mul(plain(self), as_input(np.array([1, -1], self.array.dtype))))

    conj_physical = conj

    def resolve_conj(self) -> Tensor:
        return self

    resolve_neg = resolve_conj

    # -- out to Python and NumPy -----------------------------------------------------------------------------------

    def numpy(self, *, force: bool = False) -> Any:
        """Complex numbers, in memory of their own."""
        return _numbers(plain(self).numpy(force=force))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        numbers = _numbers(plain(self).__array__())
        return numbers if dtype is None else numbers.astype(dtype)

    def tolist(self) -> Any:
        return _numbers(plain(self.detach()).cpu().numpy()).tolist()

    def item(self) -> Any:
        return _numbers(plain(self.detach()).cpu().numpy()).item()

    # -- arithmetic ------------------------------------------------------------------------------------------------

    def __add__(self, other: Any) -> Tensor:
        return marked(plain(self) + plain(_pairs(other, "+")))

    def __sub__(self, other: Any) -> Tensor:
        return marked(plain(self) - plain(_pairs(other, "-")))

    def __neg__(self) -> Tensor:
        return marked(-plain(self))

    def __mul__(self, other: Any) -> Tensor:
        return marked(plain(self) * _number(other, "*"))

    def __truediv__(self, other: Any) -> Tensor:
        return marked(plain(self) / _number(other, "/"))

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
        return marked(plain(self).clone(**options))

    def contiguous(self, memory_format: Any = None) -> Tensor:
        return self

    def to(self, *args: Any, **options: Any) -> Tensor:
        """On another device; another element type is for the pairs."""
        moved = plain(self).to(*args, **options)
        if moved.array.dtype != self.array.dtype or any(isinstance(arg, Tensor) for arg in args):
            raise _refused("another element type")
        return marked(moved)

    # -- places and dimensions -------------------------------------------------------------------------------------

    def __getitem__(self, index: Any) -> Tensor:
        return marked(plain(self)[_leading(index, self)])

    def fill_(self, value: Any) -> Tensor:
        if isinstance(value, int | float) and value == 0:
            view_as_real(self).fill_(0)
            return self
        raise _refused("fill_ with a real number")

    def copy_(self, source: Any, non_blocking: bool = False) -> Tensor:
        view_as_real(self).copy_(plain(_pairs(source, "copy_")))
        return self

    def __setitem__(self, index: Any, value: Any) -> None:
        zero = isinstance(value, int | float) and value == 0
        values = value if zero else plain(_pairs(value, "x[...] ="))
        view_as_real(self)[_leading(index, self)] = values


def _of_another_type(name: str) -> Callable[..., Any]:
    def method(self: ComplexPairs, *args: Any, **kwargs: Any) -> Any:
        raise _refused(f"{name}()")

    return method


for _name in ("float", "double", "half", "bfloat16", "int", "long", "short", "char", "byte", "bool", "type", "type_as"):
    setattr(ComplexPairs, _name, _of_another_type(_name))


def _over_dims(name: str) -> Callable[..., Any]:
    """A function of leading dimensions, counted from the first."""
    function = getattr(F, name)
    signature = inspect.signature(function)

    def method(self: ComplexPairs, *args: Any, **kwargs: Any) -> Any:
        given = signature.bind(self, *args, **kwargs)
        given.apply_defaults()
        last = self.array.ndim - 1 + (name == "unsqueeze")
        for parameter, value in given.arguments.items():
            if parameter in _DIMS:
                for dim in [value] if value is None or isinstance(value, int) else value:
                    if dim is None or not 0 <= dim < last:
                        raise _refused(f"{name} of dimension {dim}, counted from the end or of the pairs themselves")
        given.arguments[next(iter(given.arguments))] = plain(self)
        result = function(*given.args, **given.kwargs)
        return tuple(map(marked, result)) if isinstance(result, (tuple, list)) else marked(result)

    method.__doc__ = function.__doc__
    return method


_DIMS = {"dim", "dims", "dim0", "dim1", "axis0", "axis1", "source", "destination", "start_dim", "end_dim"}
for _name in (
    "unsqueeze", "transpose", "swapaxes", "swapdims", "movedim", "moveaxis", "narrow", "select", "index_select",
    "unbind", "split", "chunk", "sum", "mean", "flip", "roll", "flatten",
):  # fmt: skip
    setattr(ComplexPairs, _name, _over_dims(_name))


def marked(pairs: Tensor) -> Tensor:
    """A tensor of pairs that was just made, from now on standing for complex numbers."""
    pairs.__class__ = ComplexPairs
    return pairs


def is_marked(x: Any) -> TypeGuard[ComplexPairs]:
    """Whether a tensor stands for complex numbers."""
    return isinstance(x, ComplexPairs)


def plain(x: Any) -> Any:
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
    if not x.array.ndim or x.array.shape[-1] != 2 or not is_floating(x.array.dtype):
        raise ShapeError(
            f"{what} takes pairs of real and imaginary part",
            expected="floats [..., 2]",
            got=f"{x.array.dtype} {list(x.array.shape)}",
        )
    return x


def _numbers(pairs: Any) -> Any:
    made = np.empty(pairs.shape[:-1], np.complex128 if pairs.dtype == np.float64 else np.complex64)
    made.real, made.imag = pairs[..., 0], pairs[..., 1]
    return made


def _refused(what: str) -> DTypeError:
    return DTypeError(
        f"{what} means another thing for complex numbers, which this tensor of pairs stands for",
        expected="real numbers",
        got="pairs of real and imaginary part [..., 2], as ox.fft gives them",
        hint=_HINT,
    )


def _pairs(other: Any, what: str) -> Any:
    if not is_marked(other):
        raise _refused(f"{what} with a real number")
    return other


def _number(other: Any, what: str) -> Any:
    """A factor for all: one number, or a tensor of one number."""
    if isinstance(other, int | float | np.number) or (
        isinstance(other, Tensor) and not is_marked(other) and not other.array.ndim
    ):
        return other
    raise _refused(what)


def _leading(index: Any, x: ComplexPairs) -> Any:
    """An index of dimensions before that of the pairs."""
    parts = index if isinstance(index, tuple) else (index,)
    if any(part is Ellipsis for part in parts[:-1]):
        raise _refused("x[..., i], which counts dimensions from the end,")
    if sum(_dims_of(part) for part in parts if part is not None and part is not Ellipsis) >= x.array.ndim:
        raise _refused("an index of the dimension of the pairs")
    return index


def _dims_of(part: Any) -> int:
    """How many dimensions one entry of an index takes."""
    array = getattr(part, "array", part)
    return int(array.ndim) if getattr(array, "dtype", None) == np.bool_ else 1
