"""What operators need of a tensor: its array and its place in autograd's graph. `ox.Tensor` adds PyTorch's names."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeVar

from numpy import ndarray

from ox.core.device import CPU
from ox.core.device import device as Device
from ox.core.size import Size

if TYPE_CHECKING:
    from ox.core.node import Leaf, Node
    from ox.dtypes import DType

TensorType = TypeVar("TensorType", bound="TensorBase")


@cache
def _gpu(number: int) -> Device:
    return Device("cuda", number)


class TensorBase:
    """A NumPy or CuPy array, and which node of autograd's graph made it. `torch._C.TensorBase`.

    What operators, their gradient rules and autograd annotate; everything that users hold is an `ox.Tensor`.
    """

    array: Any
    node: Node | Leaf | None = None  # who made it; a Leaf when requires_grad was set on it
    port: int = 0  # as which output
    _writes: list[Any] | None = None  # [count, last writer], shared by all tensors of the memory; None: never shared
    _base: Any = None  # the tensor whose memory this one shows
    _viewed: list[Any] | None = None  # a number, and weak references to the views of this memory
    _origin: str | None = None  # of a view that a gradient must not write through: how it came about
    _recorded: Any = None  # the value of a recording that this tensor is; ox.graph
    static_shape: tuple[int, ...] = property(  # type: ignore[assignment]
        attrgetter("array.shape"),  # in C: a function of Python takes twice as long
        doc="The sizes of the array as plain ints. `shape` under a recording has `ox.Dim` for those that stay open.",
    )

    @property
    def shape(self) -> Size:
        """Sizes; under a recording those that can depend on an input are `ox.Dim`."""
        recorded = self._recorded
        return Size(self.array.shape if recorded is None else recorded.shape_of(self))

    _stored_shape = shape  # the shape in memory; a subclass may report another one

    @property
    def dtype(self) -> DType:
        return self.array.dtype

    @property
    def ndim(self) -> int:
        return self.array.ndim

    @property
    def device(self) -> Device:
        """``"cpu"`` or ``"cuda:0"``."""
        return CPU if isinstance(self.array, ndarray) else _gpu(self.array.device.id)

    if TYPE_CHECKING:  # ox.Tensor defines them; gradient rules call them
        _grad: Any
        _retain: bool
        is_sparse: bool

        @property
        def version(self) -> int: ...

        grad: Any

        @property
        def requires_grad(self) -> bool: ...
        def contiguous(self) -> Any: ...
        def register_hook(self, hook: Any) -> Any: ...
        def __iter__(self) -> Iterator[Any]: ...
        def detach(self) -> Any: ...
        def clone(self) -> Any: ...
        def alias_of(self, base: Any) -> None: ...
        def shallow_copy(self) -> Any: ...
        def _shared_version(self) -> list[Any]: ...
        def with_history(self, node: Node, port: int) -> Any: ...
        def __add__(self, other: Any) -> Any: ...
        def __radd__(self, other: Any) -> Any: ...
        def __sub__(self, other: Any) -> Any: ...
        def __rsub__(self, other: Any) -> Any: ...
        def __mul__(self, other: Any) -> Any: ...
        def __rmul__(self, other: Any) -> Any: ...
        def __truediv__(self, other: Any) -> Any: ...
        def __rtruediv__(self, other: Any) -> Any: ...
        def __neg__(self) -> Any: ...
        def __getitem__(self, key: Any) -> Any: ...


is_tensor: Callable[[Any], bool] = TensorBase.__instancecheck__  # in C, too: as cheap as a test for an attribute
