"""Tensor's operators and methods: PyTorch's names and niceties as compositions of ONNX operators."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ox import functions as F
from ox.dtypes import DType, bfloat16, bool_, float16, float32, float64, int32, int64, is_floating, uint8
from ox.functions.dims import one_dim
from ox.method import binary, function, in_place, infix
from ox.methods_index import IndexMethods
from ox.methods_shape import ShapeMethods
from ox.operands import cast, no_such_type
from ox.ops.operator import OPS

if TYPE_CHECKING:
    from ox.tensor import Tensor


class Methods(IndexMethods, ShapeMethods):
    """Mixed into `ox.Tensor`."""

    __add__, __radd__ = binary("Add", on_bools="Or"), binary("Add", reflected=True, on_bools="Or")
    __sub__, __rsub__ = binary("Sub"), binary("Sub", reflected=True)
    __mul__, __rmul__ = binary("Mul", on_bools="And"), binary("Mul", reflected=True, on_bools="And")
    __eq__ = binary("Equal")
    __lt__, __gt__ = binary("Less"), binary("Greater")
    __le__, __ge__ = binary("LessOrEqual"), binary("GreaterOrEqual")
    __ne__ = infix("ne")
    __truediv__, __rtruediv__ = infix("div"), infix("div", reflected=True)
    __floordiv__, __rfloordiv__ = infix("floor_divide"), infix("floor_divide", reflected=True)
    __mod__, __rmod__ = infix("remainder"), infix("remainder", reflected=True)
    __pow__, __rpow__ = infix("pow"), infix("pow", reflected=True)
    __matmul__, __rmatmul__ = infix("matmul"), infix("matmul", reflected=True)
    __and__, __rand__ = infix("bitwise_and"), infix("bitwise_and", reflected=True)
    __or__, __ror__ = infix("bitwise_or"), infix("bitwise_or", reflected=True)
    __xor__, __rxor__ = infix("bitwise_xor"), infix("bitwise_xor", reflected=True)
    __neg__, __abs__, __invert__ = function("neg"), function("abs"), function("bitwise_not")

    def __pos__(self: Any) -> Any:
        return self

    def __contains__(self: Any, value: Any) -> Any:
        """Whether some element equals `value`."""
        return bool((self == value).any().item())

    def __getitem__(self: Any, index: Any) -> Tensor:
        from ox.indexing import get

        return get(self, index)

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        from ox.assignment import put

        put(self, index, value)

    # element by element
    add, sub, subtract, mul, multiply = map(function, ("add", "sub", "sub", "mul", "mul"))
    eq, lt, gt, le, ge, ne = map(function, ("eq", "lt", "gt", "le", "ge", "ne"))
    sign, sin, cos, floor, ceil = map(function, ("sign", "sin", "cos", "floor", "ceil"))
    floor_divide, remainder, isclose = map(function, ("floor_divide", "remainder", "isclose"))
    neg, abs, sqrt, rsqrt, reciprocal = map(function, ("neg", "abs", "sqrt", "rsqrt", "reciprocal"))
    exp, log, erf, tanh, sigmoid, relu = map(function, ("exp", "log", "erf", "tanh", "sigmoid", "relu"))
    div, divide, pow, square = map(function, ("div", "div", "pow", "square"))
    clamp, clip, maximum, minimum = map(function, ("clamp", "clamp", "maximum", "minimum"))
    logical_and, logical_or, logical_xor = map(function, ("logical_and", "logical_or", "logical_xor"))
    bitwise_and, bitwise_or, bitwise_xor = map(function, ("bitwise_and", "bitwise_or", "bitwise_xor"))
    logical_not, bitwise_not = map(function, ("logical_not", "bitwise_not"))
    masked_fill, isnan, isfinite, isinf = map(function, ("masked_fill", "isnan", "isfinite", "isinf"))
    # over dimensions
    sum, mean, amax, amin, max, min = map(function, ("sum", "mean", "amax", "amin", "max", "min"))
    argmax, argmin, var, std, norm = map(function, ("argmax", "argmin", "var", "std", "norm"))
    softmax, log_softmax, all, any = map(function, ("softmax", "log_softmax", "all", "any"))
    equal, allclose = map(function, ("equal", "allclose"))
    # products
    matmul = function("matmul")
    # shapes
    reshape, view, flatten, unflatten = map(function, ("reshape", "reshape", "flatten", "unflatten"))
    transpose, permute, squeeze, unsqueeze = map(function, ("transpose", "permute", "squeeze", "unsqueeze"))
    expand, broadcast_to, repeat, t, flip = map(function, ("expand", "broadcast_to", "repeat", "t", "flip"))
    split, chunk, narrow, unbind = map(function, ("split", "chunk", "narrow", "unbind"))

    add_, sub_, mul_, div_, pow_ = map(in_place, ("add", "sub", "mul", "div", "pow"))
    exp_, log_, sqrt_, neg_, abs_ = map(in_place, ("exp", "log", "sqrt", "neg", "abs"))
    relu_, sigmoid_, tanh_, clamp_ = map(in_place, ("relu", "sigmoid", "tanh", "clamp"))
    masked_fill_ = in_place("masked_fill")
    floor_divide_, remainder_, clip_ = map(in_place, ("floor_divide", "remainder", "clamp"))
    __iadd__, __isub__, __imul__, __itruediv__ = add_, sub_, mul_, div_
    __ifloordiv__, __imod__, __ipow__ = floor_divide_, remainder_, pow_
    __iand__, __ior__, __ixor__ = map(in_place, ("__and__", "__or__", "__xor__"))

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
            copied._base, copied._origin, copied._version = None, None, [self.version, ""]  # it is no view after all
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
