"""`torch.distributed`'s collectives: in place, on tensors of any layout, waited for or not."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy import ndarray

from ox.distributed.process_group import ProcessGroup
from ox.distributed.reduce_op import ReduceOp
from ox.distributed.work import Work
from ox.distributed.world import get_group_rank, resolve
from ox.dtypes import is_floating
from ox.errors import ArgumentError, DeviceError, DTypeError, ShapeError
from ox.tensor import Tensor
from ox.where import users_line

BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)


def all_reduce(tensor: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False) -> Work | None:
    """Let `tensor`, of one shape and type on all ranks, become the reduction over them, on all of them.

    `torch.distributed.all_reduce`. float16 and bfloat16 are summed in float32 and rounded once.

    Returns:
        With `async_op` a Work to wait for; the tensor is not to be touched before.

    Raises:
        DistributedError: a rank is missing, or brings something else. DTypeError: an op that the type has not.
    """
    chosen = resolve(group)
    _reducible(tensor, op, "all_reduce")
    array, back = output_array(chosen, tensor, "all_reduce")
    text = f"all_reduce {described(array)} {op.value}"
    return chosen.start(text, lambda: chosen.engine.all_reduce(array, op), back, async_op)


def reduce(
    tensor: Tensor, dst: int = 0, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Let `tensor` of rank `dst` become the reduction over all ranks. `torch.distributed.reduce`."""
    chosen = resolve(group)
    _reducible(tensor, op, "reduce")
    array, back = output_array(chosen, tensor, "reduce")
    root = _root(chosen, dst)
    text = f"reduce {described(array)} {op.value} to rank {dst}"
    return chosen.start(text, lambda: chosen.engine.reduce(array, root, op), back, async_op)


def broadcast(tensor: Tensor, src: int = 0, group: Any = None, async_op: bool = False) -> Work | None:
    """Let `tensor` of all ranks become that of rank `src`. `torch.distributed.broadcast`."""
    chosen = resolve(group)
    array, back = output_array(chosen, tensor, "broadcast")
    root = _root(chosen, src)
    text = f"broadcast {described(array)} from rank {src}"
    return chosen.start(text, lambda: chosen.engine.broadcast(array, root), back, async_op)


def all_gather(tensor_list: Sequence[Tensor], tensor: Tensor, group: Any = None, async_op: bool = False) -> Work | None:
    """Let the tensors of `tensor_list`, one a rank, become the ranks' `tensor`s, which have one shape.

    `torch.distributed.all_gather`.
    """
    chosen = resolve(group)
    array = input_array(chosen, tensor, "all_gather")
    targets = _list(chosen, tensor_list, array, "all_gather")
    out = chosen.engine.empty((chosen.size(), *array.shape), array.dtype)

    def back() -> None:
        for target, row in zip(targets, out, strict=True):
            target[...] = row

    text = f"all_gather {described(array)}"
    return chosen.start(text, lambda: chosen.engine.all_gather(out, array), back, async_op)


def all_gather_into_tensor(
    output_tensor: Tensor, input_tensor: Tensor, group: Any = None, async_op: bool = False
) -> Work | None:
    """Let `output_tensor` become the ranks' inputs, concatenated or stacked along its first dimension.

    `torch.distributed.all_gather_into_tensor`.
    """
    chosen = resolve(group)
    array = input_array(chosen, input_tensor, "all_gather_into_tensor")
    out, back = output_array(chosen, output_tensor, "all_gather_into_tensor")
    _fits(out, array, chosen, "all_gather_into_tensor")
    text = f"all_gather_into_tensor {described(array)}"
    return chosen.start(text, lambda: chosen.engine.all_gather(out, array), back, async_op)


