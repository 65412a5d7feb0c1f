"""Runs of a decoder on slots of a cache: the tokens of a prompt, or one more token of many texts."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from ox.serve.generation.cache_slots import Array, CacheSlots
from ox.serve.runtime.decoder_graph import LENGTHS, TOTAL

TYPES: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}


class DecoderRun(Protocol):
    """Both ways to run a decoder."""

    def attach(self, slots: CacheSlots) -> None:
        """Runs on these slots from now on."""

    def read(self, row: int, tokens: Array, start: int) -> Array:
        """The tokens at the places from `start` on of a text; scores [vocabulary] after the last of them."""

    def step(self, tokens: Array, lengths: Array) -> Array:
        """One token of each of the first rows, which have so many tokens before; scores [rows, vocabulary], which the
        next run overwrites."""


class SharedCacheRun:
    """Runs a graph with a shared cache (`ox.serve.runtime.decoder_graph`): new keys and values are written into the
    slots by ONNX Runtime itself, and every array is bound once for each number of rows."""

    def __init__(self, session: Any, vocab_size: int, last_only: bool) -> None:
        self._session, self._vocab_size, self.last_only = session, vocab_size, last_only
        inputs = {info.name for info in session.get_inputs()}
        self._positions, self._mask = "position_ids" in inputs, "attention_mask" in inputs
        self._counts = LENGTHS in inputs  # else the graph counts in the mask
        logits = next(info for info in session.get_outputs() if info.name == "logits")
        self._flat, self._dtype = len(logits.shape) == 2, TYPES[logits.type]

    def attach(self, slots: CacheSlots) -> None:
        self._slots = slots
        self._version = slots.version
        self._bindings: dict[int, Any] = {}
        self._ids, self._places = np.zeros((2, slots.rows), np.int64)
        self._lengths = np.zeros(slots.rows, np.int32)
        self._total = np.zeros((), np.int32)
        self._scores = np.zeros((slots.rows, self._vocab_size), self._dtype)

    def read(self, row: int, tokens: Array, start: int) -> Array:
        new = len(tokens)
        ids, places = np.asarray(tokens, np.int64), np.arange(start, start + new)
        lengths, scores = np.array([start + new - 1], np.int32), np.zeros((new, self._vocab_size), self._dtype)
        self._total[...] = start + new
        binding = self._bind(row, 1, new, ids, places, lengths, scores)
        self._session.run_with_iobinding(binding)
        return scores[0 if self.last_only else new - 1]  # type: ignore[no-any-return]

    def step(self, tokens: Array, lengths: Array) -> Array:
        rows = len(tokens)
        if self._version != self._slots.version:
            self._bindings.clear()
            self._version = self._slots.version
        self._ids[:rows], self._places[:rows], self._lengths[:rows] = tokens, lengths, lengths
        self._total[...] = lengths.max() + 1
        binding = self._bindings.get(rows)
        if binding is None or self._mask:
            binding = self._bind(0, rows, 1, self._ids, self._places, self._lengths, self._scores)
            self._bindings[rows] = binding
        self._session.run_with_iobinding(binding)
        return self._scores[:rows]

    def _bind(self, row: int, rows: int, new: int, ids: Array, places: Array, lengths: Array, scores: Array) -> Any:
        binding = self._session.io_binding()
        for (name, shape), array in zip(self._slots.shapes.items(), self._slots.arrays, strict=True):
            sizes = (rows, shape.heads, self._slots.capacity, shape.size)
            address = array.ctypes.data + row * array.strides[0]
            binding.bind_input(name, "cpu", 0, shape.dtype, sizes, address)
            binding.bind_output(name.replace("past_key_values", "present"), "cpu", 0, shape.dtype, sizes, address)
        given: list[tuple[str, Array, tuple[int, ...]]] = [("input_ids", ids, (rows, new))]
        if self._counts:
            given += [(LENGTHS, lengths, (rows,)), (TOTAL, self._total, ())]
        if self._positions:
            given.append(("position_ids", places, (rows, new)))
        if self._mask:  # positions may be counted in it: a text's tokens are at its end
            total = int(self._total)
            mask = (np.arange(total)[None] >= total - 1 - lengths[:rows, None]).astype(np.int64)
            given.append(("attention_mask", mask, mask.shape))
            self._bound_mask = mask  # as long as it is bound
        for name, array, dims in given:
            binding.bind_input(name, "cpu", 0, array.dtype, dims, array.ctypes.data)
        places_of = 1 if self.last_only else new
        shown = (rows, self._vocab_size) if self._flat else (rows, places_of, self._vocab_size)
        binding.bind_output("logits", "cpu", 0, self._dtype, shown, scores.ctypes.data)
        return binding


class AppendedCacheRun:
    """Runs the graph as it is in the file: it takes the keys and values of earlier tokens, and returns those of all,
    of which the new ones are copied into the slots. Shorter rows have padding before them, which a mask hides, so that
    distances between tokens stay as they are.

    Args:
        singly: whether tokens that follow others are given one by one, as some files need them.
    """

    def __init__(self, session: Any, singly: bool = False) -> None:
        self._session, self.singly = session, singly
        self._inputs = {info.name for info in session.get_inputs()}

    def attach(self, slots: CacheSlots) -> None:
        self._slots = slots

    def read(self, row: int, tokens: Array, start: int) -> Array:
        ids = np.asarray(tokens, np.int64)[None]
        if self.singly and start:
            for place in range(ids.shape[1] - 1):
                self._run(row, ids[:, place : place + 1], np.array([start + place]))
            start, ids = start + ids.shape[1] - 1, ids[:, -1:]
        return self._run(row, ids, np.array([start]))[0]  # type: ignore[no-any-return]

    def step(self, tokens: Array, lengths: Array) -> Array:
        return self._run(0, np.asarray(tokens, np.int64)[:, None], np.asarray(lengths, np.int64))

    def _run(self, row: int, ids: Array, lengths: Array) -> Array:
        rows, new = ids.shape
        past, slots = int(lengths.max()), self._slots
        mask = np.ones((rows, past + new), np.int64)
        mask[:, :past] = np.arange(past) >= past - lengths[:, None]
        feed = {"input_ids": ids, "attention_mask": mask}
        if "position_ids" in self._inputs:
            feed["position_ids"] = lengths[:, None] + np.arange(new)
        if "use_cache_branch" in self._inputs:  # files with two branches in one graph
            feed["use_cache_branch"] = np.array([past > 0])
        for name, array in zip(slots.shapes, slots.arrays, strict=True):
            feed[name] = _aligned(array[row : row + rows, :, :past], lengths)
        presents = [name.replace("past_key_values", "present") for name in slots.shapes]
        logits, *found = self._session.run(["logits", *presents], feed)
        for array, present in zip(slots.arrays, found, strict=True):
            for place, length in enumerate(lengths):
                array[row + place, :, length : length + new] = present[place, :, past:]
        return logits[:, -1]  # type: ignore[no-any-return]


def _aligned(array: Array, lengths: Array) -> Array:
    """Rows of keys or values, with the last token of each at the end."""
    past = array.shape[2]
    if (lengths == past).all():
        return array
    aligned = np.zeros_like(array)
    for row, length in enumerate(lengths):
        aligned[row, :, past - length :] = array[row, :, :length]
    return aligned
