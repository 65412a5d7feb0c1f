"""Tensor's operators and methods: PyTorch's names and niceties as compositions of ONNX operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import functions as F
from ox.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64, is_floating, uint8
from ox.errors import DTypeError
from ox.functions.dims import one_dim
from ox.operands import cast, meet, no_such_type
from ox.ops.operator import OPS, Operator
from ox.where import users_line

if TYPE_CHECKING:
    from ox.tensor import Tensor


def _binary(name: str, *, reflected: bool = False, on_bools: str | None = None) -> Any:
    """The method of an operator, and for two bools that of another, as ONNX does not add or multiply them."""
    op: Operator = OPS[name]

    def method(self: Any, other: Any) -> Any:
        if type(self) is type(other) and self.data.dtype is other.data.dtype:
            a, b = self, other
        else:
            try:
                a, b = meet(self, other)
            except TypeError:
                return NotImplemented
        try:
            return op(b, a) if reflected else op(a, b)
        except DTypeError:
            if on_bools is None or a.data.dtype != bool_:
                raise
            return OPS[on_bools](a, b)

    method.__doc__ = op.__doc__
    return method


def _infix(name: str, *, reflected: bool = False) -> Any:
    """The function `name` behind an infix sign: what it cannot take Python offers to the other side."""
    function = getattr(F, name)

    def method(self: Any, other: Any) -> Any:
        if not hasattr(other, "node") and not isinstance(other, (bool, int, float, np.generic, np.ndarray)):
            return NotImplemented
        return function(F.like(other, self), self) if reflected else function(self, other)

    method.__doc__ = function.__doc__
    return method


def _function(name: str) -> Any:
    """The function of `ox.functions` as a method."""
    return getattr(F, name)


def _in_place(name: str) -> Any:
    """The method `name` followed by a write into this tensor; `torch.Tensor.<name>_`."""

    def method(self: Any, *args: Any, **kwargs: Any) -> Tensor:
        result = getattr(self, name)(*args, **kwargs)
        if result is NotImplemented:
            return result  # type: ignore[no-any-return]
        have, came = self.data.dtype, result.data.dtype
        if have != came and ((not is_floating(have) and is_floating(came)) or have == bool_):
            raise DTypeError(
                f"{name}_ gives {came}, which does not go into {have} in place",
                where=users_line(2),
                hint="the out-of-place form, which makes a new tensor",
            )
        return self.assign(result, f"{name}_")  # type: ignore[no-any-return]

    method.__doc__ = (
        f"`{name}` in place; the version counts up. Raises GradientError where a gradient needs the old value."
    )
    return method


class Methods:
    """Mixed into `ox.Tensor`."""

    __add__, __radd__ = _binary("Add", on_bools="Or"), _binary("Add", reflected=True, on_bools="Or")
    __sub__, __rsub__ = _binary("Sub"), _binary("Sub", reflected=True)
    __mul__, __rmul__ = _binary("Mul", on_bools="And"), _binary("Mul", reflected=True, on_bools="And")
    __eq__ = _binary("Equal")
    __lt__, __gt__ = _binary("Less"), _binary("Greater")
    __le__, __ge__ = _binary("LessOrEqual"), _binary("GreaterOrEqual")
    __ne__ = _infix("ne")
    __truediv__, __rtruediv__ = _infix("div"), _infix("div", reflected=True)
    __floordiv__, __rfloordiv__ = _infix("floor_divide"), _infix("floor_divide", reflected=True)
    __mod__, __rmod__ = _infix("remainder"), _infix("remainder", reflected=True)
    __pow__, __rpow__ = _infix("pow"), _infix("pow", reflected=True)
    __matmul__, __rmatmul__ = _infix("matmul"), _infix("matmul", reflected=True)
    __and__, __rand__ = _infix("bitwise_and"), _infix("bitwise_and", reflected=True)
    __or__, __ror__ = _infix("bitwise_or"), _infix("bitwise_or", reflected=True)
    __xor__, __rxor__ = _infix("bitwise_xor"), _infix("bitwise_xor", reflected=True)
    __neg__, __abs__, __invert__ = _function("neg"), _function("abs"), _function("bitwise_not")

    def __pos__(self: Any) -> Any:
        return self

    def __contains__(self: Any, value: Any) -> Any:
        """Whether some element equals `value`."""
        return bool((self == value).any().item())

    def __getitem__(self: Any, index: Any) -> Tensor:
        from ox.indexing import get

        return get(self, index)

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        from ox.indexing import put

        put(self, index, value)

    # element by element
    add, sub, subtract, mul, multiply = map(_function, ("add", "sub", "sub", "mul", "mul"))
    eq, lt, gt, le, ge, ne = map(_function, ("eq", "lt", "gt", "le", "ge", "ne"))
    sign, sin, cos, floor, ceil = map(_function, ("sign", "sin", "cos", "floor", "ceil"))
    floor_divide, remainder, isclose = map(_function, ("floor_divide", "remainder", "isclose"))
    neg, abs, sqrt, rsqrt, reciprocal = map(_function, ("neg", "abs", "sqrt", "rsqrt", "reciprocal"))
    exp, log, erf, tanh, sigmoid, relu = map(_function, ("exp", "log", "erf", "tanh", "sigmoid", "relu"))
    div, divide, pow, square = map(_function, ("div", "div", "pow", "square"))
    clamp, clip, maximum, minimum = map(_function, ("clamp", "clamp", "maximum", "minimum"))
    logical_and, logical_or, logical_xor = map(_function, ("logical_and", "logical_or", "logical_xor"))
    bitwise_and, bitwise_or, bitwise_xor = map(_function, ("bitwise_and", "bitwise_or", "bitwise_xor"))
    logical_not, bitwise_not = map(_function, ("logical_not", "bitwise_not"))
    masked_fill, isnan, isfinite, isinf = map(_function, ("masked_fill", "isnan", "isfinite", "isinf"))
    # over dimensions
    sum, mean, amax, amin, max, min = map(_function, ("sum", "mean", "amax", "amin", "max", "min"))
    argmax, argmin, var, std, norm = map(_function, ("argmax", "argmin", "var", "std", "norm"))
    softmax, log_softmax, all, any = map(_function, ("softmax", "log_softmax", "all", "any"))
    equal, allclose = map(_function, ("equal", "allclose"))
    # products
    matmul, mm, bmm, dot = map(_function, ("matmul", "matmul", "matmul", "matmul"))
    # shapes
    reshape, view, flatten, unflatten = map(_function, ("reshape", "reshape", "flatten", "unflatten"))
    transpose, permute, squeeze, unsqueeze = map(_function, ("transpose", "permute", "squeeze", "unsqueeze"))
    expand, broadcast_to, repeat, t, flip = map(_function, ("expand", "broadcast_to", "repeat", "t", "flip"))
    split, chunk, narrow, unbind = map(_function, ("split", "chunk", "narrow", "unbind"))
    # picking
    gather, index_select, scatter, scatter_add = map(_function, ("gather", "index_select", "scatter", "scatter_add"))

    add_, sub_, mul_, div_, pow_ = map(_in_place, ("add", "sub", "mul", "div", "pow"))
    exp_, log_, sqrt_, neg_, abs_ = map(_in_place, ("exp", "log", "sqrt", "neg", "abs"))
    relu_, sigmoid_, tanh_, clamp_ = map(_in_place, ("relu", "sigmoid", "tanh", "clamp"))
    masked_fill_, scatter_, scatter_add_ = map(_in_place, ("masked_fill", "scatter", "scatter_add"))
    floor_divide_, remainder_, clip_ = map(_in_place, ("floor_divide", "remainder", "clamp"))
    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_
    __ifloordiv__, __imod__, __ipow__ = floor_divide_, remainder_, pow_
    __iand__, __ior__, __ixor__ = map(_in_place, ("__and__", "__or__", "__xor__"))

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
            copied._base, copied._viewed, copied._version = None, None, [self.version, ""]  # it is no view after all
        return copied

    def contiguous(self: Any) -> Tensor:
        """Itself when the array is in row-major order, else a copy that is."""
        return self if self.data.flags.c_contiguous else self.clone()  # type: ignore[no-any-return]

    # types and devices
    def to(self: Any, *args: Any, dtype: DType | None = None, device: str | None = None) -> Tensor:
        """Another element type, another device, or both: ``x.to(ox.float16)``, ``x.to("cuda")``, ``x.to(other)``.

        Raises:
            DTypeError: no such type.
            DeviceError: no such device here.
        """
        for arg in args:
            if hasattr(arg, "node"):
                dtype, device = arg.data.dtype, arg.device
            elif isinstance(arg, str) and arg.split(":")[0] in ("cpu", "cuda"):
                device = arg
            else:
                dtype = arg
        x = self if device is None or device == self.device else F.to_device(self, device)
        if dtype is None:
            return x
        try:
            wanted = np.dtype(dtype)
        except TypeError:
            raise no_such_type(dtype) from None
        return cast(x, wanted)

    def type_as(self: Any, other: Any) -> Tensor:
        return self.to(other)  # type: ignore[no-any-return]

    def float(self: Any) -> Tensor:
        return cast(self, float32)

    def double(self: Any) -> Tensor:
        return cast(self, float64)

    def half(self: Any) -> Tensor:
        return cast(self, float16)

    def bfloat16(self: Any) -> Tensor:
        return cast(self, bfloat16)

    def int(self: Any) -> Tensor:
        return cast(self, int32)

    def long(self: Any) -> Tensor:
        return cast(self, int64)

    def byte(self: Any) -> Tensor:
        return cast(self, uint8)

    def bool(self: Any) -> Tensor:
        return cast(self, bool_)

    def cpu(self: Any) -> Tensor:
        return self.to("cpu")  # type: ignore[no-any-return]

    def cuda(self: Any) -> Tensor:
        return self.to("cuda")  # type: ignore[no-any-return]

    # sizes
    def size(self: Any, dim: Any = None) -> Any:
        """The shape, or one size of it."""
        return self.shape if dim is None else self.shape[one_dim(dim, self.data.ndim)]

    def dim(self: Any) -> Any:
        """How many dimensions."""
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

    def new_zeros(self: Any, *shape: Any, dtype: DType | None = None) -> Tensor:
        """Zeros in the type and on the device of this tensor."""
        return F.full_like_shape(self, shape, 0, dtype)

    def new_ones(self: Any, *shape: Any, dtype: DType | None = None) -> Tensor:
        """Ones in the type and on the device of this tensor."""
        return F.full_like_shape(self, shape, 1, dtype)

    def new_full(self: Any, shape: Any, value: Any, dtype: DType | None = None) -> Tensor:
        """A shape full of one number in the type and on the device of this tensor."""
        return F.full_like_shape(self, (shape,), value, dtype)