def gather(
    tensor: Tensor, gather_list: Sequence[Tensor] | None = None, dst: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Let the tensors of `gather_list` on rank `dst` become the ranks' `tensor`s. `torch.distributed.gather`."""
    chosen = resolve(group)
    array = input_array(chosen, tensor, "gather")
    root = _root(chosen, dst)
    targets: list[Any] = []
    out = None
    if chosen.rank() == root:
        targets = _list(chosen, gather_list or (), array, "gather")
        out = chosen.engine.empty((chosen.size(), *array.shape), array.dtype)

    def back() -> None:
        for target, row in zip(targets, out if out is not None else (), strict=True):
            target[...] = row

    text = f"gather {described(array)} to rank {dst}"
    return chosen.start(text, lambda: chosen.engine.gather(out, array, root), back, async_op)


def scatter(
    tensor: Tensor, scatter_list: Sequence[Tensor] | None = None, src: int = 0, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Let each rank's `tensor` become its one of rank `src`'s `scatter_list`. `torch.distributed.scatter`."""
    chosen = resolve(group)
    array, back = output_array(chosen, tensor, "scatter")
    root = _root(chosen, src)
    source = None
    if chosen.rank() == root:
        source = _stacked(chosen, scatter_list or (), array, "scatter")
    text = f"scatter {described(array)} from rank {src}"
    return chosen.start(text, lambda: chosen.engine.scatter(array, source, root), back, async_op)


def reduce_scatter(
    output: Tensor, input_list: Sequence[Tensor], op: ReduceOp = ReduceOp.SUM, group: Any = None,
    async_op: bool = False,
) -> Work | None:  # fmt: skip
    """Let `output` become the reduction over ranks of their `input_list[rank]`. `torch.distributed.reduce_scatter`."""
    chosen = resolve(group)
    _reducible(output, op, "reduce_scatter")
    array, back = output_array(chosen, output, "reduce_scatter")
    source = _stacked(chosen, input_list, array, "reduce_scatter")
    text = f"reduce_scatter {described(array)} {op.value}"
    return chosen.start(text, lambda: chosen.engine.reduce_scatter(array, source, op), back, async_op)


def reduce_scatter_tensor(
    output: Tensor, input: Tensor, op: ReduceOp = ReduceOp.SUM, group: Any = None, async_op: bool = False
) -> Work | None:
    """Let `output` become this rank's part, along the first dimension, of the reduction of `input` over ranks.

    `torch.distributed.reduce_scatter_tensor`.
    """
    chosen = resolve(group)
    _reducible(output, op, "reduce_scatter_tensor")
    array, back = output_array(chosen, output, "reduce_scatter_tensor")
    source = input_array(chosen, input, "reduce_scatter_tensor")
    _fits(source, array, chosen, "reduce_scatter_tensor")
    text = f"reduce_scatter_tensor {described(array)} {op.value}"
    return chosen.start(text, lambda: chosen.engine.reduce_scatter(array, source, op), back, async_op)


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
        raise ShapeError("all_to_all_single sends equal parts", where=users_line(2), got=f"input {described(source)}, "
                         f"output {described(array)} on {chosen.size()} ranks")  # fmt: skip
    text = f"all_to_all_single {described(array)}"
    return chosen.start(text, lambda: chosen.engine.all_to_all(array, source), back, async_op)


def barrier(group: Any = None, async_op: bool = False, device_ids: Any = None) -> Work | None:
    """Wait until all ranks have come here. `torch.distributed.barrier`."""
    chosen = resolve(group)
    return chosen.start("barrier", chosen.engine.barrier, None, async_op)


# -- what an operation works on ----------------------------------------------------------------------------------


def _checked(group: ProcessGroup, tensor: Any, name: str) -> Any:
    if not isinstance(tensor, Tensor):
        raise ArgumentError(f"{name} takes tensors", where=users_line(4), got=type(tensor).__name__,
                            hint="ox.tensor(value)")  # fmt: skip
    tensor._refuse_under_recording(name)
    if isinstance(tensor.array, ndarray) != (group.engine.name == "mpi"):
        raise DeviceError(
            f"{name}: the group's backend is {group.engine.name}", where=users_line(4),
            got=f"a tensor on {tensor.device}",
            expected="a tensor on the cpu" if group.engine.name == "mpi" else "a tensor on cuda",
        )  # fmt: skip
    return tensor.array


def input_array(group: ProcessGroup, tensor: Any, name: str) -> Any:
    """A contiguous array to read."""
    array = _checked(group, tensor, name)
    return array if array.flags.c_contiguous else array.copy(order="C")


def output_array(group: ProcessGroup, tensor: Any, name: str) -> tuple[Any, Callable[[], None] | None]:
    """A contiguous array to write, and what brings it into a tensor whose memory is none."""
    _checked(group, tensor, name)
    tensor.own_memory(name)
    tensor.wrote(name)
    array = tensor.array
    if array.flags.c_contiguous:
        return array, None
    copy = array.copy(order="C")

    def back() -> None:
        array[...] = copy

    return copy, back


def _list(group: ProcessGroup, tensors: Sequence[Any], array: Any, name: str) -> list[Any]:
    """The arrays of one tensor a rank, to be written."""
    _alike(group, tensors, array, name)
    for tensor in tensors:
        tensor.own_memory(name)
        tensor.wrote(name)
    return [tensor.array for tensor in tensors]


def _stacked(group: ProcessGroup, tensors: Sequence[Any], array: Any, name: str) -> Any:
    """One array of one tensor a rank, to be read."""
    _alike(group, tensors, array, name)
    source = group.engine.empty((group.size(), *array.shape), array.dtype)
    for row, tensor in zip(source, tensors, strict=True):
        row[...] = tensor.array
    return source


def _alike(group: ProcessGroup, tensors: Sequence[Any], array: Any, name: str) -> None:
    if len(tensors) != group.size():
        raise ArgumentError(f"{name} takes a list of one tensor a rank", where=users_line(4),
                            expected=str(group.size()), got=str(len(tensors)))  # fmt: skip
    for tensor in tensors:
        if _checked(group, tensor, name).shape != array.shape or tensor.dtype != array.dtype:
            raise ShapeError(f"{name}: all tensors have one shape and type", where=users_line(4),
                             expected=described(array), got=described(tensor.array))  # fmt: skip


def _fits(large: Any, small: Any, group: ProcessGroup, name: str) -> None:
    """Whether `large` is one `small` of each rank, concatenated or stacked."""
    if large.size != small.size * group.size() or large.dtype != small.dtype:
        raise ShapeError(
            f"{name}: the large tensor is one small one a rank", where=users_line(3),
            expected=f"{group.size()} times {described(small)}", got=described(large),
        )  # fmt: skip


def _reducible(tensor: Any, op: Any, name: str) -> None:
    if not isinstance(op, ReduceOp):
        raise ArgumentError(f"{name} takes a ReduceOp", where=users_line(3), got=repr(op), hint="ReduceOp.SUM")
    dtype = getattr(tensor, "dtype", None)
    if dtype is None:
        return  # said by who looks at the tensor
    if op in BITS and is_floating(dtype):
        raise DTypeError(f"{name}: {op.name} is of bits", where=users_line(3), expected="integers or bools",
                         got=str(dtype))  # fmt: skip
    if op is ReduceOp.AVG and not is_floating(dtype):
        raise DTypeError(f"{name}: an average has fractions", where=users_line(3), expected="a floating type",
                         got=str(dtype), hint="ReduceOp.SUM, or tensor.float()")  # fmt: skip


def _root(group: ProcessGroup, rank: int) -> int:
    return get_group_rank(group, rank)


def described(array: Any) -> str:
    return f"{np.dtype(array.dtype).name} {list(array.shape)}"


__all__ = [
    "all_gather", "all_gather_into_tensor", "all_reduce", "all_to_all_single", "barrier", "broadcast", "gather",
    "reduce", "reduce_scatter", "reduce_scatter_tensor", "scatter",
]  # fmt: skip
