"""Sequences and optionals: lists of tensors, and what may be there or not.

A sequence is a Python list of tensors, an absent optional None; eager code has Python for that, so these are here for
files. They hold no numbers of their own, and so record nothing: in a recording a sequence is its tensors, and where one
is put or taken must be known.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from ox.core import operator
from ox.core.constants import axes_tensor, integer
from ox.core.mode import cannot_record
from ox.core.operator import OPS, Operator
from ox.core.subgraph import as_kernel
from ox.core.tensor import TensorBase
from ox.core.types import Bool, HostI, I, O, S, T, V
from ox.dtypes import ALL, DType, bfloat16, int32, int64
from ox.errors import ArgumentError, BoundsError, OxError, RecordError

__all__ = [
    "ConcatFromSequence", "Optional", "OptionalGetElement", "OptionalHasElement", "SequenceAt", "SequenceConstruct",
    "SequenceEmpty", "SequenceErase", "SequenceInsert", "SequenceLength", "SplitToSequence",
]  # fmt: skip

IN_SEQUENCES = tuple(d for d in ALL if d != bfloat16)


class OfSequences(Operator):
    """A callable operator on lists of tensors: a composition, so the tape and a recording see what is inside."""

    kind = "sequence"
    amp = "keep"  # what goes in goes through
    batching = "each"  # no recording holds it

    def __init__(self, body: Callable[..., Any], outputs: str, types: dict[str, tuple[DType, ...]]) -> None:
        self.body = body
        super().__init__(as_kernel(body), outputs, types, view=False)

    def __call__(self, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        try:
            return self.body(
                *(x if x is None or isinstance(x, list) else operator.as_input(x) for x in inputs), **attributes
            )
        except OxError:
            raise
        except (TypeError, AttributeError) as error:
            raise ArgumentError(f"{self.name} takes a sequence: a list of tensors", got=str(error)) from error


def of_sequences(outputs: str, **types: tuple[DType, ...]) -> Callable[[Callable[..., Any]], OfSequences]:
    """Define an operator from what it does with lists and tensors."""

    def define(body: Callable[..., Any]) -> OfSequences:
        made = OPS[body.__name__] = OfSequences(body, outputs, types)
        return made

    return define


def _place(position: TensorBase | None, length: int, default: int, low: int, high: int) -> int:
    """A position from the end where negative. Raises BoundsError outside [low, high]."""
    if position is None:
        return default
    recorded = position._recorded
    if recorded is not None and recorded.active():
        cannot_record(RecordError("the place in a sequence is computed, which a recording cannot follow"))
    i = int(position.array.reshape(()))
    if not low <= i <= high:
        raise BoundsError(f"a sequence of {length} has no place {i}", expected=f"{low} to {high}")
    return i + length if i < 0 else i


@of_sequences("output_sequence", T=IN_SEQUENCES, S=())
def SequenceConstruct(*inputs: T) -> S:
    """The tensors as a sequence. ONNX SequenceConstruct."""
    return list(inputs)


@of_sequences("output", S=())
def SequenceEmpty(*, dtype: int | None = None) -> S:
    """A sequence of nothing. ONNX SequenceEmpty."""
    return []


@of_sequences("tensor", S=(), T=IN_SEQUENCES, I=(int32, int64))
def SequenceAt(input_sequence: S, position: HostI) -> T:
    """The tensor at a place, from the end where negative. ONNX SequenceAt."""
    n = len(input_sequence)
    return input_sequence[_place(position, n, 0, -n, n - 1)]


@of_sequences("output_sequence", S=(), T=IN_SEQUENCES, I=(int32, int64))
def SequenceInsert(input_sequence: S, tensor: T, position: HostI = None) -> S:
    """The sequence with a tensor before a place, by default behind the last. ONNX SequenceInsert."""
    n = len(input_sequence)
    i = _place(position, n, n, -n, n)
    return [*input_sequence[:i], tensor, *input_sequence[i:]]


@of_sequences("output_sequence", S=(), I=(int32, int64))
def SequenceErase(input_sequence: S, position: HostI = None) -> S:
    """The sequence without the tensor at a place, by default the last. ONNX SequenceErase."""
    n = len(input_sequence)
    i = _place(position, n, n - 1, -n, n - 1)
    return [*input_sequence[:i], *input_sequence[i + 1 :]]


@of_sequences("length", S=(), I=(int64,))
def SequenceLength(input_sequence: S) -> I:
    """How many tensors there are, int64 []. ONNX SequenceLength."""
    return integer(len(input_sequence))


@of_sequences("output_sequence", T=ALL, I=(int32, int64), S=())
def SplitToSequence(input: T, split: HostI = None, *, axis: int = 0, keepdims: int = 1) -> S:
    """A tensor in parts along an axis: of the sizes in `split`, of one size (the last may be smaller), or of 1, then
    without the axis where `keepdims` is 0. ONNX SplitToSequence."""
    size = input.static_shape[axis]
    if split is None:
        sizes = [1] * size
    elif split.array.ndim:
        sizes = split.array.tolist()
    else:
        step = int(split.array)
        sizes = [min(step, size - start) for start in range(0, size, step)]
    if not sizes:
        return []
    parts = OPS["Split"](input, axes_tensor(sizes), axis=axis, outputs=len(sizes))
    if split is None and not keepdims:
        place = axes_tensor([axis])
        return [OPS["Squeeze"](part, place) for part in parts]
    return list(parts)


@of_sequences("concat_result", S=(), T=IN_SEQUENCES)
def ConcatFromSequence(input_sequence: S, *, axis: int, new_axis: int = 0) -> T:
    """The tensors joined along an axis, a new one where `new_axis` is 1. ONNX ConcatFromSequence."""
    parts: Sequence[Any] = input_sequence
    if not parts:
        raise ArgumentError("ConcatFromSequence needs at least one tensor", got="an empty sequence")
    if new_axis:
        place = axes_tensor([axis])
        parts = [OPS["Unsqueeze"](part, place) for part in parts]
    return OPS["Concat"](*parts, axis=axis)


@of_sequences("output", V=ALL, O=())
def Optional(input: V = None, *, type: Any = None) -> O:
    """What is given, or nothing of the type `type`. ONNX Optional."""
    return input


@of_sequences("output", O=ALL)
def OptionalHasElement(input: O = None) -> Bool:
    """Whether there is something, bool []. ONNX OptionalHasElement."""
    return operator.make_tensor(np.asarray(input is not None))


@of_sequences("output", O=ALL, V=ALL)
def OptionalGetElement(input: O) -> V:
    """What is there. ONNX OptionalGetElement.

    Raises:
        ArgumentError: nothing is.
    """
    if input is None:
        raise ArgumentError("OptionalGetElement of an optional that is empty")
    return input
