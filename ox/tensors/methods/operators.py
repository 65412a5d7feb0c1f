"""Tensor's operators and methods: PyTorch's names and niceties as compositions of ONNX operators."""

from __future__ import annotations

import builtins
from typing import TYPE_CHECKING, Any

import numpy as np

from ox import functions as F
from ox.core.device import KINDS
from ox.core.device import device as Device
from ox.core.memory_format import preserve_format
from ox.core.operator import OPS
from ox.core.promotion import cast, no_such_type
from ox.core.tensor import is_tensor
from ox.dtypes import (
    DType,
    bfloat16,
    bool_,
    float16,
    float32,
    float64,
    int8,
    int16,
    int32,
    int64,
    is_floating,
    uint8,
)
from ox.errors import CallError
from ox.functions.dimension_arguments import one_dim
from ox.tensors.dlpack import Exchange
from ox.tensors.methods.binding import binary, function, in_place, infix
from ox.tensors.methods.index import IndexMethods
from ox.tensors.methods.linalg import MatrixMethods
from ox.tensors.methods.memory import MemoryMethods
from ox.tensors.methods.pointwise import PointwiseMethods
from ox.tensors.methods.random import RandomMethods
from ox.tensors.methods.reduce import ReduceMethods
from ox.tensors.methods.shape import ShapeMethods
from ox.tensors.methods.sparse import SparseMethods

if TYPE_CHECKING:
    from ox.tensors.tensor import Tensor


def move_arguments(
    args: tuple[Any, ...],
    device: Any,
    dtype: Any,
    tensor: Any,
    non_blocking: builtins.bool = False,
    copy: builtins.bool = False,
) -> tuple[Any, Any, builtins.bool, builtins.bool]:
    """Device, element type, `non_blocking` and `copy` from what `to` got by position, in any of PyTorch's forms."""
    if len(args) == 1 and device is None and tensor is None:  # the usual call
        (arg,) = args
        if isinstance(arg, str) and arg.partition(":")[0] in KINDS:
            return arg, dtype, non_blocking, copy
    flags: list[builtins.bool] = []
    for arg in args if tensor is None else (tensor, *args):
        on, kind = None, None
        if is_tensor(arg):
            on, kind = arg.device, arg.array.dtype
        elif isinstance(arg, builtins.bool):
            flags.append(arg)
        elif isinstance(arg, builtins.int) or (isinstance(arg, str) and arg.split(":")[0] in KINDS):
            on = arg
        else:
            kind = arg
        for name, new, old in (("device", on, device), ("dtype", kind, dtype)):
            if new is not None and old is not None:
                raise CallError(f"to() got {name!r} twice", expected="to(device, dtype), to(other)")
        device, dtype = device if on is None else on, dtype if kind is None else kind
    if len(flags) > 2:
        raise CallError("to() got more than two bools", expected="non_blocking and copy")
    return device, dtype, non_blocking or flags[:1] == [True], copy or flags[1:] == [True]


