"""The Tensor: an array, who made it, and PyTorch's names over ONNX's operators."""

from __future__ import annotations

import sys
from copy import deepcopy
from typing import Any

import numpy as np
from numpy import ndarray

from ox.core import operator
from ox.core.changes import CHANGES
from ox.core.mode import MODE
from ox.core.node import Leaf, Node
from ox.core.symbolic import Dim, note_lost_size
from ox.core.tensor import TensorBase
from ox.devices import cuda_state
from ox.devices.gpu import device_checks
from ox.dtypes import get_default_dtype, is_floating
from ox.errors import ArgumentError, DTypeError, GradientError, RecordError, ShapeError
from ox.tensors.aliasing import Aliases
from ox.tensors.methods.operators import Methods
from ox.tensors.storages import share_as

new = object.__new__


class Tensor(Methods, Aliases, TensorBase):
    """A NumPy or CuPy array that remembers how it was computed. `torch.Tensor`.

    Called, it is PyTorch's older way of making one: of sizes, or of values that become `ox.get_default_dtype()`,
    where an array of that type is shared; `ox.tensor` keeps the type that the values have.
    """

    _grad: Tensor | None = None
    _retain: bool = False

    __array_priority__ = 1000  # numpy_array + tensor calls the tensor's method

    def __init__(self, *data: Any) -> None:
        from ox.tensors.legacy_types import typed_array

        self.array = typed_array(data, get_default_dtype())

    # -- what it is --------------------------------------------------------------------------------------------

    @property
    def data(self) -> Tensor:
        """The same memory as a tensor outside the graph; the NumPy or CuPy array itself is `.array`.

        What is written through it is not counted, as in PyTorch; under a recording it is, for a graph must know. Set to
        another tensor, this one now shares that memory.
        """
        other = self.detach()
        if MODE.get().recording is None:
            other._writes = None
        return other

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise ArgumentError(
                "x.data is set to a tensor", got=type(value).__name__,
                hint="ox.as_tensor(value), or x.array for the array itself",
            )  # fmt: skip
        if value.array.dtype != self.array.dtype and self.node is not None:
            raise DTypeError(
                "x.data cannot change the element type of a tensor that a gradient follows",
                expected=str(self.array.dtype), got=str(value.array.dtype), hint="model.to(dtype)",
            )  # fmt: skip
        recording = MODE.get().recording
        if recording is not None and recording.guarded:
            recording.refuse(RecordError("a tensor is given other memory (.data is set)"))
        self.array, self._writes = value.array, value._shared_version()
        self._base = self._viewed = self._origin = None

    @property
    def requires_grad(self) -> bool:
        return self.node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value == (self.node is not None):
            return
        CHANGES.count += 1
        if not value:
            if not self.is_leaf:
                raise GradientError(
                    "only a leaf can stop requiring a gradient", hint="x.detach(), or with ox.no_grad()"
                )
            self.node = None
            return
        if not is_floating(self.array.dtype):
            raise DTypeError(
                f"a tensor of type {self.array.dtype} cannot require a gradient",
                expected="a floating type",
                hint="x.float().requires_grad_()",
            )
        if MODE.get().inference:
            raise GradientError("a tensor made in inference_mode cannot require a gradient")
        self.node = Leaf(self)

    @property
    def grad(self) -> Tensor | None:
        """What backward collected; None before the first one. A tensor of this shape, type and device may be set."""
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            self._refuse_grad(value)
        recording = MODE.get().recording
        if recording is not None:
            recording.on_grad(self)
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    def _refuse_grad(self, value: Any) -> None:
        """Raise an error for what cannot be the gradient of this tensor."""
        sparse = getattr(value, "is_sparse", False)
        if not isinstance(value, Tensor) and not sparse:
            raise DTypeError("a gradient is a tensor or None", got=type(value).__name__)
        if value is self:
            raise ArgumentError("a tensor cannot be its own gradient")
        own, other = self.array, value if sparse else value.array
        if other.shape != own.shape:
            raise ShapeError(
                "a gradient has the shape of its tensor", expected=str(list(own.shape)), got=str(list(other.shape))
            )
        if other.dtype != own.dtype or (not sparse and type(other) is not type(own)):
            raise DTypeError(
                "a gradient has the type and device of its tensor",
                expected=f"{own.dtype} on {self.device}",
                got=f"{other.dtype} on {value.device}",
            )

    @property
    def grad_fn(self) -> Node | None:
        return self.node if isinstance(self.node, Node) else None

    @property
    def is_leaf(self) -> bool:
        return not isinstance(self.node, Node)

    # -- copies ------------------------------------------------------------------------------------------------

    def __reduce__(self) -> tuple[Any, ...]:
        """For `copy` and `pickle`: the array, whether it requires a gradient, and what a subclass added."""
        self._refuse_under_recording("copy or pickle")
        if not self.is_leaf:
            raise GradientError(
                "only a leaf can be copied with copy or pickle, for a copy has no history",
                hint="x.clone(), or x.detach() first",
            )
        added = {name: value for name, value in vars(self).items() if name not in OWN}
        return _rebuilt, (type(self), self.array, self.requires_grad, added)

    def __deepcopy__(self, memo: dict[int, Any]) -> Tensor:
        """A copy in new memory, which it shares with the copies of the views of this tensor. `torch.Tensor`'s."""
        _, (kind, array, requires_grad, added) = self.__reduce__()
        made = memo[id(self)] = _rebuilt(kind, cuda_state.copy(array), requires_grad, deepcopy(added, memo))
        share_as(memo, self, made)
        made.grad = deepcopy(self.grad, memo)
        return made

    # -- autograd ----------------------------------------------------------------------------------------------

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        self.requires_grad = requires_grad
        return self

    def backward(
        self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False, inputs: Any = None
    ) -> None:
        """Add the gradient of this tensor to `.grad` of every leaf it was computed from. `torch.Tensor.backward`.

        Args:
            gradient: cotangent of this tensor's shape; may be left out for a single element.
            retain_graph: keep what was saved, so that backward can run again; default `create_graph`.
            create_graph: make the gradients differentiable themselves.
            inputs: the tensors whose `.grad` is filled; by default all leaves.

        Raises:
            GradientError: nothing requires a gradient, the graph was freed, or a saved tensor changed in place.
        """
        from ox.autograd.backward_pass import backward

        backward([self], [gradient], retain_graph, create_graph, inputs)

    def retain_grad(self) -> None:
        """Fill `.grad` of this tensor too, though it is not a leaf. Raises GradientError if it has no gradient."""
        from ox.autograd.hooks import retain

        if not self._retain and not isinstance(self.node, Leaf):
            retain(self)
            self._retain = True

    def register_hook(self, hook: Any) -> Any:
        """Call `hook(grad)` when this tensor's gradient is known; what it returns, if not None, replaces it.

        Returns a handle whose `remove()` takes the hook away. Raises GradientError if the tensor has no gradient.
        """
        from ox.autograd.hooks import register

        return register(self, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Any:
        """Call `hook(tensor)` when a backward has filled `.grad` of this leaf. Returns a handle with `remove()`.
        Raises GradientError for a tensor that is no leaf or does not require a gradient."""
        from ox.autograd.hooks import register_after

        return register_after(self, hook)

    @property
    def retains_grad(self) -> bool:
        """Whether `.grad` of this tensor, which is no leaf, is filled: `retain_grad` was called."""
        return self._retain

    # -- out to Python and NumPy -------------------------------------------------------------------------------

    def _refuse_under_recording(self, what: str) -> None:
        recorded = self._recorded
        if recorded is None:
            recording = MODE.get().recording
            if recording is not None:
                recording.on_value(self, what)
        elif recorded.active():
            recorded.recording.refuse(
                RecordError(
                    f"{what} needs the value of a tensor, which a recording does not have",
                    hint="ox.cond, ox.while_loop or ox.scan for control flow, ox.where(condition, a, b) for a choice "
                    "of values; shapes are known: x.shape[0]",
                )
            )

    def item(self) -> Any:
        """The only element as a Python number."""
        self._refuse_under_recording("item()")
        if self.array.size != 1:
            raise ArgumentError(
                "item() needs a tensor of one element",
                got=str(list(self.static_shape)),
                hint="x.tolist(), or x[i].item()",
            )
        value = self.array.item()
        if cuda_state.in_use:
            device_checks.raise_if_wrong()
        return float(value) if is_floating(self.array.dtype) else value

    def tolist(self) -> Any:
        self._refuse_under_recording("tolist()")
        made = self.array.tolist()
        if cuda_state.in_use:
            device_checks.raise_if_wrong()
        return made

    def numpy(self, *, force: bool = False) -> ndarray[Any, Any]:
        """The array itself, sharing memory; with `force` of any tensor, on the CPU and without its history.

        Raises:
            GradientError: a tensor that requires a gradient.
            ArgumentError: one on a GPU.
        """
        self._refuse_under_recording("numpy()")
        if force:
            return self.detach().cpu().array
        if self.node is not None and MODE.get().grad:
            raise GradientError("numpy() on a tensor that requires a gradient", hint="x.detach().numpy()")
        if not isinstance(self.array, ndarray):
            raise ArgumentError("numpy() on a CUDA tensor", hint="x.cpu().numpy()")
        return self.array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> ndarray[Any, Any]:
        self._refuse_under_recording("numpy conversion")
        array = self.detach().cpu().array
        return np.array(array, dtype, copy=copy) if copy is not None else np.asarray(array, dtype)

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
        """What a function of NumPy made of this tensor, as a tensor: ``np.sqrt(x)``."""
        return make_tensor(np.asarray(array))

    def __bool__(self) -> bool:
        recorded = self._recorded
        if recorded is not None and recorded.active():
            from ox.tensors.recorded_assertion import passing

            wanted = None if recorded.recording.guarded else passing(sys._getframe(1))
            if wanted is not None:
                return wanted
            self._refuse_under_recording("bool() (an `if` or `while`)")
        if self.array.size != 1:
            raise ArgumentError(
                "whether a tensor of several elements is true is ambiguous",
                got=str(list(self.static_shape)),
                hint="x.any(), x.all(), or ox.equal(x, y)",
            )
        return bool(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __index__(self) -> int:
        if self.array.dtype.kind not in "iub":
            raise DTypeError(
                "only an integer tensor can be an index or a count",
                got=f"{self.array.dtype} {list(self.static_shape)}",
                hint="int(x), which drops the fraction",
            )
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __format__(self, spec: str) -> str:
        """``f"{loss}"`` and ``f"{loss:.3f}"`` format the number of a tensor of no dimensions, or of one element."""
        return format(self.item(), spec) if spec or (not self.array.ndim and type(self) is Tensor) else str(self)

    def __len__(self) -> int:
        if not self.array.ndim:
            raise NoLengthError("a tensor of no dimensions has no length", hint="x.item()")
        size = self.shape[0]
        if isinstance(size, Dim):
            note_lost_size(size)
        return size

    def __iter__(self) -> Any:
        return (self[i] for i in range(len(self)))

    def __repr__(self) -> str:
        from ox.tensors.printing import format_tensor

        recording = MODE.get().recording
        if recording is not None and recording.guarded:  # one for a file may print what it records
            self._refuse_under_recording("the text of a tensor")
        return format_tensor(self)

    __hash__ = object.__hash__


class NoLengthError(ArgumentError, TypeError):
    """`len` or iteration of a tensor of no dimensions: a TypeError too, as Python wants it."""


OWN = frozenset(("array", "node", "port", "_grad", "_writes", "_base", "_viewed", "_origin", "_recorded", "_retain"))


def _rebuilt(kind: type[Tensor], array: Any, requires_grad: bool, added: dict[str, Any]) -> Tensor:
    """A tensor of any subclass from what `__reduce__` gave."""
    made = new(kind)
    made.array = array
    vars(made).update(added)
    if requires_grad:
        made.node = Leaf(made)
    return made


def make_tensor(array: Any) -> Tensor:
    """The cheapest way from a kernel's result to a Tensor."""
    t = new(Tensor)
    t.array = array if type(array) is ndarray or not isinstance(array, np.generic) else np.asarray(array)
    return t


def as_input(x: Any) -> Tensor:
    """A Tensor from what an operator may be given besides one: an array, or Python numbers (in NumPy's types)."""
    if isinstance(x, Tensor):
        return x
    if isinstance(x, np.generic) or not hasattr(x, "dtype"):
        x = np.asarray(x)
    return make_tensor(x)


operator.tensor_class, operator.make_tensor, operator.as_input = Tensor, make_tensor, as_input
