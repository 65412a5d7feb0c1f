"""The collectives of `torch.distributed`: in place, on tensors of any layout, blocking or asynchronous."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
from numpy import ndarray

from ox.core import views
from ox.core.mode import MODE
from ox.core.node import CustomNode, Leaf
from ox.devices import cuda_state
from ox.distributed.process_group import ProcessGroup
from ox.distributed.reduce_op import ReduceOp
from ox.distributed.work import Work
from ox.distributed.world import counts_failed_calls, get_group_rank, resolve
from ox.dtypes import is_floating
from ox.errors import ArgumentError, DeviceError, DTypeError, GradientError, ShapeError
from ox.tensors.tensor import Tensor

BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


@counts_failed_calls
def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Let `tensor`, of one shape and type on all ranks, become the reduction over them, on all of them.

    `torch.distributed.all_reduce`. float16 and bfloat16 are summed in float32 and rounded once.

    Returns:
        With `async_op` a Work to wait for; the tensor is not to be touched before.

    Raises:
        DistributedError: a rank is missing, or brings something else. DTypeError: an op that the type has not.
    """
    chosen = resolve(group)
    _check_op(tensor, op, "all_reduce")
    array, back = output_array(chosen, tensor, "all_reduce", op)
    text = f"all_reduce {describe(array)} {op.value}"
    return chosen.start(text, lambda: chosen.backend.all_reduce(array, op), back, async_op, outputs=[tensor])