class Methods(
    Exchange,
    IndexMethods,
    MatrixMethods,
    MemoryMethods,
    PointwiseMethods,
    RandomMethods,
    ReduceMethods,
    ShapeMethods,
    SparseMethods,
):
    """Mixed into `ox.Tensor`."""

    __add__ = binary("Add", on_bools="logical_or")
    __radd__ = binary("Add", reflected=True, on_bools="logical_or")
    __sub__, __rsub__ = binary("Sub", numbers=True), binary("Sub", reflected=True, numbers=True)
    __mul__ = binary("Mul", on_bools="logical_and")
    __rmul__ = binary("Mul", reflected=True, on_bools="logical_and")
    __eq__ = binary("Equal", operands=F.comparable)
    __lt__, __gt__ = (
        binary("Less", operands=F.comparable, on_bools="lt"),
        binary("Greater", operands=F.comparable, on_bools="gt"),
    )
    __le__, __ge__ = (
        binary("LessOrEqual", operands=F.comparable, on_bools="le"),
        binary("GreaterOrEqual", operands=F.comparable, on_bools="ge"),
    )
    __ne__ = infix("ne")
    __truediv__, __rtruediv__ = infix("div"), infix("div", reflected=True)
    __floordiv__, __rfloordiv__ = infix("floor_divide"), infix("floor_divide", reflected=True)
    __mod__, __rmod__ = infix("remainder"), infix("remainder", reflected=True)
    __pow__, __rpow__ = infix("pow"), infix("pow", reflected=True)
    __matmul__, __rmatmul__ = infix("matmul"), infix("matmul", reflected=True)
    __and__, __rand__ = infix("bitwise_and"), infix("bitwise_and", reflected=True)
    __or__, __ror__ = infix("bitwise_or"), infix("bitwise_or", reflected=True)
    __xor__, __rxor__ = infix("bitwise_xor"), infix("bitwise_xor", reflected=True)
    __lshift__, __rlshift__ = infix("bitwise_left_shift"), infix("bitwise_left_shift", reflected=True)
    __rshift__, __rrshift__ = infix("bitwise_right_shift"), infix("bitwise_right_shift", reflected=True)
    __neg__, __abs__, __invert__ = function("neg"), function("abs"), function("bitwise_not")

    def __pos__(self: Any) -> Any:
        return self

    def __contains__(self: Any, value: Any) -> Any:
        """Whether some element equals `value`."""
        return bool((self == value).any().item())

    def __getitem__(self: Any, index: Any) -> Tensor:
        from ox.functions.indexing import get

        return get(self, index)

    def __setitem__(self: Any, index: Any, value: Any) -> None:
        from ox.tensors.assignment import setitem

        setitem(self, index, value)

    # products
    matmul = function("matmul")
    # shapes
    reshape, flatten, unflatten = map(function, ("reshape", "flatten", "unflatten"))
    transpose, permute, squeeze, unsqueeze = map(function, ("transpose", "permute", "squeeze", "unsqueeze"))
    expand, broadcast_to, repeat, t, flip = map(function, ("expand", "broadcast_to", "repeat", "t", "flip"))
    split, chunk, narrow, unbind = map(function, ("split", "chunk", "narrow", "unbind"))

    masked_fill_ = in_place("masked_fill")
    __iadd__, __isub__, __imul__, __itruediv__ = map(in_place, ("add", "sub", "mul", "div"))
    __ifloordiv__, __imod__, __ipow__ = map(in_place, ("floor_divide", "remainder", "pow"))
    __ilshift__, __irshift__ = map(in_place, ("bitwise_left_shift", "bitwise_right_shift"))
    __iand__, __ior__, __ixor__ = map(in_place, ("__and__", "__or__", "__xor__"))

    def zero_(self: Any) -> Tensor:
        """Fill with zeros in place."""
        return self.fill_(0)

    def fill_(self: Any, value: Any) -> Tensor:
        """Fill with one number in place."""
        return self.assign(F.fill(self, value) if is_tensor(value) else F.full_like(self, value), "fill_")

    def copy_(self: Any, other: Any, non_blocking: builtins.bool = False) -> Tensor:
        """Overwrite with `other`, broadcast and cast to this shape and type; `torch.Tensor.copy_`.

        `non_blocking` is accepted for PyTorch's scripts; copies between devices are synchronous.
        """
        source = other if is_tensor(other) else F.like(other, self)
        if source.static_shape != self.static_shape:
            source = F.broadcast_to(source, self.shape)
        return self.assign(cast(source, self.array.dtype), "copy_")

    # types and devices
    def to(
        self: Any,
        *args: Any,
        dtype: DType | None = None,
        device: Any = None,
        tensor: Tensor | None = None,
        non_blocking: builtins.bool = False,
        copy: builtins.bool = False,
        memory_format: Any = None,
    ) -> Tensor:
        """Another element type, another device, or both: ``x.to(ox.float16)``, ``x.to("cuda")``, ``x.to(other)``,
        ``x.to("cpu", ox.float64)``, ``x.to(0)`` for the first GPU.

        Args:
            tensor: one whose type and device are taken; also by position.
            non_blocking: the host does not wait for a copy from pinned memory (`pin_memory`) to a GPU, and that memory
                may not be written before it has ended. Other copies to a GPU never wait; copies from one always do.
            copy: give a copy even where nothing changes; by position it comes after `non_blocking`.
            memory_format: `ox.channels_last`, `ox.channels_last_3d` or `ox.contiguous_format` (row-major) for a result
                that lies so.

        Raises:
            CallError: a type or a device twice.
            DTypeError: no such type.
            DeviceError: no such device here.
            ShapeError: `memory_format` is for another number of dimensions.
        """
        x = self
        if args or tensor is not None:
            device, dtype, non_blocking, copy = move_arguments(args, device, dtype, tensor, non_blocking, copy)
        if device is not None and device != x.device:
            device = Device(f"cuda:{device}" if isinstance(device, builtins.int) else device)
            x = x if device == x.device else F.to_device(x, device, non_blocking)
        if dtype is not None:
            try:
                wanted = np.dtype(dtype)
            except TypeError:
                raise no_such_type(dtype) from None
            x = cast(x, wanted)
        if memory_format is not None and memory_format is not preserve_format:
            x = x.contiguous(memory_format)
        return x.clone(memory_format=memory_format) if x is self and copy else x

    def type(self: Any, dtype: Any = None, non_blocking: builtins.bool = False) -> Any:
        """In another element type, which may be ``ox.LongTensor`` or its name; without one, PyTorch's name of its own.
        `torch.Tensor.type`."""
        from ox.tensors import legacy_types

        if dtype is None:
            return legacy_types.name_of(self.array.dtype, self.device)
        kind = legacy_types.named(dtype) if isinstance(dtype, str) and "Tensor" in dtype else dtype
        return self.to(kind.kind, kind.dtype) if isinstance(kind, legacy_types.Typed) else self.to(kind)

    def new(self: Any, *data: Any) -> Tensor:
        """A tensor of this type and device from sizes or from a sequence, as `ox.Tensor`. `torch.Tensor.new`."""
        from ox.tensors import legacy_types

        return self.new_tensor(legacy_types.typed_array(data, self.array.dtype))

    def type_as(self: Any, other: Any) -> Tensor:
        return self.to(other)

    def float(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, float32) if memory_format is None else self.to(float32, memory_format=memory_format)

    def double(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, float64) if memory_format is None else self.to(float64, memory_format=memory_format)

    def half(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, float16) if memory_format is None else self.to(float16, memory_format=memory_format)

    def bfloat16(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, bfloat16) if memory_format is None else self.to(bfloat16, memory_format=memory_format)

    def int(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, int32) if memory_format is None else self.to(int32, memory_format=memory_format)

    def long(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, int64) if memory_format is None else self.to(int64, memory_format=memory_format)

    def short(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, int16) if memory_format is None else self.to(int16, memory_format=memory_format)

    def char(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, int8) if memory_format is None else self.to(int8, memory_format=memory_format)

    def byte(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, uint8) if memory_format is None else self.to(uint8, memory_format=memory_format)

    def bool(self: Any, memory_format: Any = None) -> Tensor:
        return cast(self, bool_) if memory_format is None else self.to(bool_, memory_format=memory_format)

    def cpu(self: Any, memory_format: Any = None) -> Tensor:
        return self.to("cpu", memory_format=memory_format)

    def cuda(self: Any, device: Any = None, non_blocking: builtins.bool = False, memory_format: Any = None) -> Tensor:
        """On a GPU, by default the current one: ``x.cuda()``, ``x.cuda(1, non_blocking=True)``."""
        where = "cuda" if device is None else f"cuda:{device}" if isinstance(device, builtins.int) else device
        return self.to(where, non_blocking=non_blocking, memory_format=memory_format)

    # sizes
    def size(self: Any, dim: Any = None) -> Any:
        """The shape, or one size of it."""
        return self.shape if dim is None else self.shape[one_dim(dim, self.array.ndim)]

    def dim(self: Any) -> Any:
        """How many dimensions."""
        return self.array.ndim

    def numel(self: Any) -> Any:
        """How many elements; under a recording an `ox.Dim` where a size is one."""
        total: Any = 1
        for size in self.shape:
            total = total * size
        return total

    ndimension, nelement = dim, numel

    def element_size(self: Any) -> Any:
        """Bytes of one element."""
        return self.array.dtype.itemsize

    @property
    def itemsize(self: Any) -> Any:
        """Bytes of one element."""
        return self.array.dtype.itemsize

    @property
    def nbytes(self: Any) -> Any:
        """Bytes of all elements."""
        return self.numel() * self.dtype.itemsize

    def get_device(self: Any) -> Any:
        """The number of its GPU; -1 on the CPU."""
        return -1 if self.device.index is None else self.device.index

    def is_floating_point(self: Any) -> Any:
        return is_floating(self.array.dtype)

    @property
    def T(self: Any) -> Tensor:
        """All dimensions in reverse order."""
        return OPS["Transpose"](self)

    @property
    def H(self: Any) -> Tensor:
        """A matrix with rows and columns exchanged: the conjugate of a real number is itself."""
        return F.t(self)

    @property
    def mH(self: Any) -> Tensor:
        """The last two dimensions exchanged: the conjugate of a real number is itself."""
        return F.transpose(self, -1, -2)

    @property
    def mT(self: Any) -> Tensor:
        """The last two dimensions exchanged."""
        return F.transpose(self, -1, -2)
