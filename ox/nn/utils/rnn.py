"""Sequences of different lengths: packed, padded and stacked. `torch.nn.utils.rnn`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ox import ops
from ox.core import operator
from ox.core.constants import ints, on_device_of
from ox.dtypes import int64, onnx_type
from ox.errors import ArgumentError, ShapeError
from ox.functions import cat, full_like_shape, stack
from ox.nn.utils import recorded_packing
from ox.tensors.tensor import Tensor


class PackedSequence(NamedTuple):
    """Sequences without their padding: `data` [total, *] holds step after step those that go on, longest first;
    `batch_sizes` [steps] is their number. `sorted_indices` [N] is the order of length, `unsorted_indices` its inverse
    (both None if they were sorted already). `torch.nn.utils.rnn.PackedSequence`."""

    data: Tensor
    batch_sizes: Tensor
    sorted_indices: Tensor | None = None
    unsorted_indices: Tensor | None = None

    def _with(self, data: Tensor) -> PackedSequence:
        return self._replace(data=data)

    def to(self, *args: Any, **kwargs: Any) -> PackedSequence:
        """The data in another element type, or on another device."""
        return self._with(self.data.to(*args, **kwargs))

    def float(self) -> PackedSequence:
        return self._with(self.data.float())

    def double(self) -> PackedSequence:
        return self._with(self.data.double())

    def half(self) -> PackedSequence:
        return self._with(self.data.half())

    def cpu(self) -> PackedSequence:
        return self._with(self.data.cpu())

    def cuda(self, *args: Any, **kwargs: Any) -> PackedSequence:
        return self._with(self.data.cuda(*args, **kwargs))

    @property
    def is_cuda(self) -> bool:
        return bool(self.data.device != "cpu")


def lengths_of(packed: PackedSequence) -> np.ndarray[Any, Any]:
    """int64 [N], in the order of the packing (longest first)."""
    sizes = packed.batch_sizes.array
    return np.asarray((sizes[:, None] > np.arange(int(sizes[0]))).sum(0))


def padded_places(lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The index in the packed data of each [step, sequence]; 0 for padding."""
    alive = np.arange(int(lengths.max()))[:, None] < lengths
    places = np.zeros(alive.shape, np.int64)
    places[alive] = np.arange(int(alive.sum()))
    return places


