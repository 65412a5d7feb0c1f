"""Requests of different lengths in one batch: filled up to one length, masked where the model wants it, and cut back.

On a CPU a batch is as long as its longest request. On a GPU it is as long as its bucket, so that few shapes exist.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from types import MappingProxyType

import numpy as np

from ox.errors import ArgumentError
from ox.graph.contract import DTYPES, Array, TensorInfo
from ox.serve.runtime.instance import Feed

MIN_BUCKET = 8


def bucket(length: int) -> int:
    """The length that this one shares batches with: 8, 16, ..., 64, 80, 96, 112, 128, 160, ...: from 32 on a fifth of a
    request may be padding, no more."""
    length = max(length, 1)
    step = max(MIN_BUCKET, 1 << (length - 1).bit_length() >> 3)
    return -(-length // step) * step


class Padding:
    """How a model's inputs are padded and its outputs are cut back.

    Args:
        inputs, outputs: the model's interface.
        pad: by dimension the value that fills, by input another one.
        mask: an input of 1 for what is there and 0 for what was filled.
        whole: a batch is as long as its bucket, not only as its longest request.
        most: the largest size of a dimension, by name, where it has one; the last bucket ends there.

    Raises:
        ArgumentError: a dimension or an input is not there, or the mask's dimensions are not those of another input.
    """

    def __init__(
        self,
        inputs: Sequence[TensorInfo],
        outputs: Sequence[TensorInfo],
        pad: Mapping[str, float],
        mask: str | None = None,
        whole: bool = False,
        most: Mapping[str, int] = MappingProxyType({}),
    ) -> None:
        names = {info.name for info in inputs}
        dims = {dim for info in inputs for dim in info.dims[1:] if isinstance(dim, str)}
        unknown = next((name for name in pad if name not in dims and name not in names), None)
        if unknown is not None or not any(name in dims for name in pad):
            expected = f"a dimension of an input that varies: {', '.join(sorted(dims)) or 'there is none'}"
            raise ArgumentError("pad names an unknown dimension", expected=expected, got=unknown or ", ".join(pad))
        self.dims = tuple(name for name in pad if name in dims)
        self.mask, self._whole, self._most = mask, whole, most
        self._like: tuple[str, tuple[int, ...]] | None = None
        if mask is not None:
            self._like = self._model_for(mask, inputs)
        # input -> [(axis, dimension)], value
        self._inputs: dict[str, tuple[list[tuple[int, str]], float]] = {}
        for info in inputs:
            axes = [(axis, str(dim)) for axis, dim in enumerate(info.dims) if axis and dim in self.dims]
            value = 0.0 if info.name == mask else pad.get(info.name, pad[axes[0][1]] if axes else 0.0)
            if axes and info.dtype == "BYTES":
                raise ArgumentError("strings cannot be padded", where=f"input '{info.name}'", got=info.dtype)
            self._inputs[info.name] = (axes, value)
        self.dtypes = {info.name: DTYPES[info.dtype] for info in inputs}
        self._output_axes = [
            (info.name, [(axis, str(dim)) for axis, dim in enumerate(info.dims) if axis and dim in self.dims])
            for info in outputs
        ]
        # dimension -> an input and its axis, where its size is read
        self._read = {
            dim: next(
                (name, axis) for name, (axes, _) in self._inputs.items() if name != mask for axis, d in axes if d == dim
            )
            for dim in self.dims
        }

    def axes(self, dim: str) -> dict[str, int] | None:
        """The axis of a padded dimension, by input and output that have it; None if one has it twice."""
        found: dict[str, int] = {}
        for name, axes in [*((name, axes) for name, (axes, _) in self._inputs.items()), *self._output_axes]:
            places = [axis for axis, each in axes if each == dim]
            if len(places) > 1:
                return None
            if places:
                found[name] = places[0]
        return found

    def _model_for(self, mask: str, inputs: Sequence[TensorInfo]) -> tuple[str, tuple[int, ...]]:
        """The input whose sizes a mask that is not sent takes, and on which axes."""
        info = next((info for info in inputs if info.name == mask), None)
        if info is None or info.dtype == "BYTES":
            got = "no such input" if info is None else info.dtype
            raise ArgumentError("mask does not name a usable input", expected="a numeric input", got=f"'{mask}': {got}")
        for other in inputs:
            if other.name != mask and all(dim in other.dims and dim is not None for dim in info.dims):
                return other.name, tuple(other.dims.index(dim) for dim in info.dims)
        raise ArgumentError("the mask's dimensions are those of no other input", where=str(info))

    def complete(self, feed: Feed) -> None:
        """Adds the mask to a request that does not bring it."""
        if self._like is not None and self.mask is not None and self.mask not in feed and self._like[0] in feed:
            name, axes = self._like
            shape = feed[name].shape
            feed[self.mask] = np.ones([shape[axis] for axis in axes], self.dtypes[self.mask])

    def key(self, feed: Feed) -> Hashable:
        """Equal for requests that may share a batch."""
        key: list[int] = []
        for name, (axes, _) in self._inputs.items():
            shape = feed[name].shape
            if 0 in shape:  # empty inputs are not tested in shared batches: a unique key
                return object()
            if axes:
                padded = {axis for axis, _ in axes}
                key += [bucket(size) if axis in padded else size for axis, size in enumerate(shape) if axis]
            else:
                key += shape[1:]
        return tuple(key)

    def sizes(self, feed: Feed) -> dict[str, int]:
        """The padded dimensions' sizes in a request."""
        return {dim: feed[name].shape[axis] for dim, (name, axis) in self._read.items()}

    def length(self, dim: str, size: int) -> int:
        """The size of a padded dimension that this one is filled up to in whole buckets."""
        return max(size, min(bucket(size), self._most.get(dim, bucket(size))))

    def is_whole(self, dim: str, size: int) -> bool:
        """Whether a padded dimension of this size is one whole bucket."""
        return size == self.length(dim, size) <= self._most.get(dim, size)

    def lengths(self, dim: str) -> list[int] | None:
        """All sizes of a padded dimension in whole buckets; None where it has no largest size."""
        most, lengths = self._most.get(dim), list[int]()
        while most is not None and (not lengths or lengths[-1] < most):
            lengths.append(self.length(dim, lengths[-1] + 1 if lengths else 1))
        return lengths or None

    def resized(self, feed: Feed, sizes: Mapping[str, int]) -> Feed:
        """A request with these sizes of the padded dimensions: cut, or filled up."""
        resized: Feed = {}
        for name, (axes, value) in self._inputs.items():
            array = feed[name]
            shape = list(array.shape)
            for axis, dim in axes:
                shape[axis] = sizes[dim]
            resized[name] = np.full(shape, value, array.dtype)
            common = tuple(slice(min(pair)) for pair in zip(shape, array.shape, strict=True))
            resized[name][common] = array[common]
        return resized

    def gather(self, feeds: Sequence[Feed]) -> Feed:
        """One feed of all rows, filled up."""
        sizes = [self.sizes(feed) for feed in feeds]
        longest = {dim: max(size[dim] for size in sizes) for dim in self.dims}
        if self._whole:
            longest = {dim: self.length(dim, size) for dim, size in longest.items()}
        batch: Feed = {}
        for name, (axes, value) in self._inputs.items():
            arrays = [feed[name] for feed in feeds]
            target = list(arrays[0].shape)
            for axis, dim in axes:
                target[axis] = longest[dim]
            if all(array.shape[1:] == tuple(target[1:]) for array in arrays):
                batch[name] = arrays[0] if len(arrays) == 1 else np.concatenate(arrays)
                continue
            filled = np.full((sum(map(len, arrays)), *target[1:]), value, arrays[0].dtype)
            first = 0
            for array in arrays:
                end = first + len(array)
                filled[(slice(first, end), *map(slice, array.shape[1:]))] = array
                first = end
            batch[name] = filled
        return batch

    def scatter(self, outputs: Sequence[Array], feeds: Sequence[Feed]) -> list[list[Array]]:
        """Each request's outputs, cut back to its own sizes."""
        parts: list[list[Array]] = []
        first = 0
        for feed in feeds:
            sizes = self.sizes(feed)
            end = first + len(next(iter(feed.values())))
            part = []
            for output, (_, axes) in zip(outputs, self._output_axes, strict=True):
                cut: list[slice] = [slice(first, end), *(slice(None) for _ in output.shape[1:])]
                for axis, dim in axes:
                    cut[axis] = slice(sizes[dim])
                part.append(output[tuple(cut)])
            parts.append(part)
            first = end
        return parts

    def share(self, batch: Feed, feeds: Sequence[Feed]) -> tuple[int, int]:
        """Elements of a batch that was gathered, and how many of them were filled in."""
        name, _ = next(iter(self._read.values()))
        return batch[name].size, batch[name].size - sum(feed[name].size for feed in feeds)