@counts_failed_calls
def reduce(
    tensor: Tensor, dst: int = 0, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Let `tensor` of rank `dst` become the reduction over all ranks. `torch.distributed.reduce`."""
    chosen = resolve(group)
    _check_op(tensor, op, "reduce")
    array, back = output_array(chosen, tensor, "reduce", op)
    root = get_group_rank(chosen, dst)
    text = f"reduce {describe(array)} {op.value} to rank {dst}"
    return chosen.start(text, lambda: chosen.backend.reduce(array, root, op), back, async_op, outputs=[tensor])


@counts_failed_calls
def broadcast(tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False) -> Work | None:
    """Let `tensor` of all ranks become that of rank `src`. `torch.distributed.broadcast`."""
    chosen = resolve(group)
    array, back = output_array(chosen, tensor, "broadcast")
    root = get_group_rank(chosen, src)
    text = f"broadcast {describe(array)} from rank {src}"
    return chosen.start(text, lambda: chosen.backend.broadcast(array, root), back, async_op, outputs=[tensor])


@counts_failed_calls
def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Let the tensors of `tensor_list`, one a rank, become the ranks' `tensor`s, which have one shape.

    `torch.distributed.all_gather`.
    """
    chosen = resolve(group)
    array = input_array(chosen, tensor, "all_gather")
    targets = _output_arrays(chosen, tensor_list, array, "all_gather")
    out = chosen.backend.empty((chosen.size(), *array.shape), array.dtype)

    def back() -> None:
        for target, row in zip(targets, out, strict=True):
            target[...] = row

    text = f"all_gather {describe(array)}"
    return chosen.start(text, lambda: chosen.backend.all_gather(out, array), back, async_op, outputs=tensor_list)


@counts_failed_calls
def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Let `output_tensor` become the ranks' inputs, concatenated or stacked along its first dimension.

    `torch.distributed.all_gather_into_tensor`.
    """
    chosen = resolve(group)
    array = input_array(chosen, input_tensor, "all_gather_into_tensor")
    out, back = output_array(chosen, output_tensor, "all_gather_into_tensor")
    _check_sizes(out, array, chosen, "all_gather_into_tensor")
    _follow(output_tensor, input_tensor, "all_gather_into_tensor")
    text = f"all_gather_into_tensor {describe(array)}"
    return chosen.start(text, lambda: chosen.backend.all_gather(out, array), back, async_op, outputs=[output_tensor])


@counts_failed_calls
def gather(
    tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Let the tensors of `gather_list` on rank `dst` become the ranks' `tensor`s. `torch.distributed.gather`."""
    chosen = resolve(group)
    array = input_array(chosen, tensor, "gather")
    root = get_group_rank(chosen, dst)
    targets: list[Any] = []
    out = None
    if chosen.rank() == root:
        targets = _output_arrays(chosen, gather_list or (), array, "gather")
        out = chosen.backend.empty((chosen.size(), *array.shape), array.dtype)

    def back() -> None:
        for target, row in zip(targets, out if out is not None else (), strict=True):
            target[...] = row

    text = f"gather {describe(array)} to rank {dst}"
    return chosen.start(
        text, lambda: chosen.backend.gather(out, array, root), back, async_op, outputs=gather_list or ()
    )


@counts_failed_calls
def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Let each rank's `tensor` become its one of rank `src`'s `scatter_list`. `torch.distributed.scatter`."""
    chosen = resolve(group)
    array, back = output_array(chosen, tensor, "scatter")
    root = get_group_rank(chosen, src)
    source = None
    if chosen.rank() == root:
        source = _stack_inputs(chosen, scatter_list or (), array, "scatter")
    text = f"scatter {describe(array)} from rank {src}"
    return chosen.start(text, lambda: chosen.backend.scatter(array, source, root), back, async_op, outputs=[tensor])


@counts_failed_calls
def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Let `output` become the reduction over ranks of their `input_list[rank]`. `torch.distributed.reduce_scatter`."""
    chosen = resolve(group)
    _check_op(output, op, "reduce_scatter")
    array, back = output_array(chosen, output, "reduce_scatter")
    source = _stack_inputs(chosen, input_list, array, "reduce_scatter")
    text = f"reduce_scatter {describe(array)} {op.value}"
    return chosen.start(
        text, lambda: chosen.backend.reduce_scatter(array, source, op), back, async_op, outputs=[output]
    )


@counts_failed_calls
def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Let `output` become this rank's part, along the first dimension, of the reduction of `input` over ranks.

    `torch.distributed.reduce_scatter_tensor`.
    """
    chosen = resolve(group)
    _check_op(output, op, "reduce_scatter_tensor")
    array, back = output_array(chosen, output, "reduce_scatter_tensor")
    source = input_array(chosen, input, "reduce_scatter_tensor")
    _check_sizes(source, array, chosen, "reduce_scatter_tensor")
    _follow(output, input, "reduce_scatter_tensor")
    text = f"reduce_scatter_tensor {describe(array)} {op.value}"
    return chosen.start(
        text, lambda: chosen.backend.reduce_scatter(array, source, op), back, async_op, outputs=[output]
    )


@counts_failed_calls
def all_to_all_single(output: Tensor, input: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Send the parts of `input` along its first dimension, one to each rank; `output` becomes those received.

    `torch.distributed.all_to_all_single`, with equal parts.
    """
    chosen = resolve(group)
    array, back = output_array(chosen, output, "all_to_all_single")
    source = input_array(chosen, input, "all_to_all_single")
    if (
        array.shape != source.shape
        or array.dtype != source.dtype
        or array.shape[:1] == ()
        or (array.shape[0] % chosen.size())
    ):
        raise ShapeError("all_to_all_single sends equal parts", got=f"input {describe(source)}, "
                         f"output {describe(array)} on {chosen.size()} ranks")  # fmt: skip
    text = f"all_to_all_single {describe(array)}"
    return chosen.start(text, lambda: chosen.backend.all_to_all(array, source), back, async_op, outputs=[output])


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Waits until all ranks have reached this call. `torch.distributed.barrier`."""
    chosen = resolve(group)
    return chosen.start("barrier", chosen.backend.barrier, None, async_op, on_host=True)


# -- the arrays of an operation ----------------------------------------------------------------------------------


def _array_of(group: ProcessGroup, tensor: Any, name: str) -> Any:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{name} takes tensors", got=type(tensor).__name__, hint="ox.tensor(value)")
    tensor._refuse_under_recording(name)
    if isinstance(tensor.array, ndarray) != (group.backend.name == "mpi"):
        raise DeviceError(
            f"{name}: the group's backend is {group.backend.name}",
            got=f"a tensor on {tensor.device}",
            expected="a tensor on the cpu" if group.backend.name == "mpi" else "a tensor on cuda",
        )  # fmt: skip
    return tensor.array


def input_array(group: ProcessGroup, tensor: Any, name: str) -> Any:
    """A contiguous array to read."""
    array = _array_of(group, tensor, name)
    return array if array.flags.c_contiguous else cuda_state.copy(array)


class Exchanged(CustomNode):
    """A tensor with a history after a collective wrote it: no gradient comes back from the other ranks.

    After a sum, the gradient of this rank's part is the one that arrives, as in PyTorch, with a warning. After all else
    it would be wrong for sure.
    """

    op = SimpleNamespace(name="Exchanged", single_output=False)

    def __init__(self, tensor: Tensor, name: str, is_sum: bool) -> None:
        self.text, self.is_sum, self.where = name, is_sum, tensor.last_write()
        self.connect([tensor])

    def rule(self, g: Any) -> list[Any]:
        what = f"a gradient reaches a tensor that {self.text} wrote in place"
        hint = "an autograd.Function whose backward exchanges the gradient, or x.detach() where none is wanted"
        if not self.is_sum:
            raise GradientError(what, where=self.where, got="no gradient from the other ranks", hint=hint)
        warnings.warn(f"{what} ({self.where}): that of the other ranks is left out; {hint}", stacklevel=2)
        return [g]


class Unexchanged(CustomNode):
    """What a collective made of a tensor that a gradient follows: it stops here, with a warning, as in PyTorch."""

    op = SimpleNamespace(name="Unexchanged", single_output=False)

    def __init__(self, source: Tensor, name: str, where: str) -> None:
        self.text, self.where = name, where
        self.connect([source])

    def rule(self, g: Any) -> list[Any]:
        warnings.warn(
            f"a gradient reaches what {self.text} made ({self.where}), and goes no further; an autograd.Function whose "
            "backward exchanges the gradient, or x.detach() where none is wanted",
            stacklevel=2,
        )
        return [None]


def _follow(output: Tensor, source: Tensor, name: str) -> None:
    """Let a gradient that reaches the output of a collective say that its input gets none."""
    if MODE.get().grad and source.requires_grad and not output.requires_grad:
        node, shape = Unexchanged(source, name, output.last_write()), output.static_shape
        views.update_history(output, SimpleNamespace(node=node, port=0, shape=shape, _stored_shape=shape))


def _begin_write(tensor: Tensor, name: str, op: ReduceOp | None = None) -> None:
    """Before a collective writes a tensor: what shares its memory has another version, and a history that says so."""
    tensor.ensure_writable(name)
    tensor.count_write(name)
    if MODE.get().grad and tensor.node is not None and not isinstance(tensor.node, Leaf):
        node = Exchanged(tensor, name, op == ReduceOp.SUM)
        shape = tensor.static_shape
        views.update_history(tensor, SimpleNamespace(node=node, port=0, shape=shape, _stored_shape=shape))


def output_array(
    group: ProcessGroup, tensor: Any, name: str, op: ReduceOp | None = None
) -> tuple[Any, Callable[[], None] | None]:
    """A contiguous array to write, and a function that copies it into the tensor if the tensor is not contiguous.

    Args:
        op: how the tensor is reduced with those of the other ranks; None if it is overwritten.
    """
    _array_of(group, tensor, name)
    _begin_write(tensor, name, op)
    array = tensor.array
    if array.flags.c_contiguous:
        return array, None
    copy = cuda_state.copy(array)

    def back() -> None:
        array[...] = copy

    return copy, back


def _output_arrays(group: ProcessGroup, tensors: Sequence[Any], array: Any, name: str) -> list[Any]:
    """The arrays of a list of one output tensor per rank."""
    _check_list(group, tensors, array, name)
    for tensor in tensors:
        _begin_write(tensor, name)
    return [tensor.array for tensor in tensors]


def _stack_inputs(group: ProcessGroup, tensors: Sequence[Any], array: Any, name: str) -> Any:
    """One array from a list of one input tensor per rank."""
    _check_list(group, tensors, array, name)
    source = group.backend.empty((group.size(), *array.shape), array.dtype)
    for row, tensor in zip(source, tensors, strict=True):
        row[...] = tensor.array
    return source


def _check_list(group: ProcessGroup, tensors: Sequence[Any], array: Any, name: str) -> None:
    if len(tensors) != group.size():
        raise ArgumentError(f"{name} takes a list of one tensor a rank",
                            expected=str(group.size()), got=str(len(tensors)))  # fmt: skip
    for tensor in tensors:
        if _array_of(group, tensor, name).shape != array.shape or tensor.dtype != array.dtype:
            raise ShapeError(f"{name}: all tensors have one shape and type",
                             expected=describe(array), got=describe(tensor.array))  # fmt: skip


def _check_sizes(large: Any, small: Any, group: ProcessGroup, name: str) -> None:
    """Raises ShapeError unless `large` has the size of one `small` per rank, concatenated or stacked."""
    if large.size != small.size * group.size() or large.dtype != small.dtype:
        raise ShapeError(
            f"{name}: the large tensor is one small one a rank",
            expected=f"{group.size()} times {describe(small)}", got=describe(large),
        )  # fmt: skip


def _check_op(tensor: Any, op: Any, name: str) -> None:
    if not isinstance(op, ReduceOp):
        raise ArgumentError(f"{name} takes a ReduceOp", got=repr(op), hint="ReduceOp.SUM")
    dtype = getattr(tensor, "dtype", None)
    if dtype is None:
        return  # `_array_of` raises the error
    if op in BITS and is_floating(dtype):
        raise DTypeError(f"{name}: {op.name} is of bits", expected="integers or bools", got=str(dtype))
    if op is ReduceOp.AVG and not is_floating(dtype):
        raise DTypeError(f"{name}: an average has fractions", expected="a floating type",
                         got=str(dtype), hint="ReduceOp.SUM, or tensor.float()")  # fmt: skip


def describe(array: Any) -> str:
    return f"{np.dtype(array.dtype).name} {list(array.shape)}"


__all__ = [
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "barrier", "broadcast", "gather",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
]  # fmt: skip