def packed_places(lengths: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """The index in the padded data [steps·N] of each row of the packed data."""
    alive = np.arange(int(lengths.max()))[:, None] < lengths
    return np.asarray(np.flatnonzero(alive))


def _index(values: Any) -> Tensor:
    return operator.as_input(np.asarray(values, np.int64))


def _lengths(lengths: Any, count: int) -> np.ndarray[Any, Any]:
    values = np.asarray(getattr(lengths, "array", lengths)).astype(np.int64)
    if values.shape != (count,):
        raise ShapeError(
            "pack_padded_sequence needs a length for each sequence",
            expected=f"{count} lengths",
            got=str(list(values.shape)),
        )
    if values.size and values.min() < 1:
        raise ArgumentError("a packed sequence has a length of 1 or more", got=str(values.tolist()))
    return values


def pack_padded_sequence(
    input: Tensor, lengths: Any, batch_first: bool = False, enforce_sorted: bool = True
) -> PackedSequence:
    """Drop the padding of input [T, N, *] (or with `batch_first` [N, T, *]), whose sequences have these lengths.
    `torch.nn.utils.rnn.pack_padded_sequence`.

    A recording may compute or take the lengths: a file then packs by those that it is given.

    Raises:
        ArgumentError: a length below 1 or above T, or lengths that do not fall while `enforce_sorted`.
        ShapeError: another number of lengths than sequences.
    """
    if batch_first:
        input = ops.Transpose(input, perm=[1, 0, *range(2, input.array.ndim)])
    steps, count = input.static_shape[:2]
    given = _lengths(lengths, count)
    if given.max(initial=0) > steps:
        raise ArgumentError("a length goes beyond the padded sequences", expected=f"up to {steps}", got=str(given))
    order = None
    if recorded_packing.is_recorded(lengths):  # the order is that of the values in each run
        if enforce_sorted:
            return PackedSequence(*recorded_packing.pack(input, lengths))
        lengths, places = recorded_packing.descending(lengths)
        packed = recorded_packing.pack(ops.Gather(input, places, axis=1), lengths)
        return PackedSequence(*packed, places, recorded_packing.inverse(places))
    if enforce_sorted:
        if (np.diff(given) > 0).any():
            raise ArgumentError(
                "the lengths are not in descending order",
                got=str(given.tolist()),
                hint="enforce_sorted=False, or sort the sequences by length",
            )
    else:
        order = np.argsort(-given, kind="stable")
        given = given[order]
        input = ops.Gather(input, on_device_of(_index(order), input), axis=1)
    longest = int(given[0])
    alive = np.arange(longest)[:, None] < given
    flat = ops.Reshape(input, ints(-1, *input.static_shape[2:]), allowzero=0)
    return PackedSequence(
        ops.Gather(flat, on_device_of(_index(np.flatnonzero(alive)), flat), axis=0),
        _index(alive.sum(1)),
        None if order is None else _index(order),
        None if order is None else invert_permutation(_index(order)),
    )


def pad_packed_sequence(
    sequence: PackedSequence, batch_first: bool = False, padding_value: float = 0.0, total_length: int | None = None
) -> tuple[Tensor, Tensor]:
    """The padded sequences [T, N, *] (or [N, T, *]) in their first order, and their lengths [N].
    `torch.nn.utils.rnn.pad_packed_sequence`.

    Raises:
        ArgumentError: `total_length` is less than the longest sequence.
    """
    lengths = lengths_of(sequence)
    steps, data = int(lengths.max()), sequence.data
    if total_length is not None and int(total_length) < steps:
        raise ArgumentError(
            "total_length is less than the longest sequence", expected=f"at least {steps}", got=str(total_length)
        )
    if recorded_packing.is_recorded(sequence.batch_sizes):
        return _pad_recorded(sequence, batch_first, padding_value, total_length)
    total = steps if total_length is None else total_length
    # a row of padding behind the data, for the places that no sequence fills
    behind = full_like_shape(data, (1, *data.static_shape[1:]), padding_value)
    places = np.full((total, len(lengths)), data.static_shape[0], np.int64)
    alive = np.arange(steps)[:, None] < lengths
    places[:steps][alive] = np.arange(int(alive.sum()))
    if sequence.unsorted_indices is not None:
        order = sequence.unsorted_indices.array
        places, lengths = places[:, order], lengths[order]
    rows = on_device_of(_index(places.T if batch_first else places), data)
    padded = ops.Gather(cat([data, behind]), rows, axis=0)
    return padded, _index(lengths)


def _pad_recorded(
    sequence: PackedSequence, batch_first: bool, padding_value: float, total_length: int | None
) -> tuple[Tensor, Tensor]:
    alive = recorded_packing.alive_of(sequence.batch_sizes)
    padded = recorded_packing.padded_data(sequence.data, alive, padding_value)
    lengths = ops.Cast(recorded_packing.lengths_of(alive), to=onnx_type(int64))
    if total_length is not None:
        padded = recorded_packing.with_steps(padded, total_length, padding_value)
    if sequence.unsorted_indices is not None:
        padded = ops.Gather(padded, sequence.unsorted_indices.to(padded.device), axis=1)
        lengths = ops.Gather(lengths, sequence.unsorted_indices, axis=0)
    return ops.Transpose(padded, perm=[1, 0, *range(2, padded.array.ndim)]) if batch_first else padded, lengths


def pad_sequence(
    sequences: Sequence[Tensor], batch_first: bool = False, padding_value: float = 0.0, padding_side: str = "right"
) -> Tensor:
    """Sequences [T_i, *] as one tensor [T, N, *], or [N, T, *], padded to the longest.
    `torch.nn.utils.rnn.pad_sequence`.

    Raises:
        ArgumentError: no sequences, or a padding_side other than 'left' and 'right'.
    """
    if padding_side not in ("left", "right"):
        raise ArgumentError(f"padding_side is not {padding_side!r}", expected="'left' or 'right'")
    own = list(sequences)
    if not own:
        raise ArgumentError("pad_sequence needs at least one sequence")
    longest = max(x.static_shape[0] for x in own)
    padded = []
    for x in own:
        missing = longest - x.static_shape[0]
        if missing:
            padding = full_like_shape(x, (missing, *x.static_shape[1:]), padding_value)
            x = cat([x, padding] if padding_side == "right" else [padding, x])
        padded.append(x)
    return stack(padded, 0 if batch_first else 1)


def unpad_sequence(padded_sequences: Tensor, lengths: Any, batch_first: bool = False) -> list[Tensor]:
    """The sequences [T_i, *] of a padded tensor. `torch.nn.utils.rnn.unpad_sequence`."""
    count = padded_sequences.static_shape[0 if batch_first else 1]
    return [
        (padded_sequences[i] if batch_first else padded_sequences[:, i])[: int(n)]
        for i, n in zip(range(count), np.asarray(getattr(lengths, "array", lengths)), strict=True)
    ]


def pack_sequence(sequences: Sequence[Tensor], enforce_sorted: bool = True) -> PackedSequence:
    """Sequences [T_i, *] packed, longest first unless `enforce_sorted` is False. `torch.nn.utils.rnn.pack_sequence`."""
    lengths = np.array([x.static_shape[0] for x in sequences], np.int64)
    return pack_padded_sequence(pad_sequence(sequences), lengths, enforce_sorted=enforce_sorted)


def unpack_sequence(packed_sequences: PackedSequence) -> list[Tensor]:
    """The sequences [T_i, *] of a PackedSequence, in their first order. `torch.nn.utils.rnn.unpack_sequence`."""
    padded, lengths = pad_packed_sequence(packed_sequences, batch_first=True)
    return unpad_sequence(padded, lengths, batch_first=True)


def invert_permutation(permutation: Tensor | None) -> Tensor | None:
    """The order that undoes an order. `torch.nn.utils.rnn.invert_permutation`."""
    if permutation is None:
        return None
    if recorded_packing.is_recorded(permutation):
        return recorded_packing.inverse(permutation)
    return _index(np.argsort(permutation.array))
