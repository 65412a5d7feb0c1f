"""Runs of a decoder on slots of a cache: the tokens of a prompt, begins of several prompts, or new tokens of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from ox.serve.generation.cache_slots import Array, CacheSlots
from ox.serve.runtime.decoder_graph import LENGTHS, SCORED, TOTAL

TYPES: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}
MOST_NEW = 16  # tokens of one row in a step


class DecoderRun(Protocol):
    """Both ways to run a decoder.

    Attributes:
        singly: whether several new tokens of a text take as many runs.
    """

    singly: bool

    def attach(self, slots: CacheSlots) -> None:
        """Runs on these slots from now on."""

    def read(self, row: int, tokens: Array, start: int) -> Array:
        """The tokens at the places from `start` on of a text; scores [vocabulary] after the last of them."""

    def begin(self, row: int, parts: Sequence[Array]) -> Array:
        """The first tokens of texts, in rows from `row` on; scores [parts, vocabulary] after the last of each."""

    def step(self, tokens: Array, lengths: Array) -> Array:
        """New tokens [rows, new] of the first rows, which have so many tokens before: one of each row, or up to
        `MOST_NEW` of one row. Scores [rows * new, vocabulary], which the next run overwrites."""


class SharedCacheRun:
    """Runs a graph with a shared cache (`ox.serve.runtime.decoder_graph`): new keys and values are written into the
    slots by ONNX Runtime itself, and every array is bound once for each number of rows."""

    singly = False

    def __init__(self, session: Any, vocab_size: int) -> None:
        self._session, self._vocab_size = session, vocab_size
        inputs = {info.name for info in session.get_inputs()}
        self._positions, self._mask = "position_ids" in inputs, "attention_mask" in inputs
        self._counts = LENGTHS in inputs  # else the graph counts in the mask
        self._chooses = SCORED in inputs  # else it has scores of all tokens
        logits = next(info for info in session.get_outputs() if info.name == "logits")
        self._flat, self._dtype = len(logits.shape) == 2, TYPES[logits.type]

    def attach(self, slots: CacheSlots) -> None:
        self._slots = slots
        self._version = slots.version
        self._bindings: dict[tuple[int, ...], Any] = {}
        most = max(slots.rows, MOST_NEW)
        self._ids, self._places = np.zeros((2, most), np.int64)
        self._lengths = np.zeros(slots.rows, np.int32)
        self._total = np.zeros((), np.int32)
        self._scored = np.arange(most)
        self._scores = np.zeros((most, self._vocab_size), self._dtype)

    def read(self, row: int, tokens: Array, start: int) -> Array:
        ids = np.asarray(tokens, np.int64)[None]
        return self._read(row, ids, start, np.array([ids.size - 1]))[0]  # type: ignore[no-any-return]

    def begin(self, row: int, parts: Sequence[Array]) -> Array:
        ids = padded(parts)
        rows, new = ids.shape
        return self._read(row, ids, 0, np.arange(rows) * new + [len(part) - 1 for part in parts])

    def _read(self, row: int, ids: Array, start: int, scored: Array) -> Array:
        rows, new = ids.shape
        places = np.tile(np.arange(start, start + new), (rows, 1))
        lengths = np.full(rows, start + new - 1, np.int32)
        scores = np.zeros((len(scored) if self._chooses else ids.size, self._vocab_size), self._dtype)
        self._total[...] = start + new
        self._session.run_with_iobinding(self._bind(row, ids, places, lengths, scored, scores))
        return scores if self._chooses else scores[scored]

    def step(self, tokens: Array, lengths: Array) -> Array:
        shape, count = tokens.shape, tokens.size
        rows, new = shape
        if self._version != self._slots.version:
            self._bindings.clear()
            self._version = self._slots.version
        ids, places = self._ids[:count].reshape(shape), self._places[:count].reshape(shape)
        ids[...] = tokens
        places[...] = lengths[:, None] + self._scored[:new]
        self._lengths[:rows] = lengths + (new - 1)
        self._total[...] = lengths.max() + new
        binding = self._bindings.get(shape)
        if binding is None or self._mask:
            arrays = (self._lengths[:rows], self._scored[:count], self._scores[:count])
            self._bindings[shape] = binding = self._bind(0, ids, places, *arrays)
        self._session.run_with_iobinding(binding)
        return self._scores[:count]

    def _bind(self, row: int, ids: Array, places: Array, lengths: Array, scored: Array, scores: Array) -> Any:
        binding = self._session.io_binding()
        for (name, shape), array in zip(self._slots.shapes.items(), self._slots.arrays, strict=True):
            sizes = (len(ids), shape.heads, self._slots.capacity, shape.size)
            address = array.ctypes.data + row * array.strides[0]
            binding.bind_input(name, "cpu", 0, shape.dtype, sizes, address)
            binding.bind_output(name.replace("past_key_values", "present"), "cpu", 0, shape.dtype, sizes, address)
        given = [("input_ids", ids)]
        if self._counts:
            given += [(LENGTHS, lengths), (TOTAL, self._total)]
        if self._chooses:
            given.append((SCORED, scored))
        if self._positions:
            given.append(("position_ids", places))
        if self._mask:  # positions may be counted in it: a text's tokens are at its end
            total = int(self._total)
            mask = (np.arange(total)[None] >= total - 1 - lengths[:, None]).astype(np.int64)
            given.append(("attention_mask", mask))
            self._bound_mask = mask  # as long as it is bound
        for name, array in given:
            binding.bind_input(name, "cpu", 0, array.dtype, array.shape, array.ctypes.data)
        shown = (1, len(scores), self._vocab_size) if self._chooses else (*ids.shape, self._vocab_size)
        shown = (len(scores), self._vocab_size) if self._flat else shown
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
        return self._run(row, ids, np.array([start]))[0, -1]  # type: ignore[no-any-return]

    def begin(self, row: int, parts: Sequence[Array]) -> Array:
        scores = self._run(row, padded(parts), np.zeros(len(parts), np.int64))
        return scores[np.arange(len(parts)), [len(part) - 1 for part in parts]]

    def step(self, tokens: Array, lengths: Array) -> Array:
        if self.singly:
            every = [self._run(0, tokens[:, place, None], lengths + place) for place in range(tokens.shape[1])]
            return np.concatenate(every, 1).reshape(tokens.size, -1)
        scores = self._run(0, tokens, lengths)
        return scores[:, -tokens.shape[1] :].reshape(tokens.size, -1)

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
        return logits  # type: ignore[no-any-return]


def padded(parts: Sequence[Array]) -> Array:
    """Rows of equal length. What is behind a part does not change what is computed for it: no token sees later ones."""
    ids = np.zeros((len(parts), max(map(len, parts))), np.int64)
    for row, part in zip(ids, parts, strict=True):
        row[: len(part)], row[len(part) :] = part, part[-1]
    return ids


def _aligned(array: Array, lengths: Array) -> Array:
    """Rows of keys or values, with the last token of each at the end."""
    past = array.shape[2]
    if (lengths == past).all():
        return array
    aligned = np.zeros_like(array)
    for row, length in enumerate(lengths):
        aligned[row, :, past - length :] = array[row, :, :length]
    return aligned
