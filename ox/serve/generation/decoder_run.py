"""Runs of a decoder on slots of a cache: the tokens of a prompt, begins of several prompts, or new tokens of texts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from ox.errors import LoadError
from ox.graph.contract import DTYPES
from ox.serve.generation.cache_slots import Array, CacheSlots
from ox.serve.generation.decoder_memory import HOST, Buffer, HostMemory
from ox.serve.generation.device_scores import score_bytes
from ox.serve.generation.prompt_scores import scored_tokens
from ox.serve.generation.scores import NOTHING, Need, Needs, ScoreRows, Scores
from ox.serve.runtime.cuda_provider import NO_GRAPH, graphs
from ox.serve.runtime.decoder_graph import LENGTHS, SCORED, TOTAL
from ox.serve.runtime.runners import BFLOAT16

TYPES: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(float16)": np.dtype(np.float16)}
ON_GPU = TYPES | {"tensor(bfloat16)": DTYPES["BF16"]}
MOST_NEW = 16  # tokens of one row in a step


class DecoderRun(Protocol):
    """Both ways to run a decoder. Where `needs` say that a row of scores is not needed as a whole, it may come as
    `BestScores`.

    Attributes:
        singly: whether several new tokens of a text take as many runs.
        memory: where its slots lie.
    """

    singly: bool
    memory: HostMemory

    def attach(self, slots: CacheSlots) -> None:
        """Runs on these slots from now on."""

    def read(self, row: int, tokens: Array, start: int, need: Need | None = None) -> Scores:
        """The tokens at the places from `start` on of a text; scores [vocabulary] after the last of them."""

    def read_scored(self, row: int, tokens: Array, start: int) -> Array:
        """As `read`; the scores [tokens, vocabulary] after each of the tokens."""

    def begin(self, row: int, parts: Sequence[Array], needs: Needs | None = None) -> ScoreRows:
        """The first tokens of texts, in rows from `row` on; scores [parts, vocabulary] after the last of each."""

    def step(self, tokens: Array, lengths: Array, needs: Needs | None = None) -> ScoreRows:
        """New tokens [rows, new] of the first rows, which have so many tokens before: one of each row, or up to
        `MOST_NEW` of one row. Scores [rows * new, vocabulary], which the next run overwrites."""

    def release(self) -> None:
        """Lets go of the session and of the arrays of the slots; nothing is run any more."""


class Inputs(NamedTuple):
    """Of a run: new tokens and their places; for each row the place of its last token; the tokens with scores."""

    ids: Buffer
    places: Buffer
    last: Buffer
    scored: Buffer


class SharedCacheRun:
    """Runs a graph with a shared cache (`ox.serve.runtime.decoder_graph`): new keys and values are written into the
    slots by ONNX Runtime itself, and every array is bound once for each number of rows.

    Args:
        memory: of the device of the session, where the slots lie.
    """

    singly = False

    def __init__(self, session: Any, vocab_size: int, memory: HostMemory = HOST) -> None:
        self._session, self._vocab_size, self.memory = session, vocab_size, memory
        inputs = {info.name for info in session.get_inputs()}
        self._positions, self._mask = "position_ids" in inputs, "attention_mask" in inputs
        self._counts = LENGTHS in inputs  # else the graph counts in the mask
        self._chooses = SCORED in inputs  # else it has scores of all tokens
        logits = next(info for info in session.get_outputs() if info.name == "logits")
        self._flat, self._dtype = len(logits.shape) == 2, ON_GPU[logits.type]

    def staged_bytes(self, rows: int, prefill_tokens: int, slot_tokens: int) -> int:
        """The most bytes of the device that tokens, masks and scores take beside the slots, of steps of so many rows,
        prompts that are read in parts of so many tokens, and slots for so many tokens together."""
        step, read = max(rows, MOST_NEW), 2 * prefill_tokens  # rows are padded to equal length
        of_prompt = min(prefill_tokens, scored_tokens(self._vocab_size))  # where its log-probabilities are wanted
        scored = step + (max(min(rows, read), of_prompt) if self._chooses else read)
        inputs = (step + read) * 3 * np.dtype(np.int64).itemsize + 2 * rows * np.dtype(np.int32).itemsize
        masks = 2 * slot_tokens * np.dtype(np.int64).itemsize if self._mask else 0
        return inputs + masks + scored * score_bytes(self._vocab_size, self._dtype)

    def attach(self, slots: CacheSlots) -> None:
        self._slots = slots
        self._version = slots.version
        self._bindings: dict[tuple[int, ...], Any] = {}
        self._graphs: dict[int, int] = {}  # of steps that are captured, by rows
        most, buffer = max(slots.rows, MOST_NEW), self.memory.buffer
        zeros = np.zeros(most, np.int64)
        last = np.zeros(slots.rows, np.int32)
        self._inputs = Inputs(buffer(zeros), buffer(zeros.copy()), buffer(last), buffer(np.arange(most)))
        self._total = np.zeros((), np.int32)  # which GroupQueryAttention reads on the host
        self._scores = self.memory.scores(most, self._vocab_size, self._dtype)

    @property
    def capturable(self) -> bool:
        """Whether a step of some rows always reads the same sizes: without a mask, which grows with the texts."""
        return self._counts and not self._mask

    def capture(self, rows: int) -> None:
        """Has steps of so many texts captured as a CUDA graph, the next time, and replayed from then on. The slots must
        stay as they are."""
        self._graphs[rows] = next(graphs)

    def release(self) -> None:
        with self.memory.using():  # on a GPU, nothing is freed while a CUDA graph is captured
            self._bindings.clear()
            self._slots.arrays.clear()
            for name in ("_session", "_inputs", "_scores"):
                vars(self).pop(name, None)

    def read(self, row: int, tokens: Array, start: int, need: Need | None = None) -> Scores:
        ids = np.asarray(tokens, np.int64)[None]
        return self._read(row, ids, start, np.array([ids.size - 1]), [need])[0]

    def read_scored(self, row: int, tokens: Array, start: int) -> Array:
        ids = np.asarray(tokens, np.int64)[None]
        return np.asarray(self._read(row, ids, start, np.arange(ids.size), None))

    def begin(self, row: int, parts: Sequence[Array], needs: Needs | None = None) -> ScoreRows:
        ids = padded(parts)
        rows, new = ids.shape
        return self._read(row, ids, 0, np.arange(rows) * new + [len(part) - 1 for part in parts], needs)

    def _read(self, row: int, ids: Array, start: int, scored: Array, needs: Needs | None) -> ScoreRows:
        rows, new = ids.shape
        count = len(scored) if self._chooses else ids.size
        if not self._chooses and needs is not None:
            of_scored = dict(zip(scored.tolist(), needs, strict=True))
            needs = [of_scored.get(each, NOTHING) for each in range(count)]
        scores = self.memory.scores(count, self._vocab_size, self._dtype)
        places = np.tile(np.arange(start, start + new), (rows, 1))
        lengths = np.full(rows, start + new - 1, np.int32)
        given = Inputs(*map(self.memory.buffer, (ids, places, lengths, scored)))
        self._total[...] = start + new
        binding = self._bind(row, ids.shape, given, scores, lengths, count)
        result = self.memory.run(self._session, binding, (), scores, count, needs)
        return result if count == len(scored) else [result[each] for each in scored]

    def step(self, tokens: Array, lengths: Array, needs: Needs | None = None) -> ScoreRows:
        shape, count = tokens.shape, tokens.size
        rows, new = shape
        if self._version != self._slots.version:
            self._bindings.clear()
            self._graphs.clear()  # they have the old addresses
            self._version = self._slots.version
        self._inputs.ids.host[:count] = tokens.ravel()
        self._inputs.places.host[:count] = (lengths[:, None] + np.arange(new)).ravel()
        last = self._inputs.last.host[:rows]
        last[...] = lengths + (new - 1)
        captured = self.memory.captures and new == 1
        # in a graph, it is that of all runs: each row is told by its length
        self._total[...] = self._slots.capacity if captured else lengths.max() + new
        graph = self._graphs.get(rows, NO_GRAPH) if captured else NO_GRAPH
        binding = self._bindings.get(shape)
        if binding is None or self._mask:
            self._bindings[shape] = binding = self._bind(0, shape, self._inputs, self._scores, last, count)
        return self.memory.run(self._session, binding, self._inputs[:3], self._scores, count, needs, graph)

    def _bind(
        self,
        row: int,
        shape: tuple[int, ...],
        given: Inputs,
        scores: Buffer,
        lengths: Array,
        count: int,
    ) -> Any:
        """A binding of new tokens of this shape, in rows from `row` on.

        Args:
            lengths: what `given.last` has.
            count: of scores.
        """
        binding, where = self._session.io_binding(), (self.memory.kind, self.memory.number)
        for (name, cache), array in zip(self._slots.shapes.items(), self._slots.arrays, strict=True):
            sizes = (shape[0], cache.heads, self._slots.capacity, cache.size)
            address = self.memory.address(array, row)
            element = element_type(cache.dtype)
            binding.bind_input(name, *where, element, sizes, address)
            binding.bind_output(name.replace("past_key_values", "present"), *where, element, sizes, address)
        bound: list[tuple[str, Buffer, tuple[int, ...]]] = [("input_ids", given.ids, shape)]
        if self._counts:
            bound.append((LENGTHS, given.last, lengths.shape))
            binding.bind_input(TOTAL, "cpu", 0, self._total.dtype, (), self._total.ctypes.data)
        if self._chooses:
            bound.append((SCORED, given.scored, (count,)))
        if self._positions:
            bound.append(("position_ids", given.places, shape))
        if self._mask:  # positions may be counted in it: a text's tokens are at its end
            total = int(self._total)
            mask = self.memory.buffer((np.arange(total)[None] >= total - 1 - lengths[:, None]).astype(np.int64))
            bound.append(("attention_mask", mask, mask.host.shape))
            self._bound_mask = mask  # as long as it is bound
        for name, buffer, extent in bound:
            binding.bind_input(name, *where, buffer.host.dtype, extent, buffer.address)
        shown = (1, count, self._vocab_size) if self._chooses else (*shape, self._vocab_size)
        shown = (count, self._vocab_size) if self._flat else shown
        binding.bind_output("logits", *where, element_type(self._dtype), shown, scores.address)
        return binding


class AppendedCacheRun:
    """Runs the graph as it is in the file: it takes the keys and values of earlier tokens, and returns those of all,
    of which the new ones are copied into the slots. Shorter rows have padding before them, which a mask hides, so that
    distances between tokens stay as they are.

    Args:
        singly: whether tokens that follow others are given one by one, as some files need them.
    """

    memory = HOST

    def __init__(self, session: Any, singly: bool = False) -> None:
        self._session, self.singly = session, singly
        self._inputs = {info.name for info in session.get_inputs()}

    def attach(self, slots: CacheSlots) -> None:
        self._slots = slots

    def release(self) -> None:
        self._slots.arrays.clear()
        self._session = None

    def read(self, row: int, tokens: Array, start: int, need: Need | None = None) -> Scores:
        ids = np.asarray(tokens, np.int64)[None]
        if self.singly and start:
            for place in range(ids.shape[1] - 1):
                self._run(row, ids[:, place : place + 1], np.array([start + place]))
            start, ids = start + ids.shape[1] - 1, ids[:, -1:]
        return self._run(row, ids, np.array([start]))[0, -1]  # type: ignore[no-any-return]

    def read_scored(self, row: int, tokens: Array, start: int) -> Array:
        ids = np.asarray(tokens, np.int64)[None]
        count = 1 if self.singly and start else ids.size
        parts = [(place, ids[:, place : place + count]) for place in range(0, ids.size, count)]
        return np.concatenate([self._run(row, part, np.array([start + place]))[0] for place, part in parts])

    def begin(self, row: int, parts: Sequence[Array], needs: Needs | None = None) -> ScoreRows:
        scores = self._run(row, padded(parts), np.zeros(len(parts), np.int64))
        return scores[np.arange(len(parts)), [len(part) - 1 for part in parts]]

    def step(self, tokens: Array, lengths: Array, needs: Needs | None = None) -> ScoreRows:
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
        logits, *caches = self._session.run(["logits", *presents], feed)
        if logits.shape[1] != new:
            expected, got = f"logits of {new} tokens", f"of {logits.shape[1]}"
            hint = "an export with the logits of all tokens"
            raise LoadError("the file gives the scores after some tokens only", expected=expected, got=got, hint=hint)
        for array, present in zip(slots.arrays, caches, strict=True):
            for place, length in enumerate(lengths):
                array[row + place, :, length : length + new] = present[place, :, past:]
        return logits  # type: ignore[no-any-return]


def element_type(dtype: np.dtype[Any]) -> Any:
    """What bindings take for a type: they know NumPy's, and others by their number in ONNX."""
    return BFLOAT16 if dtype == DTYPES["BF16"] else dtype


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
