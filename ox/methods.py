"""Tensor's operators and methods: PyTorch's names and niceties as compositions of ONNX operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import functions as F
from ox.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64, is_floating, uint8
from ox.operands import cast, meet
from ox.ops.operator import OPS, Operator

if TYPE_CHECKING:
    from ox.tensor import Tensor


def _binary(name: str, *, reflected: bool = False) -> Any:
    op: Operator = OPS[name]

    def method(self: Any, other: Any) -> Any:
        if type(self) is type(other) and self.data.dtype is other.data.dtype:
            return op(other, self) if reflected else op(self, other)
        try:
            a, b = meet(self, other)
        except TypeError:
            return NotImplemented
        return op(b, a) if reflected else op(a, b)

    method.__doc__ = op.__doc__
    return method


def _function(name: str) -> Any:
    """The function of `ox.functions` as a method."""
    return getattr(F, name)


def _in_place(name: str) -> Any:
    """The method `name` followed by a write into this tensor; `torch.Tensor.<name>_`."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        return self.assign(getattr(self, name)(*args, **kwargs), f"{name}_")  # type: ignore[no-any-return]

    method.__doc__ = (
        f"`{name}` in place; the version counts up. Raises GradientError where a gradient needs the old value."
    )
    return method


class Methods:
    """Mixed into `ox.Tensor`."""

    __add__, __radd__ = _binary("Add"), _binary("Add", reflected=True)
    __sub__, __rsub__ = _binary("Sub"), _binary("Sub", reflected=True)
    __mul__, __rmul__ = _binary("Mul"), _binary("Mul", reflected=True)
    __eq__ = _binary("Equal")
    __lt__, __gt__ = _binary("Less"), _binary("Greater")
    __le__, __ge__ = _binary("LessOrEqual"), _binary("GreaterOrEqual")
    add, mul, multiply = __add__, __mul__, __mul__
    eq, lt, gt, le, ge = __eq__, __lt__, __gt__, __le__, __ge__
    __truediv__, __floordiv__, __mod__ = _function("div"), _function("floor_divide"), _function("remainder")
    __pow__, __matmul__, __ne__ = _function("pow"), _function("matmul"), _function("ne")
    __and__, __or__, __invert__ = _function("logical_and"), _function("logical_or"), _function("logical_not")
    __neg__, __abs__ = _function("neg"), _function("abs")

    def __rtruediv__(self, other: Any) -> Tensor:
        return F.div(F.like(other, self), self)

    def __rfloordiv__(self, other: Any) -> Tensor:
        return F.floor_divide(F.like(other, self), self)

    def __rpow__(self, other: Any) -> Tensor:
        return F.pow(F.like(other, self), self)

    def __rmatmul__(self, other: Any) -> Tensor:
        return F.matmul(F.like(other, self), self)

    def __getitem__(self, index: Any) -> Tensor:
        from ox.indexing import get

        return get(self, index)

    def __setitem__(self, index: Any, value: Any) -> None:
        from ox.indexing import put

        put(self, index, value)

    # element by element
    neg, abs, sqrt, rsqrt, reciprocal = map(_function, ("neg", "abs", "sqrt", "rsqrt", "reciprocal"))
    exp, log, erf, tanh, sigmoid, relu = map(_function, ("exp", "log", "erf", "tanh", "sigmoid", "relu"))
    div, divide, sub, subtract, pow, square = map(_function, ("div", "div", "sub", "sub", "pow", "square"))
    clamp, clip, maximum, minimum = map(_function, ("clamp", "clamp", "maximum", "minimum"))
    ne, logical_and, logical_or, logical_not = map(_function, ("ne", "logical_and", "logical_or", "logical_not"))
    masked_fill, isnan, isfinite, isinf = map(_function, ("masked_fill", "isnan", "isfinite", "isinf"))
    # over dimensions
    sum, mean, amax, amin, max, min = map(_function, ("sum", "mean", "amax", "amin", "max", "min"))
    argmax, argmin, var, std, norm = map(_function, ("argmax", "argmin", "var", "std", "norm"))
    softmax, log_softmax, all, any = map(_function, ("softmax", "log_softmax", "all", "any"))
    # products
    matmul, mm, bmm, dot = map(_function, ("matmul", "matmul", "matmul", "matmul"))
    # shapes
    reshape, view, flatten, unflatten = map(_function, ("reshape", "reshape", "flatten", "unflatten"))
    transpose, permute, squeeze, unsqueeze = map(_function, ("transpose", "permute", "squeeze", "unsqueeze"))
    expand, broadcast_to, repeat = map(_function, ("expand", "broadcast_to", "repeat"))
    split, chunk, narrow, unbind = map(_function, ("split", "chunk", "narrow", "unbind"))
    # picking
    gather, index_select, scatter, scatter_add = map(_function, ("gather", "index_select", "scatter", "scatter_add"))

    add_, sub_, mul_, div_, pow_ = map(_in_place, ("add", "sub", "mul", "div", "pow"))
    exp_, log_, sqrt_, neg_, abs_ = map(_in_place, ("exp", "log", "sqrt", "neg", "abs"))
    relu_, sigmoid_, tanh_, clamp_ = map(_in_place, ("relu", "sigmoid", "tanh", "clamp"))
    masked_fill_, scatter_, scatter_add_ = map(_in_place, ("masked_fill", "scatter", "scatter_add"))
    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_

    def zero_(self: Any) -> Tensor:
        """Fill with zeros in place."""
        return self.fill_(0)  # type: ignore[no-any-return]

    def fill_(self: Any, value: Any) -> Tensor:
        """Fill with one number in place."""
        return self.assign(F.full_like(self, value), "fill_")  # type: ignore[no-any-return]

    def copy_(self: Any, source: Any) -> Tensor:
        """Overwrite with `source`, broadcast and cast to this shape and type; `torch.Tensor.copy_`."""
        source = F.like(source, self) if not hasattr(source, "node") else source
        if source.data.shape != self.data.shape:
            source = F.broadcast_to(source, self.shape)
        return self.assign(cast(source, self.data.dtype), "copy_")  # type: ignore[no-any-return]

    def clone(self: Any) -> Tensor:
        """A copy in memory of its own; gradients pass."""
        copied = OPS["Identity"](self)
        if copied.data is self.data or copied.data.base is not None:
            copied.data = copied.data.copy()
            copied._version = copied._base = None
        return copied

    def contiguous(self: Any) -> Tensor:
        """Itself when the array is in row-major order, else a copy that is."""
        return self if self.data.flags.c_contiguous else self.clone()  # type: ignore[no-any-return]

    # types and devices
    def to(self: Any, *args: Any, dtype: DType | None = None, device: str | None = None) -> Tensor:
        """Another element type, another device, or both: ``x.to(ox.float16)``, ``x.to("cuda")``, ``x.to(other)``."""
        for arg in args:
            if hasattr(arg, "node"):
                dtype, device = arg.data.dtype, arg.device
            elif isinstance(arg, str) and arg.split(":")[0] in ("cpu", "cuda"):
                device = arg
            else:
                dtype = np.dtype(arg)
        x = self if device is None or device == self.device else F.to_device(self, device)
        return x if dtype is None else cast(x, np.dtype(dtype))

    def type_as(self: Any, other: Any) -> Tensor:
        return self.to(other)  # type: ignore[no-any-return]

    def float(self) -> Tensor:
        return cast(self, float32)

    def double(self) -> Tensor:
        return cast(self, float64)

    def half(self) -> Tensor:
        return cast(self, float16)

    def bfloat16(self) -> Tensor:
        return cast(self, bfloat16)

    def int(self) -> Tensor:
        return cast(self, int32)

    def long(self) -> Tensor:
        return cast(self, int64)

    def byte(self) -> Tensor:
        return cast(self, uint8)

    def bool(self) -> Tensor:
        return cast(self, bool_)

    def cpu(self: Any) -> Tensor:
        return self.to("cpu")  # type: ignore[no-any-return]

    def cuda(self: Any) -> Tensor:
        return self.to("cuda")  # type: ignore[no-any-return]

    # sizes
    def size(self: Any, dim: Any = None) -> Any:
        """The shape, or one size of it."""
        return self.shape if dim is None else self.shape[dim]

    def dim(self: Any) -> Any:
        return self.data.ndim

    def numel(self: Any) -> Any:
        """How many elements; under a recording an `ox.Dim` where a size is one."""
        total: Any = 1
        for size in self.shape:
            total = total * size
        return total

    def element_size(self: Any) -> Any:
        """Bytes of one element."""
        return self.data.dtype.itemsize

    def is_floating_point(self: Any) -> Any:
        return is_floating(self.data.dtype)

    def is_contiguous(self: Any) -> Any:
        return self.data.flags.c_contiguous

    @property
    def T(self: Any) -> Tensor:
        """All dimensions in reverse order."""
        return OPS["Transpose"](self)

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions exchanged."""
        return F.transpose(self, -1, -2)

    def t(self: Any) -> Tensor:
        return OPS["Transpose"](self)

    def new_zeros(self: Any, *shape: Any) -> Tensor:
        return F.full_like_shape(self, shape, 0)

    def new_ones(self: Any, *shape: Any) -> Tensor:
        return F.full_like_shape(self, shape, 1)
